//! Runs our own commands.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::broker::{Broker, build_folder, lines_of};
use crate::peer;

/// The commands, pointed at a broker.
pub(crate) struct Cli {
    server: String,
    folder: PathBuf,
}

impl Cli {
    pub(crate) fn of(broker: &Broker) -> Self {
        Self {
            server: broker.kafka().to_owned(),
            folder: broker.folder(),
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = peer::command(&build_folder().join("stafett"));
        command.args(arguments).env("STAFETT_SERVER", &self.server);
        command
    }

    /// Runs to the end and insists on success.
    pub(crate) fn bytes(&self, arguments: &[&str]) -> Vec<u8> {
        peer::run(&mut self.command(arguments))
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.bytes(arguments)).unwrap()
    }

    /// Returns the output with `--json`, line by line.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text(&[arguments, &["--json"]].concat());
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Runs with `input`, with any exit code.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let file = self.folder.join("input");
        fs::write(&file, input).unwrap();
        let input = File::open(&file).unwrap();
        self.command(arguments).stdin(input).output().unwrap()
    }

    /// Runs with `input` and insists on success.
    pub(crate) fn produce(&self, arguments: &[&str], input: &[u8]) {
        let output = self.feed(&[&["produce"], arguments].concat(), input);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Insists on exit code 1 and one line about it.
    pub(crate) fn failure(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said.trim_end().to_owned()
    }

    /// Starts, and returns the lines as they come.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut process = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        Running {
            process,
            lines,
            input: None,
        }
    }

    /// Starts `produce`, to be fed through a pipe.
    pub(crate) fn start_produce(&self, arguments: &[&str]) -> Running {
        let mut process = self
            .command(&[&["produce"], arguments].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        Running {
            input: process.stdin.take(),
            process,
            lines,
        }
    }
}

/// A command that runs until it is terminated.
pub(crate) struct Running {
    process: Child,
    pub(crate) lines: std::sync::mpsc::Receiver<String>,
    pub(crate) input: Option<ChildStdin>,
}

impl Running {
    /// Waits for its end and insists on success.
    pub(crate) fn success(mut self) {
        assert!(self.process.wait().unwrap().success());
    }

    /// Ends it as Ctrl-C does, and checks that it succeeds. `timeout` passes the signal on and waits for some
    /// seconds at most.
    pub(crate) fn interrupt(mut self) {
        kill_process(self.pid(), Signal::INT).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Suspends the command until it is resumed. It is in a process group that `timeout` created.
    pub(crate) fn pause(&self) {
        kill_process_group(self.pid(), Signal::STOP).unwrap();
    }

    pub(crate) fn resume(&self) {
        kill_process_group(self.pid(), Signal::CONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // `timeout` and its child.
            let _ = kill_process_group(self.pid(), Signal::KILL);
        }
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
