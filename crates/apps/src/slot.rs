//! A task in the broker: its log, its state, and the deliveries of its claim.

use std::sync::Arc;

use stafett_journal::{Append, Frame, Outcome, OwnerEpoch, StateWait};
use stafett_model::{Lock, LogId};
use stafett_store::only_outcome;
use stafett_topics::{Topic, TopicCatalog};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::definition::StoredTask;
use crate::delivery::Delivery;
use crate::error::AppError;
use crate::state::TaskState;
use crate::task::TaskId;

/// A task. Whatever is stored for it is stored in its turn, so claims and commits follow each other.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) task: TaskId,
    pub(crate) log: LogId,
    starts: Vec<u64>,
    turn: Semaphore,
    /// As of the last commit; `None` if it has to be read.
    pub(crate) state: Lock<Option<TaskState>>,
    pub(crate) delivery: Lock<Delivery>,
}

impl Slot {
    pub(crate) fn new(task: TaskId, stored: &StoredTask) -> Arc<Self> {
        Arc::new(Self {
            task,
            log: stored.log,
            starts: stored.starts.clone(),
            turn: Semaphore::new(1),
            state: Lock::default(),
            delivery: Lock::default(),
        })
    }

    /// True if the task begins at the earliest offsets.
    pub(crate) fn begins_at_earliest(&self) -> bool {
        self.starts.is_empty()
    }

    /// Waits for the turn to store something.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.turn.acquire().await;
        turn.expect("a turn is never closed")
    }

    /// Reads the state if it is not in memory. Called in the task's turn.
    pub(crate) async fn load(&self, catalog: &TopicCatalog, topics: &[Arc<Topic>]) -> Result<(), AppError> {
        if self.state.lock().is_some() {
            return Ok(());
        }
        let starts = if self.begins_at_earliest() {
            let start = |topic: &Arc<Topic>| {
                let bounds = catalog.bounds(topic.log(self.task.partition)?)?;
                Some(bounds.start.0)
            };
            topics.iter().map(|topic| start(topic).unwrap_or(0)).collect()
        } else {
            self.starts.clone()
        };
        let loaded = TaskState::load(catalog, self.log, starts).await;
        let state = loaded.map_err(|why| AppError::Unreadable { task: self.task, why })?;
        *self.state.lock() = Some(state);
        Ok(())
    }

    /// Stores the epoch of a claim.
    pub(crate) async fn store_epoch(
        &self,
        catalog: &TopicCatalog,
        epoch: u64,
        wait: StateWait,
    ) -> Result<(), AppError> {
        let owner = OwnerEpoch(epoch);
        let append = Append::state([Frame::Claim { log: self.log, owner }], wait);
        let outcome: Option<Outcome> = catalog.append(vec![append]).await.pop();
        Ok(only_outcome(outcome.as_ref())?)
    }

    /// Uses the state, which was read.
    pub(crate) fn with_state<T>(
        &self,
        use_it: impl FnOnce(&mut TaskState) -> Result<T, AppError>,
    ) -> Result<T, AppError> {
        let mut state = self.state.lock();
        let state = state.as_mut().ok_or_else(|| AppError::Unreadable {
            task: self.task,
            why: "it has to be read again".to_owned(),
        })?;
        use_it(state)
    }
}
