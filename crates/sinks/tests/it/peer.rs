//! Stand-ins of stores in processes of their own: each says its port on its first line, and ends with its input.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(crate) use crate::server::skip;

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
