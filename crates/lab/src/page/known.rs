//! Runs that were looked at before: files are read again if they changed only.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use stafett_model::Lock;

use crate::results::{Environment, Folder, OutcomeKind, Run, Status};

/// Runs that were looked at. Files are read again if they changed only, as the page asks every second, also
/// while a run measures.
#[derive(Debug, Default)]
pub(super) struct Known(Lock<HashMap<String, KnownRun>>);

#[derive(Debug, Default)]
struct KnownRun {
    /// `run.json` as it was read, with the time and size of the file.
    read: Option<(Stamp, Arc<Brief>)>,
    /// Outcomes of points that are measured, by number.
    outcomes: HashMap<u32, OutcomeKind>,
}

type Stamp = (Option<SystemTime>, u64);

/// Parts of a run that a list shows.
#[derive(Debug)]
pub(super) struct Brief {
    pub(super) status: Status,
    pub(super) name: String,
    pub(super) question: String,
    pub(super) systems: Vec<String>,
    pub(super) started_ms: i64,
    pub(super) ended_ms: Option<i64>,
    pub(super) scale: f64,
    pub(super) command: String,
    pub(super) reason: Option<String>,
    pub(super) environment: Environment,
    /// Numbers of the points.
    pub(super) numbers: Vec<u32>,
}

impl Brief {
    fn of(run: Run) -> Self {
        Self {
            status: run.status,
            name: run.name,
            question: run.experiment.question,
            systems: run.asked.map_or(run.experiment.systems, |asked| asked.systems),
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
            scale: run.scale,
            command: run.command,
            reason: run.reason,
            environment: run.environment,
            numbers: run.order.iter().map(|planned| planned.number).collect(),
        }
    }
}

impl Known {
    /// Returns the run in a folder. `None` if none has begun there.
    pub(super) fn read(&self, id: &str, folder: &Path) -> Option<Arc<Brief>> {
        let folder = Folder::new(folder);
        let metadata = folder.run_path().metadata().ok()?;
        let stamp = (metadata.modified().ok(), metadata.len());
        let mut known = self.0.lock();
        let known = known.entry(id.to_owned()).or_default();
        if let Some((then, run)) = &known.read
            && *then == stamp
        {
            return Some(Arc::clone(run));
        }
        let run = Arc::new(Brief::of(folder.read_run().ok()?));
        known.read = Some((stamp, Arc::clone(&run)));
        Some(run)
    }

    /// Returns the outcomes of the points that are measured. Each is read once.
    pub(super) fn outcomes(&self, id: &str, run: &Brief, folder: &Folder) -> Vec<OutcomeKind> {
        let mut known = self.0.lock();
        let outcomes = &mut known.entry(id.to_owned()).or_default().outcomes;
        if outcomes.len() < run.numbers.len() {
            for number in &run.numbers {
                if !outcomes.contains_key(number)
                    && folder.has_point(*number)
                    && let Ok(point) = folder.read_point(*number)
                {
                    outcomes.insert(*number, point.outcome.kind);
                }
            }
        }
        outcomes.values().copied().collect()
    }

    pub(super) fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }
}
