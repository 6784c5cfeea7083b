//! State and counters of a sink in this process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_model::Lock;

use crate::flush::Flushed;
use crate::gather::{Batch, Cause};
use crate::target::{Place, TargetError};

/// State of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// The target is away, and tried again.
    Retrying,
    Paused,
    /// Something has to be mended first.
    Stopped,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

const CAUSES: [Cause; 5] = [Cause::Full, Cause::Bytes, Cause::Time, Cause::Stop, Cause::Begun];
const STATES: [State; 4] = [State::Running, State::Retrying, State::Paused, State::Stopped];

/// Counters of a sink in this process. Updated once per flush.
#[derive(Debug)]
pub struct Status {
    sink: String,
    state: Lock<(State, String)>,
    rows: AtomicU64,
    bytes: AtomicU64,
    poison: AtomicU64,
    dropped: AtomicU64,
    expression_errors: AtomicU64,
    limited_ms: AtomicU64,
    flush_ms: AtomicU64,
    flushes: [AtomicU64; CAUSES.len()],
    retries: AtomicU64,
    stops: AtomicU64,
    fenced: AtomicU64,
    places: Lock<BTreeMap<Place, Progress>>,
    /// Partitions that do not go on, each with its state and the reason.
    troubles: Lock<BTreeMap<Place, (State, String)>>,
}

/// Progress of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Next offset that the target does not have.
    pub next: u64,
    /// Offset behind the last record, as it was read last.
    pub end: u64,
}

/// State and counters at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub state: State,
    /// Reason of the state.
    pub why: String,
    pub rows: u64,
    pub bytes: u64,
    pub poison: u64,
    pub dropped: u64,
    pub expression_errors: u64,
    pub flush_ms: u64,
    pub limited_ms: u64,
    /// By the words of causes and classes.
    pub flushes: BTreeMap<&'static str, u64>,
    pub retries: BTreeMap<&'static str, u64>,
    pub fenced: u64,
    pub places: BTreeMap<Place, Progress>,
}

impl Status {
    pub fn new(sink: &str) -> Self {
        Self {
            sink: sink.to_owned(),
            state: Lock::new((State::Running, String::new())),
            rows: AtomicU64::default(),
            bytes: AtomicU64::default(),
            poison: AtomicU64::default(),
            dropped: AtomicU64::default(),
            expression_errors: AtomicU64::default(),
            limited_ms: AtomicU64::default(),
            flush_ms: AtomicU64::default(),
            flushes: Default::default(),
            retries: AtomicU64::default(),
            stops: AtomicU64::default(),
            fenced: AtomicU64::default(),
            places: Lock::default(),
            troubles: Lock::default(),
        }
    }

