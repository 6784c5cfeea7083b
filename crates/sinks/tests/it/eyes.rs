//! A second client of a store, in a process of its own: it reads rows back.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::peer::{checkout, python, skip};

/// A program of Python that prints `ready`, and then an answer for each line that it reads; both are JSON.
pub(crate) struct Eyes {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Eyes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Eyes {
    /// Starts a program of `tests/clients/python`. Without its libraries the test is skipped, by their name.
    pub(crate) fn open(program: &str, arguments: &[&str], libraries: &str) -> Option<Self> {
        let mut command = Command::new(python());
        command
            .arg(checkout(&format!("tests/clients/python/{program}")))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            skip(libraries);
            return None;
        };
        let mut eyes = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        let mut line = String::new();
        eyes.output.read_line(&mut line).unwrap();
        if line != "ready\n" {
            skip(libraries);
            return None;
        }
        Some(eyes)
    }

    pub(crate) fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.input, "{question}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}
