//! A Java program that runs beside the test: its lines as they come, its end, and how it is ended.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::lines_of;

/// Guard against a hanging test, not an expectation.
const LIMIT: Duration = Duration::from_mins(5);
/// Time without a line after which all stacks are there.
const SILENCE: Duration = Duration::from_secs(5);
/// Lines of a log that are shown.
const LOG_LINES: usize = 30;
/// Options of JVMs that start quickly.
pub(crate) const JVM: [&str; 3] = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Waits until `look` finds something, and returns it. Fails with `noun` if that takes too long.
pub(crate) fn await_some<T>(noun: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{noun} does not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Killed when it is dropped, and with the test.
pub(crate) struct Program {
    process: Child,
    lines: Receiver<String>,
    log: String,
}

impl Program {
    /// Starts a program that is a JVM or becomes one. What it writes to stderr is appended to `log`.
    pub(crate) fn start<'a>(
        program: &Path,
        arguments: impl IntoIterator<Item = &'a str>,
        log: &Path,
    ) -> Self {
        let errors = File::options().create(true).append(true).open(log).unwrap();
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(arguments)
            .env("JAVA_OPTS", JVM.join(" "))
            .env("KAFKA_TOOL_OPTS", JVM.join(" "))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        Self {
            lines: lines_of(process.stdout.take().unwrap()),
            process,
            log: log.display().to_string(),
        }
    }

    /// Waits for a line that `is_it`, and returns it.
    pub(crate) fn await_line(&self, is_it: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if is_it(&line) => return line,
                Ok(_) => {}
                Err(error) => panic!("the awaited line does not come: {error}; see {}", self.log),
            }
        }
    }

    /// Ends it without warning, and returns the lines that were not taken yet.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.ended().1
    }

    /// Ends it with SIGTERM, and returns the lines that were not taken yet.
    pub(crate) fn stop(mut self) -> (ExitStatus, Vec<String>) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.ended()
    }

    /// Waits for its end, and returns the lines that were not taken yet.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        self.ended()
    }

    fn ended(&mut self) -> (ExitStatus, Vec<String>) {
        let begun = Instant::now();
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(LIMIT.saturating_sub(begun.elapsed())) {
            lines.push(line);
        }
        if begun.elapsed() >= LIMIT {
            self.report_hang();
        }
        (self.process.wait().unwrap(), lines)
    }

    /// Fails with the end of the log and with the stacks of the JVM's threads, which are the reason.
    fn report_hang(&self) -> ! {
        let pid = rustix::process::Pid::from_child(&self.process);
        // A JVM answers with the stacks of its threads, on stdout.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let mut stacks = String::new();
        while let Ok(line) = self.lines.recv_timeout(SILENCE) {
            stacks.push_str(&line);
            stacks.push('\n');
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        panic!(
            "it does not end; the end of {}:\n{end}\nits threads:\n{stacks}",
            self.log
        );
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
