//! The runner as a process: lines go in, lines come out, and its end is told.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
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

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    handle: OwnedFd,
    /// `None` once its input is closed.
    input: Option<mpsc::Sender<String>>,
    said: mpsc::Receiver<Said>,
}

impl Process {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        // Its id is its own until it is waited for.
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let (input, mut lines) = mpsc::channel::<String>(LINES);
        let (said, received) = mpsc::channel(LINES);
        thread::Builder::new()
            .name("sinks-in".to_owned())
            .spawn(move || {
                while let Some(line) = lines.blocking_recv() {
                    // A process that has ended is told by the other thread.
                    if stdin.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            })?;
        thread::Builder::new()
            .name("sinks-out".to_owned())
            .spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // The process is killed if nothing takes its lines.
                    if said.blocking_send(Said::Line(line)).is_err() {
                        break;
                    }
                }
                let ended = match child.wait() {
                    Ok(status) => status.to_string(),
                    Err(why) => why.to_string(),
                };
                let _ = said.blocking_send(Said::Ended(ended));
            })?;
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
