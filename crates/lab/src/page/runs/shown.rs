//! A run as it is shown: its state, its points so far, and its notes.

use std::fs;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stafett_http::{Code, Problem};

use crate::page::known::Brief;
use crate::page::notes::Notes;
use crate::page::{Lab, events};
use crate::results::{Environment, Folder, OutcomeKind, Run, Status};
use crate::run::live;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum RunState {
    Queued,
    /// Its program is up, and has measured nothing yet.
    Starting,
    Running,
    Finished,
    /// Ended by its user, or its program was killed. It can be resumed.
    Interrupted,
    /// Ended by an error, such as a full disk. It can be resumed.
    Stopped,
    /// Its program took the request for wrong.
    Refused,
}

impl RunState {
    pub(super) fn name(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(in super::super) struct Shown {
    pub(super) id: String,
    pub(super) state: RunState,
    pub(super) experiment: String,
    question: String,
    systems: Vec<String>,
    /// Milliseconds since 1970.
    pub(super) begun: Option<i64>,
    ended: Option<i64>,
    points: usize,
    done: usize,
    failed: usize,
    lost: usize,
    skipped: usize,
    scale: Option<f64>,
    /// Command that repeats the run.
    command: String,
    /// Reason of an early end.
    reason: Option<String>,
    /// Estimated rest, in s.
    left_s: Option<f64>,
    /// The point under way.
    now: Option<Value>,
    pub(super) notes: Notes,
    #[schemars(with = "Option<Value>")]
    environment: Option<Environment>,
}

impl Shown {
    fn count(&mut self, outcomes: &[OutcomeKind]) {
        self.done = outcomes.len();
        for outcome in outcomes {
            match outcome {
                OutcomeKind::Done => {}
                OutcomeKind::Lost => self.lost += 1,
                OutcomeKind::Failed | OutcomeKind::Refused => self.failed += 1,
                OutcomeKind::Skipped => self.skipped += 1,
            }
        }
    }
}

pub(super) fn of_run(id: &str, state: RunState, run: Option<&Brief>, notes: Notes) -> Shown {
    let is_over = !matches!(state, RunState::Running | RunState::Starting | RunState::Queued);
    Shown {
        id: id.to_owned(),
        state,
        experiment: run.map(|run| run.name.clone()).unwrap_or_default(),
        question: run.map(|run| run.question.clone()).unwrap_or_default(),
        systems: run.map(|run| run.systems.clone()).unwrap_or_default(),
        begun: run.map(|run| run.started_ms),
        ended: run.and_then(|run| run.ended_ms).filter(|_| is_over),
        points: run.map_or(0, |run| run.numbers.len()),
        done: 0,
        failed: 0,
        lost: 0,
        skipped: 0,
        scale: run.map(|run| run.scale),
        command: run.map(|run| run.command.clone()).unwrap_or_default(),
        reason: run
            .and_then(|run| run.reason.clone())
            .or_else(|| notes.refused.clone())
            .filter(|_| is_over),
        left_s: None,
        now: None,
        notes,
        environment: run.map(|run| run.environment.clone()),
    }
}

impl Lab {
    /// Ids of all runs in the folder, those included that wait.
    pub(in super::super) fn run_ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.settings.runs).into_iter().flatten();
        let names = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_run = crate::page::checked_name(&name).is_ok() && entry.path().is_dir();
            is_run.then_some(name)
        });
        names.collect()
    }

    pub(in super::super) fn run_of(&self, id: &str) -> Result<(Run, Folder), Problem> {
        let folder = Folder::new(self.known_run(id)?);
        let run = folder
            .read_run()
            .map_err(|error| Problem::new(Code::NoSuchRun, error))?;
        Ok((run, folder))
    }

    pub(super) async fn run_shown(&self, id: &str) -> Result<Shown, Problem> {
        let folder = self.known_run(id)?;
        let notes = Notes::read(&folder);
        let waiting = self.queue.waiting().into_iter().find(|it| it.id == id);
        // In this order: a run that begins meanwhile is alive.
        let is_starting = self.queue.is_starting(id, &folder);
        // Behind its program, logs of other machines are brought.
        let is_alive = live::is_alive(&folder).await || self.queue.is_started(id);
        // Read last: a run that has just ended is no interrupted one.
        let run = self.runs.read(id, &folder);
        let state = match &run {
            _ if waiting.is_some() => RunState::Queued,
            _ if is_starting => RunState::Starting,
            _ if is_alive => RunState::Running,
            None => RunState::Refused,
            Some(run) => match run.status {
                Status::Finished => RunState::Finished,
                Status::Running | Status::Interrupted => RunState::Interrupted,
                Status::Stopped => RunState::Stopped,
            },
        };
        let mut shown = of_run(id, state, run.as_deref(), notes);
        if let Some(waiting) = waiting {
            shown.experiment = waiting.experiment;
        }
        if let Some(run) = &run {
            let outcomes = self.runs.outcomes(id, run, &Folder::new(&folder));
            shown.count(&outcomes);
        }
        if state == RunState::Running {
            let now = events::now(&folder);
            shown.left_s = now.as_ref().and_then(|now| now.get("left_s")?.as_f64());
            shown.now = now;
        }
        Ok(shown)
    }
}