    /// Returns all of it, as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (state, why) = self.state();
        let flushes = CAUSES.iter().zip(&self.flushes);
        Snapshot {
            state,
            why,
            rows: value(&self.rows),
            bytes: value(&self.bytes),
            poison: value(&self.poison),
            dropped: value(&self.dropped),
            expression_errors: value(&self.expression_errors),
            flush_ms: value(&self.flush_ms),
            limited_ms: value(&self.limited_ms),
            flushes: flushes
                .map(|(cause, counter)| (cause.word(), value(counter)))
                .collect(),
            retries: [("retry", value(&self.retries)), ("stop", value(&self.stops))].into(),
            fenced: value(&self.fenced),
            places: self.places.lock().clone(),
        }
    }

    /// Notes that the target is behind an offset.
    pub(crate) fn at(&self, place: &Place, next: u64) {
        let mut places = self.places.lock();
        if let Some(progress) = places.get_mut(place) {
            progress.next = next;
            progress.end = progress.end.max(next);
        } else {
            places.insert(place.clone(), Progress { next, end: next });
        }
    }

    /// Notes position and end of a partition that does not go on.
    pub(crate) fn rests_at(&self, place: &Place, next: u64, end: u64) {
        let progress = Progress { next, end };
        self.places.lock().insert(place.clone(), progress);
    }

    /// Notes the end of a partition, as it was read.
    pub(crate) fn ends(&self, place: &Place, end: u64) {
        if let Some(progress) = self.places.lock().get_mut(place) {
            progress.end = progress.end.max(end);
        }
    }

    /// Forgets a partition that another worker has.
    pub(crate) fn forget(&self, place: &Place) {
        self.places.lock().remove(place);
        self.troubles.lock().remove(place);
    }

    /// Forgets all partitions: a session has others, and does not end each of its own.
    pub(crate) fn forget_all(&self) {
        self.places.lock().clear();
        self.troubles.lock().clear();
    }

    /// Returns the state and its reason: that of the sink, or of the partition that is worst off.
    pub fn state(&self) -> (State, String) {
        let state = self.state.lock().clone();
        if state.0 != State::Running {
            return state;
        }
        let troubles = self.troubles.lock();
        let stopped = troubles.values().find(|(state, _)| *state == State::Stopped);
        let worst = stopped.or_else(|| troubles.values().next());
        worst.cloned().unwrap_or(state)
    }

    /// Notes that a partition does not go on. Returns true if state or reason are other ones.
    pub(crate) fn trouble(&self, place: &Place, state: State, why: &str) -> bool {
        let found = (state, why.to_owned());
        self.troubles.lock().insert(place.clone(), found.clone()) != Some(found)
    }

    /// Notes that a partition goes on. Returns true if it did not.
    pub(crate) fn goes_on(&self, place: &Place) -> bool {
        self.troubles.lock().remove(place).is_some()
    }

    /// Notes a state. Returns true if it or its reason is another one.
    pub fn enter(&self, state: State, why: &str) -> bool {
        let mut known = self.state.lock();
        let changes = known.0 != state || known.1 != why;
        if changes {
            *known = (state, why.to_owned());
        }
        changes
    }

    /// Notes that the sink as a whole works, unless it is paused.
    pub(crate) fn works(&self) {
        let mut known = self.state.lock();
        if known.0 != State::Paused {
            *known = (State::Running, String::new());
        }
    }

    pub(crate) fn flushed(&self, batch: &Batch, flushed: &Flushed, took_ms: u64) {
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        add(&self.rows, flushed.rows);
        add(&self.bytes, batch.rows.bytes() as u64);
        add(&self.poison, flushed.poison);
        add(&self.dropped, batch.dropped.records);
        add(&self.expression_errors, batch.dropped.failed);
        add(&self.flush_ms, took_ms);
        let cause = CAUSES.iter().position(|cause| *cause == batch.cause);
        if let Some(counter) = cause.and_then(|cause| self.flushes.get(cause)) {
            add(counter, 1);
        }
    }

    pub(crate) fn failed(&self, why: &TargetError) {
        let counter = match why {
            TargetError::Retry(_) => &self.retries,
            TargetError::Stop(_) | TargetError::Poison { .. } | TargetError::MadeAgain(_) => &self.stops,
            TargetError::Fenced(_) => &self.fenced,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn limited(&self, wait_ms: u64) {
        self.limited_ms.fetch_add(wait_ms, Ordering::Relaxed);
    }

    /// Returns the rows that were written.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Writes all counters in Prometheus' text format.
    pub fn write_metrics(&self, out: &mut String) {
        let sink = &self.sink;
        let mut line = |name: &str, labels: &str, value: u64| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "stafett_sink_{name}{{sink=\"{sink}\"{labels}}} {value}");
        };
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        line("rows_total", "", value(&self.rows));
        line("bytes_total", "", value(&self.bytes));
        line("poison_total", "", value(&self.poison));
        line("dropped_total", "", value(&self.dropped));
        line("expression_errors_total", "", value(&self.expression_errors));
        line("limited_ms_total", "", value(&self.limited_ms));
        line("flush_ms_total", "", value(&self.flush_ms));
        for (cause, counter) in CAUSES.iter().zip(&self.flushes) {
            line(
                "flushes_total",
                &format!(",cause=\"{}\"", cause.word()),
                value(counter),
            );
        }
        line("retries_total", ",class=\"retry\"", value(&self.retries));
        line("retries_total", ",class=\"stop\"", value(&self.stops));
        line("fenced_total", "", value(&self.fenced));
        for (place, progress) in self.places.lock().iter() {
            let labels = format!(",topic=\"{}\",partition=\"{}\"", place.topic, place.partition);
            line("lag_records", &labels, progress.end.saturating_sub(progress.next));
        }
        let (now, _) = self.state();
        for state in STATES {
            line(
                "state",
                &format!(",state=\"{}\"", state.word()),
                u64::from(state == now),
            );
        }
    }
}
