//! Part of a task's state that decides about its deliveries: finished keys, timers, and failures.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_model::StoredRecord;

use crate::delivery::Told;
use crate::entry::Position;
use crate::failure::{FailedTimer, Failure};
use crate::state::TaskState;

/// Part of the state that a fetch needs.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    pub(crate) position: Position,
    done: Arc<HashMap<Bytes, Box<[u64]>>>,
    /// Time of the earliest stored timer that was not delivered.
    pub(crate) next_timer: Option<i64>,
    /// Record that fails and is not delivered yet, per input; all records wait for a timer that fails.
    holds: Vec<Option<u64>>,
    /// True while a timer that fails is not delivered.
    pub(crate) holds_timers: bool,
    /// A timer that is due and delivered alone. Before it is due, records bring its time.
    pub(crate) lone_timer: Option<FailedTimer>,
    /// Records before this offset are delivered alone, per input.
    alone_before: Vec<u64>,
}

impl Mark {
    pub(crate) fn of(state: &TaskState, now_ms: i64, stops: bool, time: i64) -> Self {
        let inputs = 0..u8::try_from(state.position.next.len()).unwrap_or(u8::MAX);
        let failures = state.failures();
        let is_held = |failure: &Failure| failure.is_held(now_ms, stops);
        let holds_timers = failures.of_timers().any(|(_, failure)| is_held(failure));
        let mut timers = failures.of_timers().filter(|_| !holds_timers);
        let lone_timer = timers.find(|(timer, failure)| failure.comes_alone() && timer.due <= time);
        let hold = |input| {
            if holds_timers || lone_timer.is_some() {
                return Some(0);
            }
            let held = failures.of_input(input).filter(|(_, failure)| is_held(failure));
            held.map(|(_, failure)| failure.offset).min()
        };
        let alone_before = |input| {
            let before = failures.of_input(input).map(|(_, failure)| failure.alone_before);
            before.max().unwrap_or(0)
        };
        Self {
            position: state.position.clone(),
            done: Arc::clone(state.done().keys()),
            next_timer: None,
            holds: inputs.clone().map(hold).collect(),
            holds_timers,
            lone_timer: lone_timer.map(|(timer, _)| timer.clone()),
            alone_before: inputs.map(alone_before).collect(),
        }
    }

    /// Returns the part that says which records were done.
    pub(crate) fn of_done(state: &TaskState) -> Self {
        Self {
            position: state.position.clone(),
            done: Arc::clone(state.done().keys()),
            ..Self::default()
        }
    }

    /// True for a record that is left out: it was passed on, or done by a slice that is ahead.
    pub(crate) fn is_left(&self, input: usize, record: &StoredRecord) -> bool {
        self.is_done(input, record) || self.is_passed(input, record)
    }

    /// Takes timers that are delivered now.
    pub(crate) fn told(self, state: &TaskState, told: &Told) -> Self {
        let next_timer = state.next_timer_but(told);
        Self { next_timer, ..self }
    }

    /// True for a record that was passed on already.
    fn is_done(&self, input: usize, record: &StoredRecord) -> bool {
        let Some(key) = record.key.as_ref().filter(|_| self.is_before(input, record)) else {
            return false;
        };
        let behind = self.done.get(key).and_then(|behind| behind.get(input));
        behind.is_some_and(|behind| record.offset.0 < *behind)
    }

    /// Returns the timers that a fetch delivers: due, and not `told`.
    pub(crate) fn due(&self, state: &TaskState, time: i64, told: &Told, max: usize) -> Vec<(i64, u64)> {
        if self.holds_timers {
            return Vec::new();
        }
        let Some(FailedTimer { key, name, .. }) = &self.lone_timer else {
            return state.due(time, told, max);
        };
        let lone = state.timer_place(key, name);
        let is_due = |timer: &(i64, u64)| timer.0 <= time && !told.contains_key(timer);
        lone.filter(is_due).into_iter().collect()
    }

    /// True if records wait for the next attempt at one that fails.
    pub(crate) fn holds_any(&self) -> bool {
        self.holds.iter().any(Option::is_some) || self.delivers_alone()
    }

    pub(crate) fn delivers_alone(&self) -> bool {
        self.alone_before.iter().any(|before| *before > 0)
    }

    /// True for a record that was not done, and that no other comes with.
    pub(crate) fn is_alone(&self, input: usize, offset: u64) -> bool {
        let from = self.position.next.get(input).copied().unwrap_or(0);
        let before = self.alone_before.get(input).copied().unwrap_or(0);
        (from..before).contains(&offset)
    }

    /// Returns the offset that no delivery of an input reaches now.
    pub(crate) fn hold(&self, input: usize) -> u64 {
        self.holds.get(input).copied().flatten().unwrap_or(u64::MAX)
    }

    /// True for a record before the stored position, which was done and is read again.
    pub(crate) fn is_before(&self, input: usize, record: &StoredRecord) -> bool {
        record.offset.0 < self.position.next_for(input, record.key.as_deref())
    }

    /// True for a record of a slice that is ahead.
    fn is_passed(&self, input: usize, record: &StoredRecord) -> bool {
        let key = record.key.as_deref();
        self.position.is_passed(input, record.offset.0, key)
    }

    pub(crate) fn is_finished(&self, record: &StoredRecord) -> bool {
        record.key.as_ref().is_some_and(|key| self.done.contains_key(key))
    }
}
