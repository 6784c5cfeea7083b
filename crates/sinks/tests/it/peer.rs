//! Stand-ins of stores in processes of their own: each says its port on its first line, and ends with its input.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server; it ends with this.
pub(crate) struct Peer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a path of the checkout.
pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Says that the calling test is skipped, and why.
pub(crate) fn skip(missing: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: no {missing} (install with: scripts/setup)\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = checkout("target/clients");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("skipped");
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// Returns Python with the packages of the tests.
pub(crate) fn python() -> PathBuf {
    checkout("target/clients/venv/bin/python")
}

impl Peer {
    /// Returns `None`, and says so, where the server cannot be had.
    pub(crate) fn start(command: &mut Command, what: &str) -> Option<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let started = command.spawn().ok().and_then(|mut child| {
            let mut line = String::new();
            let stdout = child.stdout.take().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            let Ok(port) = line.trim().parse::<u16>() else {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            };
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            Some(Self { child, address })
        });
        if started.is_none() {
            skip(what);
        }
        started
    }
}
