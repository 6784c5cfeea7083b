//! State and counters of a sink in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stafett_model::Lock;

use crate::flush::Flushed;
use crate::gather::{Batch, Cause};
use crate::lookup::{Table, TableCounts};
use crate::query::Cache;
use crate::target::{Place, TargetError};
use crate::transform::Step;

/// State of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// The target is away, and tried again.
    Retrying,
    Paused,
    /// It is a time of day in which nothing is written.
    Quiet,
    /// Something has to be mended first.
    Stopped,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Quiet => "quiet",
            Self::Stopped => "stopped",
        }
    }
}

/// Reason of a wait before a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The operator's bound of rows or bytes.
    Rate,
    /// Other flushes, as many as the target bears; or a pause.
    Turn,
    /// A time of day in which nothing is written.
    Quiet,
}

const LIMITS: [&str; 3] = ["rate", "turn", "quiet"];
const CAUSES: [Cause; 5] = [Cause::Full, Cause::Bytes, Cause::Time, Cause::Stop, Cause::Begun];

/// Upper bounds of the classes by which flushes are counted by their time, in ms. The last class has none.
pub const FLUSH_MS_BOUNDS: [u64; 7] = [5, 25, 100, 500, 2500, 10_000, 60_000];

/// Counters of a sink in this process. Updated once per flush.
#[derive(Debug)]
pub struct Status {
    state: Lock<(State, String)>,
    is_quiet: AtomicBool,
    rows: AtomicU64,
    bytes: AtomicU64,
    poison: Lock<BTreeMap<&'static str, u64>>,
    dropped: AtomicU64,
    expression_errors: AtomicU64,
    /// Waits by [`Limit`].
    limited_ms: [AtomicU64; LIMITS.len()],
    /// Flushes at a time.
    parallel: AtomicU64,
    flush_ms: AtomicU64,
    flushes: [AtomicU64; CAUSES.len()],
    flush_times: [AtomicU64; FLUSH_MS_BOUNDS.len() + 1],
    retries: AtomicU64,
    stops: AtomicU64,
    fenced: AtomicU64,
    tables: Lock<Vec<Arc<Table>>>,
    caches: Lock<Vec<Arc<Cache>>>,
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
    /// Time stamp of the first record that was read and that the target does not have.
    pub oldest_ms: Option<i64>,
    /// Time stamp of the newest record that this process has brought into the target.
    pub newest_ms: Option<i64>,
}

/// State and counters at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub state: State,
    /// Reason of the state.
    pub why: String,
    pub rows: u64,
    pub bytes: u64,
    /// By class.
    pub poison: BTreeMap<&'static str, u64>,
    pub dropped: u64,
    pub expression_errors: u64,
    pub flush_ms: u64,
    /// By reason.
    pub limited_ms: BTreeMap<&'static str, u64>,
    /// Flushes at a time; 0 before the first one.
    pub parallel: u64,
    /// By the words of causes and classes.
    pub flushes: BTreeMap<&'static str, u64>,
    pub retries: BTreeMap<&'static str, u64>,
    /// By the classes of [`FLUSH_MS_BOUNDS`].
    pub flush_times: Vec<u64>,
    pub fenced: u64,
    /// Those of all look-ups together; `None` without any.
    pub tables: Option<TableCounts>,
    pub places: BTreeMap<Place, Progress>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            state: Lock::new((State::Running, String::new())),
            is_quiet: AtomicBool::default(),
            rows: AtomicU64::default(),
            bytes: AtomicU64::default(),
            poison: Lock::default(),
            dropped: AtomicU64::default(),
            expression_errors: AtomicU64::default(),
            limited_ms: Default::default(),
            parallel: AtomicU64::default(),
            flush_ms: AtomicU64::default(),
            flushes: Default::default(),
            flush_times: Default::default(),
            retries: AtomicU64::default(),
            stops: AtomicU64::default(),
            fenced: AtomicU64::default(),
            tables: Lock::default(),
            caches: Lock::default(),
            places: Lock::default(),
            troubles: Lock::default(),
        }
    }
}

