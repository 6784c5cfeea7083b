//! A program of a tool: what it prints goes to a file and, line by line, to who started it. It ends with what stands for it
//! here, and everything that it has started with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::systems::process::last_words;

/// No tool has longer lines. What is longer comes in pieces.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// How long it may take to end when it is asked to.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// What a program says.
#[derive(Debug)]
pub(super) enum Said {
    Line(String),
    Ended(Result<ExitStatus, String>),
}

/// A program at work, in a process group of its own.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) pid: u32,
    group: Option<Pid>,
    has_ended: Arc<AtomicBool>,
    ended: CancellationToken,
    errors: PathBuf,
    tasks: TaskTracker,
}

impl Program {
    /// Starts it. All that it says is told to `told` under `key`; its end comes last.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(super) fn start(
        mut command: Command,
        name: &str,
        logs: &Path,
        key: usize,
        told: mpsc::Sender<(usize, Said)>,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{name} cannot be started: {error}");
        std::fs::create_dir_all(logs).map_err(failed)?;
        let errors = logs.join(format!("{name}.err"));
        let log = File::create(logs.join(format!("{name}.out"))).map_err(failed)?;
        // A group of its own: an interrupt of the terminal is for the lab, which then ends it in order.
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).map_err(failed)?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().unwrap_or(0);
        let output = child.stdout.take();
        let (has_ended, ended) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let tasks = TaskTracker::new();
        let (flag, token) = (Arc::clone(&has_ended), ended.clone());
        tasks.spawn(async move {
            if let Some(output) = output {
                pass_on(output, log, key, &told).await;
            }
            let status = child.wait().await;
            flag.store(true, Ordering::Release);
            token.cancel();
            let _ = told
                .send((key, Said::Ended(status.map_err(|error| error.to_string()))))
                .await;
        });
        Ok(Self {
            pid,
            group: i32::try_from(pid).ok().and_then(Pid::from_raw),
            has_ended,
            ended,
            errors,
            tasks,
        })
    }

    /// What it complained of, behind a colon: the first line about an error, above the way to it; else the last line.
    pub(super) fn complaint(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let is_error = |line: &&str| line.contains("xception") || line.contains("rror");
        match text.lines().find(is_error) {
            Some(line) => format!(": {}", line.trim()),
            None => last_words(&self.errors),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group.filter(|_| !self.has_ended.load(Ordering::Acquire)) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Asks it to end.
    pub(super) fn ask(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended after it was asked, and makes it if it does not.
    pub(super) async fn end(self) {
        if timeout(ENDED_WITHIN, self.ended.cancelled()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = timeout(ENDED_WITHIN, self.ended.cancelled()).await;
        }
        self.tasks.close();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Lines until there are no more of them. Who is not listened to any more is still read, so that it can end.
async fn pass_on(output: impl AsyncRead + Unpin, log: File, key: usize, told: &mpsc::Sender<(usize, Said)>) {
    let mut log = tokio::fs::File::from_std(log);
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut output)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await;
        if !read.is_ok_and(|read| read > 0) {
            break;
        }
        let _ = log.write_all(&line).await;
        let text = String::from_utf8_lossy(&line);
        let _ = told.send((key, Said::Line(text.trim_end().to_owned()))).await;
    }
    let _ = log.flush().await;
}
