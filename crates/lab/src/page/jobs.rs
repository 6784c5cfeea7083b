//! Work in steps, such as preparing a machine: each step has its output and its time, and all are kept in a
//! file. While any is under way no run begins, as it would disturb the measurement.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::{Code, Problem};
use stafett_model::Lock;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{Lab, notes};
use crate::run::now_ms;

/// Output of a step that is kept: its end.
const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// State of work or of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobState {
    Running,
    Done,
    Failed,
    /// The process of the page ended before.
    Cut,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Step")]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) state: JobState,
    seconds: f64,
    pub(super) output: String,
}

/// Work in steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Job {
    /// `deploy`, `start`, `stop`, `collect` or `build`.
    pub(super) what: String,
    pub(super) state: JobState,
    /// Milliseconds since 1970.
    begun_ms: i64,
    pub(super) steps: Vec<Step>,
}

/// A program to run, with the bytes of its standard input.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    arguments: Vec<OsString>,
    input: Vec<u8>,
    within: Duration,
}

impl Program {
    pub(super) fn new<A: Into<OsString>>(name: &'static str, arguments: impl IntoIterator<Item = A>) -> Self {
        Self {
            name,
            arguments: arguments.into_iter().map(Into::into).collect(),
            input: Vec::new(),
            within: Duration::from_mins(5),
        }
    }

    pub(super) fn input(self, input: Vec<u8>) -> Self {
        Self { input, ..self }
    }

    pub(super) fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Runs it. Returns its output, or the reason of its failure.
    pub(super) async fn run(self) -> Result<String, String> {
        let limit = self.within;
        let running = tokio::time::timeout(limit, self.output());
        let Ok(ended) = running.await else {
            return Err(format!("it took more than {} s", limit.as_secs()));
        };
        ended
    }

    async fn output(self) -> Result<String, String> {
        let failed = |error| format!("{} cannot be run: {error}", self.name);
        let mut child = Command::new(self.name)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that reads nothing closes its end.
            let _ = stdin.write_all(&self.input).await;
        }
        let output = child.wait_with_output().await.map_err(failed)?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        let said = end_of(said.trim());
        if output.status.success() {
            return Ok(said);
        }
        Err(format!("{said}\n{} ended with {}", self.name, output.status)
            .trim()
            .to_owned())
    }
}

fn end_of(text: &str) -> String {
    let mut from = text.len().saturating_sub(OUTPUT_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().to_owned()
}

/// All work under way, by its file.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    active: Lock<BTreeSet<PathBuf>>,
}

impl Jobs {
    pub(super) fn is_busy(&self) -> bool {
        !self.active.lock().is_empty()
    }

    /// Reads the last work that a file has.
    pub(super) fn read(&self, file: &FilePath) -> Option<Job> {
        let mut job: Job = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        if job.state == JobState::Running && !self.active.lock().contains(file) {
            job.state = JobState::Cut;
            for step in &mut job.steps {
                if step.state == JobState::Running {
                    step.state = JobState::Cut;
                }
            }
        }
        Some(job)
    }
}

/// Work under way. It has ended once this is dropped.
#[derive(Debug)]
pub(super) struct Steps {
    jobs: Arc<Jobs>,
    file: PathBuf,
    job: Job,
}

impl Steps {
    /// Runs a step. Its failure is noted, and ends the work.
    pub(super) async fn step(
        &mut self,
        name: &str,
        work: impl Future<Output = Result<String, String>>,
    ) -> Result<String, String> {
        let at = self.job.steps.len();
        self.job.steps.push(Step {
            name: name.to_owned(),
            state: JobState::Running,
            seconds: 0.0,
            output: String::new(),
        });
        self.keep();
        let begun = Instant::now();
        let ended = work.await;
        if let Some(step) = self.job.steps.get_mut(at) {
            step.seconds = begun.elapsed().as_secs_f64();
            let (state, output) = match &ended {
                Ok(said) => (JobState::Done, said),
                Err(why) => (JobState::Failed, why),
            };
            step.state = state;
            step.output.clone_from(output);
        }
        self.keep();
        ended
    }

    /// Notes the end.
    pub(super) fn end(mut self, ended: &Result<(), String>) {
        self.job.state = match ended {
            Ok(()) => JobState::Done,
            Err(_) => JobState::Failed,
        };
        // Other work may begin as soon as the end is seen.
        let jobs = self.jobs.clone();
        let mut active = jobs.active.lock();
        self.keep();
        active.remove(&self.file);
    }

    fn keep(&self) {
        // Without space the steps are shown no more, and go on.
        if let Ok(text) = serde_json::to_vec_pretty(&self.job) {
            let _ = notes::put(&self.file, &text);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.jobs.active.lock().remove(&self.file);
    }
}

impl Lab {
    /// Begins work whose steps a file keeps. Refused while a run, or other work of the file, is under way.
    pub(super) async fn begin(&self, file: PathBuf, what: &str) -> Result<Steps, Problem> {
        if self.queue.has_started() || self.under_way().await.is_some() {
            let why = "a run is under way, which this would disturb";
            return Err(Problem::new(Code::InUse, why));
        }
        if !self.jobs.active.lock().insert(file.clone()) {
            return Err(Problem::new(Code::InUse, "it is worked at already"));
        }
        let steps = Steps {
            jobs: Arc::clone(&self.jobs),
            file,
            job: Job {
                what: what.to_owned(),
                state: JobState::Running,
                begun_ms: now_ms(),
                steps: Vec::new(),
            },
        };
        steps.keep();
        Ok(steps)
    }

    /// Does work beside the answers to requests, up to the end of the page's process.
    pub(super) fn do_beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_says_its_output_or_why_it_failed() {
        let shell = |text: &str| Program::new("sh", ["-c", text]);
        assert_eq!(shell("echo out; echo err >&2").run().await.unwrap(), "out\nerr");
        assert_eq!(
            shell("cat").input(b"given".to_vec()).run().await.unwrap(),
            "given"
        );
        let why = shell("echo broken; exit 3").run().await.unwrap_err();
        assert!(why.starts_with("broken\nsh ended with"), "{why}");
        let why = Program::new("no-such-program", ["x"]).run().await.unwrap_err();
        assert!(why.starts_with("no-such-program cannot be run"), "{why}");
        let late = shell("sleep 60").within(Duration::from_millis(1)).run().await;
        assert_eq!(late.unwrap_err(), "it took more than 0 s");
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let text = format!("{}end", "ä".repeat(OUTPUT_BYTES_MAX));
        let end = end_of(&text);
        assert!(end.len() <= OUTPUT_BYTES_MAX && end.ends_with("end"));
    }
}
