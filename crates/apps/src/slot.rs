//! A task in the broker: its log, its state, and the deliveries of its claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stafett_journal::{Append, Frame, Outcome, OwnerEpoch, StateWait};
use stafett_model::{Lock, LogId};
use stafett_store::only_outcome;
use stafett_topics::{Topic, TopicCatalog};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::app::Parts;
use crate::definition::StoredTask;
use crate::delivery::{Delivery, Fetched};
use crate::entry::Position;
use crate::error::AppError;
use crate::lost_topics::{Inputs, reach};
use crate::state::{StateTotals, TaskState, read_position};
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
    /// Position and totals while the state is not in memory.
    kept: Lock<Option<Known>>,
    pub(crate) delivery: Lock<Delivery>,
    /// Offsets behind everything that was delivered in this run, per input.
    handed: Lock<Vec<u64>>,
    /// The reason why the log could not be read.
    unreadable: Lock<Option<String>>,
    /// Steady time of the last place that was stored without a commit.
    passed_ms: AtomicI64,
}

/// Time between two places of a task that are stored without a commit.
const PASSED_EVERY_MS: i64 = 2000;

/// Facts about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub position: Position,
    /// Absent until the state is read.
    pub totals: Option<StateTotals>,
}

impl Slot {
    pub(crate) fn new(task: TaskId, stored: &StoredTask) -> Arc<Self> {
        Arc::new(Self {
            task,
            log: stored.log,
            starts: stored.starts.clone(),
            turn: Semaphore::new(1),
            state: Lock::default(),
            kept: Lock::default(),
            delivery: Lock::default(),
            handed: Lock::default(),
            unreadable: Lock::default(),
            passed_ms: AtomicI64::new(i64::MIN),
        })
    }

    /// True if the task begins at the earliest offsets.
    pub(crate) fn begins_at_earliest(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns true if a place may be stored again without a commit, and notes that.
    pub(crate) fn may_pass(&self, now_ms: i64) -> bool {
        let last = self.passed_ms.load(Ordering::Relaxed);
        let may = now_ms.saturating_sub(last) >= PASSED_EVERY_MS;
        if may {
            self.passed_ms.store(now_ms, Ordering::Relaxed);
        }
        may
    }

    /// Waits for the turn to store something.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.turn.acquire().await;
        turn.expect("a turn is never closed")
    }

    /// Reads the state if it is not in memory. Called in the task's turn.
    pub(crate) async fn load(&self, parts: &Parts, inputs: &Inputs) -> Result<(), AppError> {
        if self.state.lock().is_some() {
            return Ok(());
        }
        let (catalog, clock) = (&parts.catalog, &parts.clock);
        self.reach_starts(catalog, inputs).await?;
        let loaded = TaskState::load(catalog, clock, self.log, self.starts(catalog, inputs)).await;
        *self.unreadable.lock() = loaded.as_ref().err().cloned();
        let state = loaded.map_err(|why| AppError::Unreadable { task: self.task, why })?;
        *self.state.lock() = Some(state);
        *self.kept.lock() = None;
        Ok(())
    }

    /// Waits until the offsets at which the task begins are known.
    pub(crate) async fn reach_starts(&self, catalog: &TopicCatalog, inputs: &Inputs) -> Result<(), AppError> {
        if !self.begins_at_earliest() {
            return Ok(());
        }
        reach(catalog, inputs.iter().flatten(), self.task.partition).await
    }

    /// Returns the offsets at which the task begins.
    pub(crate) fn starts(&self, catalog: &TopicCatalog, inputs: &Inputs) -> Vec<u64> {
        if !self.begins_at_earliest() {
            return self.starts.clone();
        }
        let start = |topic: &Arc<Topic>| {
            let bounds = catalog.bounds(topic.log(self.task.partition)?)?;
            Some(bounds.start.0)
        };
        inputs
            .iter()
            .map(|topic| topic.as_ref().and_then(start).unwrap_or(0))
            .collect()
    }

    /// Returns the reason why the log could not be read, if the last attempt failed.
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.unreadable.lock().clone()
    }

    /// Drops the state from memory, but for position and totals. False while something is stored: it stays.
    pub(crate) fn drop_state(&self) -> bool {
        let Ok(_turn) = self.turn.try_acquire() else {
            return false;
        };
        let state = self.state.lock().take();
        if let Some(state) = state {
            *self.kept.lock() = Some(Known {
                totals: Some(state.totals()),
                position: state.position,
            });
        }
        true
    }

    /// Returns the facts that are known without reading the log.
    pub(crate) fn known(&self) -> Option<Known> {
        let state = self.state.lock();
        let of_state = state.as_ref().map(|state| Known {
            position: state.position.clone(),
            totals: Some(state.totals()),
        });
        of_state.or_else(|| self.kept.lock().clone())
    }

    /// Reads the position from the end of the log, unless it is known. The state is not read.
    pub(crate) async fn know(&self, catalog: &TopicCatalog, inputs: &Inputs) -> Result<(), String> {
        if self.known().is_some() {
            return Ok(());
        }
        let reached = self.reach_starts(catalog, inputs).await;
        reached.map_err(|why| why.to_string())?;
        let position = read_position(catalog, self.log).await?;
        let position = position.unwrap_or_else(|| Position::start(self.starts(catalog, inputs)));
        let totals = None;
        *self.kept.lock() = Some(Known { position, totals });
        Ok(())
    }

    /// Returns true if the timer of a record's key is at this place.
    pub(crate) fn has_timer_at(&self, key: &[u8], place: u64) -> bool {
        let state = self.state.lock();
        state
            .as_ref()
            .is_some_and(|state| state.is_current_timer(key, place))
    }

    /// Notes a delivery of an input up to an offset. Returns the number of its records that were delivered
    /// before.
    pub(crate) fn note_handed(&self, fetched: &Fetched) -> u64 {
        let mut handed = self.handed.lock();
        if handed.len() < fetched.next.len() {
            handed.resize(fetched.next.len(), 0);
        }
        let (Some(handed), Some(next)) = (handed.get_mut(fetched.input), fetched.next.get(fetched.input))
        else {
            return 0;
        };
        let before = *handed;
        *handed = before.max(*next);
        fetched.records.partition_point(|it| it.record.offset.0 < before) as u64
    }

    /// Returns true if the entry of a record's key is at this place.
    pub(crate) fn has_at(&self, key: &[u8], place: u64) -> bool {
        let state = self.state.lock();
        state.as_ref().is_some_and(|state| state.is_current(key, place))
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
