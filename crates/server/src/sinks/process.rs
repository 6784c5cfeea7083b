//! The runner as a process: lines go in, lines come out, and its end is told.
//!
//! A thread of its own starts the process, takes its lines and waits for its end. The process asks for a
//! signal at the end of its parent, and the kernel means the thread by that.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::mpsc;

const LINES: usize = 64;

/// Something that the process said.
#[derive(Debug)]
pub(super) enum Said {
    Line(String),
    /// It has ended, in this way.
    Ended(String),
}

/// Handle and standard input of a process that was started.
type Begun = io::Result<(OwnedFd, ChildStdin)>;

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    handle: OwnedFd,
    /// `None` once its input is closed.
    input: Option<mpsc::Sender<String>>,
    said: mpsc::Receiver<Said>,
}

impl Process {
    pub(super) fn spawn(command: Command) -> io::Result<Self> {
        let (input, lines) = mpsc::channel(LINES);
        let (said, received) = mpsc::channel(LINES);
        let (begun, started) = sync_channel(1);
        thread::Builder::new()
            .name("sinks-out".to_owned())
            .spawn(move || attend(command, &begun, &said))?;
        let (handle, stdin) = started.recv().map_err(io::Error::other)??;
        thread::Builder::new()
            .name("sinks-in".to_owned())
            .spawn(move || feed(stdin, lines))?;
        Ok(Self {
            handle,
            input: Some(input),
            said: received,
        })
    }

    /// Gives a line. One that a process does not take in time is left out: it is about to be killed.
    pub(super) fn tell(&self, line: String) -> bool {
        self.input
            .as_ref()
            .is_some_and(|input| input.try_send(line).is_ok())
    }

    /// Closes its input, which asks it to end.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    pub(super) async fn listen(&mut self) -> Said {
        let said = self.said.recv().await;
        said.unwrap_or_else(|| Said::Ended("nothing more is heard".to_owned()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

/// Starts a process.
fn start(mut command: Command) -> io::Result<(Child, OwnedFd)> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
    // Its id is its own until it is waited for.
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((child, handle))
}

/// Starts a process, and stays until its end.
fn attend(command: Command, begun: &SyncSender<Begun>, said: &mpsc::Sender<Said>) {
    let mut child = match start(command) {
        Ok((mut child, handle)) => {
            let Some(stdin) = child.stdin.take() else {
                return;
            };
            // The caller waits for it.
            let _ = begun.send(Ok((handle, stdin)));
            child
        }
        Err(why) => {
            let _ = begun.send(Err(why));
            return;
        }
    };
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The process is killed if nothing takes its lines.
            if said.blocking_send(Said::Line(line)).is_err() {
                break;
            }
        }
    }
    let ended = match child.wait() {
        Ok(status) => status.to_string(),
        Err(why) => why.to_string(),
    };
    let _ = said.blocking_send(Said::Ended(ended));
}

fn feed(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.blocking_recv() {
        // A process that has ended is told by the other thread.
        if stdin.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}
