//! A process that is started, watched and ended.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stafett_model::Lock;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::drivers::DriverError;

/// Time that a system may take to end when it is asked to.
const END_WITHIN: Duration = Duration::from_secs(30);

/// A process of our own. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    /// It has ended.
    pub ended: CancellationToken,
    status: Arc<Lock<Option<ExitStatus>>>,
    kill: Option<oneshot::Sender<()>>,
    tasks: TaskTracker,
}

impl Process {
    /// Starts `command` and waits for a line of its output for which `is_ready` returns a value. Its output
    /// goes to files in `logs`, named for it.
    pub async fn start<T>(
        mut command: Command,
        name: &str,
        logs: &Path,
        patience: Duration,
        is_ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<(Self, T), DriverError> {
        let failed = |what: &str, error: io::Error| DriverError::Failed(format!("{name}: {what}: {error}"));
        std::fs::create_dir_all(logs).map_err(|error| failed("no folder for what it says", error))?;
        let errors = logs.join(format!("{name}.err"));
        let said = File::create(&errors).map_err(|error| failed("no file for what it says", error))?;
        // A group of its own: an interrupt of the terminal is for the lab, which then ends it in order.
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed("it cannot be started", error))?;
        let pid = child.id().unwrap_or(0);
        let output = child.stdout.take();
        let (ended, status) = (CancellationToken::new(), Arc::new(Lock::new(None)));
        let (kill, killed) = oneshot::channel();
        let tasks = TaskTracker::new();
        let (of_watch, status_of_watch) = (ended.clone(), Arc::clone(&status));
        tasks.spawn(async move {
            let waited = tokio::select! {
                waited = child.wait() => waited,
                _ = killed => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            };
            *status_of_watch.lock() = waited.ok();
            of_watch.cancel();
        });
        let process = Self {
            pid,
            ended,
            status,
            kill: Some(kill),
            tasks,
        };
        let log = logs.join(format!("{name}.out"));
        let found = match output {
            Some(output) => timeout(patience, process.listen(output, &log, is_ready)).await,
            None => Ok(None),
        };
        match found {
            Ok(Some(found)) => Ok((process, found)),
            Ok(None) => Err(DriverError::Failed(format!(
                "{name} ended before it was ready{}",
                last_words(&errors)
            ))),
            Err(_) => Err(DriverError::Failed(format!(
                "{name} was not ready within {} s{}",
                patience.as_secs(),
                last_words(&errors)
            ))),
        }
    }

    /// Reads lines until one is ready; the others are read by a task.
    async fn listen<T>(
        &self,
        output: ChildStdout,
        log: &Path,
        mut is_ready: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let mut lines = BufReader::new(output).lines();
        let mut file = tokio::fs::File::create(log).await.ok()?;
        loop {
            let line = lines.next_line().await.ok()??;
            let _ = file.write_all(format!("{line}\n").as_bytes()).await;
            if let Some(found) = is_ready(&line) {
                self.tasks.spawn(async move {
                    while let Ok(Some(line)) = lines.next_line().await {
                        let _ = file.write_all(format!("{line}\n").as_bytes()).await;
                    }
                });
                return Some(found);
            }
        }
    }

    /// Returns its end, if it has ended.
    pub fn status(&self) -> Option<String> {
        let status = *self.status.lock();
        status.map(|status| status.to_string())
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !self.ended.is_cancelled()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it at once, without a word.
    pub async fn kill(self) {
        self.signal(Signal::KILL);
        self.stop().await;
    }

    /// Asks it to end, and makes it if it does not.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        if timeout(END_WITHIN, self.ended.cancelled()).await.is_err() {
            if let Some(kill) = self.kill.take() {
                let _ = kill.send(());
            }
            self.ended.cancelled().await;
        }
        self.tasks.close();
        let _ = timeout(Duration::from_secs(5), self.tasks.wait()).await;
    }
}

/// A process that is held. It goes on when this is dropped.
#[derive(Debug)]
pub struct Hold(Option<Pid>);

impl Hold {
    pub fn of(process: &Process) -> Self {
        process.signal(Signal::STOP);
        Self(i32::try_from(process.pid).ok().and_then(Pid::from_raw))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// The last line of a file that says something, behind a colon.
pub(crate) fn last_words(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or_else(String::new, |line| format!(": {}", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_process_is_ready_when_it_says_so_and_ends_when_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let command = shell("echo one; echo listening on 5; exec sleep 1000");
        let (process, port) = Process::start(command, "it", folder.path(), PATIENCE, |line| {
            line.strip_prefix("listening on ").map(str::to_owned)
        })
        .await
        .unwrap();
        assert_eq!(port, "5");
        assert_eq!(process.status(), None);
        process.stop().await;
        assert!(
            std::fs::read_to_string(folder.path().join("it.out"))
                .unwrap()
                .starts_with("one\n")
        );
    }

    #[tokio::test]
    async fn a_process_that_ends_too_early_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let command = shell("echo no such setting >&2; exit 3");
        let error = Process::start(command, "it", folder.path(), PATIENCE, |_| None::<()>)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "it ended before it was ready: no such setting");
    }

    #[tokio::test]
    async fn a_death_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let command = shell("echo ready; kill -9 $$");
        let (process, ()) = Process::start(command, "it", folder.path(), PATIENCE, |line| {
            (line == "ready").then_some(())
        })
        .await
        .unwrap();
        process.ended.cancelled().await;
        assert!(process.status().unwrap().contains("signal: 9"));
    }
}