impl Status {
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
            poison: self.poison.lock().clone(),
            dropped: value(&self.dropped),
            expression_errors: value(&self.expression_errors),
            flush_ms: value(&self.flush_ms),
            limited_ms: LIMITS
                .into_iter()
                .zip(self.limited_ms.iter().map(value))
                .collect(),
            parallel: value(&self.parallel),
            flushes: flushes
                .map(|(cause, counter)| (cause.word(), value(counter)))
                .collect(),
            retries: [("retry", value(&self.retries)), ("stop", value(&self.stops))].into(),
            flush_times: self.flush_times.iter().map(value).collect(),
            fenced: value(&self.fenced),
            tables: self.tables(),
            places: self.places.lock().clone(),
        }
    }

    /// Notes the tables that steps look up in.
    pub(crate) fn set_tables(&self, steps: &[Step]) {
        let lookups = steps.iter().filter_map(Step::lookup);
        *self.tables.lock() = lookups.map(|lookup| Arc::clone(&lookup.table)).collect();
        let queries = steps.iter().filter_map(Step::query);
        *self.caches.lock() = queries.map(|query| Arc::clone(&query.cache)).collect();
    }

    fn tables(&self) -> Option<TableCounts> {
        let tables: Vec<_> = self.tables.lock().iter().map(|table| table.counts()).collect();
        let caches: Vec<_> = self.caches.lock().iter().map(|cache| cache.counts()).collect();
        let counts = tables.into_iter().chain(caches);
        counts.reduce(|one, other| TableCounts {
            rows: one.rows + other.rows,
            bytes: one.bytes + other.bytes,
            found: one.found + other.found,
            missing: one.missing + other.missing,
        })
    }

    /// Notes that the target is behind an offset.
    pub(crate) fn at(&self, place: &Place, next: u64) {
        let mut places = self.places.lock();
        if let Some(progress) = places.get_mut(place) {
            progress.next = next;
            progress.end = progress.end.max(next);
        } else {
            let progress = Progress {
                next,
                end: next,
                oldest_ms: None,
                newest_ms: None,
            };
            places.insert(place.clone(), progress);
        }
    }

    /// Notes position and end of a partition that does not go on.
    pub(crate) fn rests_at(&self, place: &Place, next: u64, end: u64) {
        let progress = Progress {
            next,
            end,
            oldest_ms: None,
            newest_ms: None,
        };
        self.places.lock().insert(place.clone(), progress);
    }

    /// Notes the time stamp of the first record that waits for the target.
    pub(crate) fn waits_since(&self, place: &Place, oldest_ms: Option<i64>) {
        if let Some(progress) = self.places.lock().get_mut(place) {
            progress.oldest_ms = oldest_ms;
        }
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
        if worst.is_none() && self.is_quiet.load(Ordering::Relaxed) {
            return (State::Quiet, "nothing is written at this time of day".to_owned());
        }
        worst.cloned().unwrap_or(state)
    }

    /// Notes whether it is a quiet time of day.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Notes that a partition does not go on. Returns true if state or reason are other ones.
    pub(crate) fn trouble(&self, place: &Place, state: State, why: &str) -> bool {
        let found = (state, why.to_owned());
        self.troubles.lock().insert(place.clone(), found.clone()) != Some(found)
    }

    /// Returns true if no partition goes on.
    pub(crate) fn is_stuck(&self) -> bool {
        let (places, troubles) = (self.places.lock(), self.troubles.lock());
        !troubles.is_empty() && places.keys().all(|place| troubles.contains_key(place))
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
        for (class, count) in &flushed.poison {
            *self.poison.lock().entry(class).or_default() += count;
        }
        if let Some(progress) = self.places.lock().get_mut(&batch.place) {
            progress.newest_ms = progress.newest_ms.max(batch.newest_ms);
        }
        add(&self.dropped, batch.dropped.records);
        add(&self.expression_errors, batch.dropped.failed);
        add(&self.flush_ms, took_ms);
        let class = FLUSH_MS_BOUNDS.partition_point(|bound| *bound < took_ms);
        if let Some(counter) = self.flush_times.get(class) {
            add(counter, 1);
        }
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

    pub(crate) fn limited(&self, limit: Limit, wait_ms: u64) {
        if let Some(counter) = self.limited_ms.get(limit as usize) {
            counter.fetch_add(wait_ms, Ordering::Relaxed);
        }
    }

    pub(crate) fn parallel(&self, flushes: usize) {
        self.parallel.store(flushes as u64, Ordering::Relaxed);
    }

    /// Returns the rows that were written.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computed::tests::place_and_record;
    use crate::convert::Converter;
    use crate::definition::Definition;
    use crate::gather::Gather;

    #[test]
    fn a_flush_counts_its_poison_by_class_and_tells_the_newest_time() {
        let text = "[sink.a]\nfrom = \"t\"\nto = \"topic\"\ntopic = \"u\"\n";
        let definition = Definition::parse(text).unwrap().remove(0);
        let (place, mut record) = place_and_record();
        record.timestamp = 5000;
        let (from, columns) = (record.offset.0, definition.columns.clone());
        let mut gather = Gather::new(place.clone(), definition.flush, columns.len(), from, None, 0);
        let mut converter = Converter::new(columns, definition.steps.clone(), definition.on_unknown);
        assert!(gather.push(&record, &mut converter));
        let status = Status::default();
        status.at(&place, from);
        let flushed = Flushed {
            poison: [("type", 2)].into(),
            ..Flushed::default()
        };
        for batch in [gather.take(Cause::Full, 0), gather.take(Cause::Stop, 0)] {
            status.flushed(&batch, &flushed, 1);
        }
        status.limited(Limit::Quiet, 7);
        let shown = status.snapshot();
        assert_eq!(shown.places.get(&place).unwrap().newest_ms, Some(5000));
        assert_eq!(shown.poison, [("type", 4)].into());
        assert_eq!(shown.limited_ms, [("quiet", 7), ("rate", 0), ("turn", 0)].into());
    }

    #[test]
    fn a_sink_is_stuck_once_no_partition_goes_on() {
        let status = Status::default();
        let places = [0, 1].map(|partition| Place {
            topic: "t".to_owned(),
            partition,
        });
        assert!(!status.is_stuck());
        status.at(&places[0], 0);
        status.trouble(&places[1], State::Retrying, "away");
        assert!(!status.is_stuck(), "one goes on");
        status.trouble(&places[0], State::Stopped, "refused");
        assert!(status.is_stuck());
        status.goes_on(&places[1]);
        status.at(&places[1], 0);
        assert!(!status.is_stuck());
    }

    #[test]
    fn a_quiet_sink_says_so_unless_something_is_wrong() {
        let status = Status::default();
        let place = Place {
            topic: "t".to_owned(),
            partition: 0,
        };
        status.set_quiet(true);
        assert_eq!(status.state().0, State::Quiet);
        status.trouble(&place, State::Retrying, "away");
        assert_eq!(status.state().0, State::Retrying);
        status.goes_on(&place);
        status.enter(State::Paused, "by hand");
        assert_eq!(status.state().0, State::Paused);
        status.enter(State::Running, "");
        status.set_quiet(false);
        assert_eq!(status.state().0, State::Running);
    }
}
