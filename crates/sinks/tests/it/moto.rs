//! An S3-compatible server (moto) of one test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server in a process of its own; it ends with this.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that the calling test is skipped, and why.
fn skip() {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let line = format!("skipped: {test}: no moto_server (install with: scripts/setup)\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("skipped");
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn programs() -> impl Iterator<Item = PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/venv/bin/moto_server");
    [venv, PathBuf::from("moto_server")].into_iter()
}

impl Server {
    /// Returns `None`, and says so, where there is no such server.
    pub(crate) fn start() -> Option<Self> {
        for program in programs() {
            let mut command = Command::new(program);
            command.args(["-H", "127.0.0.1", "-p", "0"]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let Ok(mut child) = command.spawn() else {
                continue;
            };
            let stderr = BufReader::new(child.stderr.take().unwrap());
            let mut lines = stderr.lines().map_while(Result::ok);
            let address = lines.find_map(|line| {
                let (_, rest) = line.split_once("http://127.0.0.1:")?;
                let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
            });
            let Some(address) = address else {
                let _ = child.kill();
                let _ = child.wait();
                continue;
            };
            // It says something about each request.
            std::thread::spawn(move || lines.for_each(drop));
            return Some(Self { child, address });
        }
        skip();
        None
    }
}
