//! State of one task in memory: where its entries are in its log, and how far it is.
//!
//! Values stay on disk. After a start, or when the task was not used for long, the state is read back from
//! the log, in sequence. It is right as of the last commit: every commit passes through here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, StoredRecord, records};
use stafett_topics::{LogRead, ReadEnd, RecordItem, RecordTail, SkipReason, TopicCatalog};

use crate::entry::{EntryKey, Position, read_offsets, split_value, state_key, timer_key};
use crate::failure::Failure;
use crate::index::{KeyHash, KeyHasher, KeyIndex};

/// Bytes of one read while a log is read back.
const READ_BYTES: usize = 1 << 20;
/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Bytes that one page of a scan reads, at most.
const SCAN_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) position: Position,
    hasher: KeyHasher,
    /// Entries of tables.
    index: KeyIndex,
    timers: Timers,
    /// Finished keys, with the offset of their last record per input.
    done: Arc<HashMap<Bytes, Box<[u64]>>>,
    /// Record that fails, per input.
    failures: BTreeMap<u8, Failure>,
    /// Offset of the next commit.
    end: u64,
}

/// Timers by key and by time. Keys and names stay on disk.
#[derive(Debug, Default)]
struct Timers {
    by_key: HashMap<KeyHash, (i64, u64)>,
    by_time: BTreeSet<(i64, u64)>,
}

/// A timer that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTimer {
    pub key: Bytes,
    pub name: Bytes,
    pub due: i64,
}

/// Entry of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Bytes,
    pub value: Bytes,
}

/// Page of a scan, in the order in which entries were changed last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    pub entries: Vec<Entry>,
    /// Place to go on from; `None` at the end.
    pub next: Option<u64>,
}

/// Change of one record of a commit, in the order of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Applied {
    Position,
    Done(Bytes, Option<Box<[u64]>>),
    Timer(KeyHash, Option<i64>),
    /// With the bytes of the record, or none if it is deleted.
    State(KeyHash, Option<usize>),
    Failure(u8, Option<Failure>),
}

/// Totals of a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateTotals {
    pub entries: usize,
    /// Bytes of keys and values, about.
    pub bytes: u64,
    pub timers: usize,
    pub done: usize,
}

impl TaskState {
    /// Reads a task's log. `starts` are the offsets at which a task without a commit begins.
    pub(crate) async fn load(catalog: &TopicCatalog, log: LogId, starts: Vec<u64>) -> Result<Self, String> {
        let bounds = catalog.bounds(log).ok_or("the log does not exist")?;
        let mut state = Self {
            position: Position::start(starts),
            hasher: KeyHasher::default(),
            index: KeyIndex::default(),
            timers: Timers::default(),
            done: Arc::default(),
            failures: BTreeMap::new(),
            end: bounds.end.0,
        };
        let mut tail = RecordTail::new(log, bounds.start, READ_BYTES, Visibility::Stored);
        loop {
            while let Some(item) = tail.item() {
                match item {
                    RecordItem::Record(record) => state.replay(&record)?,
                    RecordItem::Skipped(skipped) if skipped.why == SkipReason::Damaged => {
                        return Err(format!("offsets {} to {} are damaged", skipped.from, skipped.to));
                    }
                    RecordItem::Skipped(_) => {}
                }
            }
            match tail.read(catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => return Ok(state),
                Err(why) => return Err(why.to_string()),
            }
        }
    }

    fn replay(&mut self, record: &StoredRecord) -> Result<(), String> {
        let unknown = || {
            format!(
                "offset {} is of a format that this version does not know",
                record.offset
            )
        };
        let key = record.key.as_ref().ok_or_else(unknown)?;
        let change = match EntryKey::decode(key).ok_or_else(unknown)? {
            EntryKey::Position => {
                let value = record.value.as_deref().ok_or_else(unknown)?;
                self.position = Position::decode(value).ok_or_else(unknown)?;
                Applied::Position
            }
            EntryKey::Done(done) => Applied::Done(done, record.value.as_deref().map(read_offsets)),
            EntryKey::Timer { .. } => {
                let due = record.value.as_deref().map(|value| {
                    let due = value.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
                    due.ok_or_else(unknown)
                });
                Applied::Timer(self.hasher.hash(key), due.transpose()?)
            }
            EntryKey::Failure { input } => {
                let failure = record
                    .value
                    .as_deref()
                    .map(|value| Failure::decode(value).ok_or_else(unknown));
                Applied::Failure(input, failure.transpose()?)
            }
            EntryKey::State { .. } => {
                let bytes = record.value.as_ref().map(|value| key.len() + value.len());
                Applied::State(self.hasher.hash(key), bytes)
            }
        };
        self.apply_one(record.offset.0, change);
        Ok(())
    }

