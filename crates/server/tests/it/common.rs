//! Starts the real binary and talks to it. A process never outlives its test.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail as tests do"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A folder that is deleted with its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "stafett-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `stafett serve` on free ports, storing in `folder`; nothing of this process's environment reaches it.
pub(crate) fn serve(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.args([
        "serve",
        "--kafka",
        "127.0.0.1:0",
        "--amqp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data-dir",
    ]);
    command.arg(folder.path().join("data"));
    command
}

/// Runs a process that ends by itself, and returns its output.
pub(crate) fn ended<A: AsRef<OsStr>>(mut command: Command, arguments: &[A]) -> Output {
    command.args(arguments).output().unwrap()
}

/// A process that has printed `ready`.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// Lines on standard output until `ready`.
    pub(crate) lines: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| line != "ready") {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let output = child.wait_with_output().unwrap();
                panic!(
                    "it ended: {} after {lines:?}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            lines.push(line.trim_end().to_owned());
        }
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
            lines,
        }
    }

    /// Reads the log up to a line with this text, and returns the lines.
    #[allow(
        dead_code,
        reason = "each test is a program of its own, and not all of them read logs"
    )]
    pub(crate) fn logged(&mut self, text: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.contains(text)) {
            let mut line = String::new();
            assert!(
                self.stderr.read_line(&mut line).unwrap() > 0,
                "{text} was not logged: {lines:?}"
            );
            lines.push(line);
        }
        lines
    }

    /// Returns the address of a listener.
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        let prefix = format!("{listener} listening on ");
        self.lines
            .iter()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap()
            .parse()
            .unwrap()
    }

    #[allow(
        dead_code,
        reason = "each test is a program of its own, and not all of them look for processes"
    )]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end; returns the exit code, the rest of standard output, and all of standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut error) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut error).unwrap();
        (self.child.wait().unwrap(), out, error)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects with a limit on waiting for answers.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Returns the status line, headers and body of `GET path`.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
