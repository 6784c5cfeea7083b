//! An S3-compatible server (moto) of one test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::peer::{checkout, skip};

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

fn programs() -> impl Iterator<Item = PathBuf> {
    let venv = checkout("target/clients/venv/bin/moto_server");
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
        skip("moto_server");
        None
    }
}