    /// Takes a commit that is stored at `base`.
    pub(crate) fn apply(&mut self, base: u64, position: Position, changes: Vec<Applied>) {
        self.position = position;
        self.end = base + changes.len() as u64;
        for (offset, change) in (base..).zip(changes) {
            self.apply_one(offset, change);
        }
    }

    fn apply_one(&mut self, offset: u64, change: Applied) {
        match change {
            Applied::Position => {}
            Applied::Done(key, Some(offsets)) => drop(Arc::make_mut(&mut self.done).insert(key, offsets)),
            Applied::Done(key, None) => drop(Arc::make_mut(&mut self.done).remove(&key)),
            Applied::Timer(key, due) => self.timers.set(key, due.map(|due| (due, offset))),
            Applied::State(key, Some(bytes)) => self.index.insert(key, offset, bytes),
            Applied::State(key, None) => drop(self.index.remove(key)),
            Applied::Failure(input, Some(failure)) => drop(self.failures.insert(input, failure)),
            Applied::Failure(input, None) => drop(self.failures.remove(&input)),
        }
    }

    pub(crate) fn hash(&self, record_key: &[u8]) -> KeyHash {
        self.hasher.hash(record_key)
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn done(&self) -> &Arc<HashMap<Bytes, Box<[u64]>>> {
        &self.done
    }

    pub(crate) fn failures(&self) -> &BTreeMap<u8, Failure> {
        &self.failures
    }

    pub(crate) fn has_timer(&self, key: &[u8], name: &[u8]) -> bool {
        self.timers.by_key.contains_key(&self.hash(&timer_key(key, name)))
    }

    pub(crate) fn totals(&self) -> StateTotals {
        StateTotals {
            entries: self.index.len(),
            bytes: self.index.bytes(),
            timers: self.timers.by_key.len(),
            done: self.done.len(),
        }
    }

    /// Returns the place of an entry's record.
    pub(crate) fn place_of(&self, table: u16, key: &[u8]) -> Option<u64> {
        self.index.offset(self.hash(&state_key(table, key)))
    }

    /// Returns true if the record with this key at this offset is the latest.
    fn is_current(&self, key: &[u8], offset: u64) -> bool {
        self.index.offset(self.hash(key)) == Some(offset)
    }

    /// Returns the time of the earliest timer, but for some.
    pub(crate) fn next_timer_but(&self, told: &BTreeSet<(i64, u64)>) -> Option<i64> {
        let mut timers = self.timers.by_time.iter();
        timers.find(|timer| !told.contains(timer)).map(|(due, _)| *due)
    }

    /// Returns the places of timers that are due, but for some, in the order of their times.
    pub(crate) fn due(&self, time: i64, told: &BTreeSet<(i64, u64)>, max: usize) -> Vec<(i64, u64)> {
        let due = self.timers.by_time.range(..=(time, u64::MAX));
        due.filter(|timer| !told.contains(timer))
            .take(max)
            .copied()
            .collect()
    }

    /// Keeps those of a page's records that are the latest of their keys.
    pub(crate) fn keep_current(&self, found: Vec<StoredRecord>) -> Vec<StoredRecord> {
        let current = |record: &StoredRecord| {
            record
                .key
                .as_ref()
                .is_some_and(|key| self.is_current(key, record.offset.0))
        };
        found.into_iter().filter(current).collect()
    }
}

impl Timers {
    fn set(&mut self, key: KeyHash, timer: Option<(i64, u64)>) {
        let before = match timer {
            Some(timer) => {
                self.by_time.insert(timer);
                self.by_key.insert(key, timer)
            }
            None => self.by_key.remove(&key),
        };
        if let Some(before) = before {
            self.by_time.remove(&before);
        }
    }
}

/// Reads the records at some offsets of a log. One that is not there is `None`.
pub(crate) async fn read_places(
    catalog: &TopicCatalog,
    log: LogId,
    places: &[Option<u64>],
) -> Result<Vec<Option<StoredRecord>>, String> {
    let mut wanted: BTreeMap<u64, Option<StoredRecord>> =
        places.iter().flatten().map(|place| (*place, None)).collect();
    let mut order: Vec<u64> = wanted.keys().copied().collect();
    order.reverse();
    while let Some(first) = order.pop() {
        let ticket = catalog.read_log(log, Offset(first), 1, Visibility::Stored);
        let run = match ticket.finish().await {
            LogRead::Batches(run) => run,
            LogRead::Skip(_) => continue,
            LogRead::End(why) => return Err(why.to_string()),
        };
        let end = run.next.0;
        let batch: Bytes = match run.pieces.as_slice() {
            [one] => one.clone(),
            pieces => pieces.concat().into(),
        };
        let mut batch = records(&batch, BATCH_BYTES_MAX).map_err(|why| why.to_string())?;
        // All wanted records of the batch are read in one pass.
        batch.seek(Offset(first)).map_err(|why| why.to_string())?;
        let mut next = Some(first);
        for record in batch {
            let record = record.map_err(|why| why.to_string())?;
            if Some(record.offset.0) != next {
                continue;
            }
            wanted.insert(record.offset.0, Some(record));
            next = order.pop_if(|offset| *offset < end);
            if next.is_none() {
                break;
            }
        }
    }
    let found = |place: &Option<u64>| place.and_then(|place| wanted.get(&place).cloned().flatten());
    Ok(places.iter().map(found).collect())
}

/// Reads records of a log that are entries of a table, from an offset on, up to a bound. Returns them with
/// the offset to go on from, or `None` at the end.
pub(crate) async fn read_table(
    catalog: &TopicCatalog,
    log: LogId,
    from: u64,
    (table, prefix): (u16, &[u8]),
    count: usize,
) -> Result<(Vec<StoredRecord>, Option<u64>), String> {
    let begin = state_key(table, prefix);
    let mut tail = RecordTail::new(log, Offset(from), READ_BYTES, Visibility::Stored);
    let mut found = Vec::new();
    loop {
        while found.len() < count {
            match tail.item() {
                Some(RecordItem::Record(record)) => {
                    let is_wanted = record.key.as_ref().is_some_and(|key| key.starts_with(&begin));
                    if is_wanted && record.value.is_some() {
                        found.push(record);
                    }
                }
                Some(RecordItem::Skipped(_)) => {}
                None => break,
            }
        }
        let is_full = found.len() >= count || tail.bytes_read() >= SCAN_BYTES_MAX;
        if is_full {
            return Ok((found, Some(tail.next_offset().0)));
        }
        match tail.read(catalog).await {
            Ok(()) => {}
            Err(ReadEnd::AtEnd) => return Ok((found, None)),
            Err(why) => return Err(why.to_string()),
        }
    }
}

/// Returns the entry of a record, unless it has expired.
pub(crate) fn entry_of(record: &StoredRecord, now_ms: i64) -> Option<Entry> {
    let Some(EntryKey::State { key, .. }) = EntryKey::decode(record.key.as_ref()?) else {
        return None;
    };
    let (expiry, value) = split_value(record.value.as_ref()?)?;
    (expiry > now_ms).then_some(Entry { key, value })
}

/// Returns the timer of a record.
pub(crate) fn timer_of(record: &StoredRecord, due: i64) -> Option<DueTimer> {
    match EntryKey::decode(record.key.as_ref()?)? {
        EntryKey::Timer { key, name } => Some(DueTimer { key, name, due }),
        EntryKey::Position | EntryKey::Done(_) | EntryKey::State { .. } | EntryKey::Failure { .. } => None,
    }
}
