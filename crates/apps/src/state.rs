//! State of one task in memory: where its entries are in its log, and how far it is.
//!
//! Values stay on disk. After a start, or when the task was not used for long, the state is read back from
//! the log, in sequence. It is right as of the last commit: every commit passes through here.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, StoredRecord, records};
use stafett_store::Clock;
use stafett_topics::{LogRead, ReadEnd, RecordItem, RecordTail, TopicCatalog};

use crate::delivery::Told;
use crate::done::DoneKeys;
use crate::entry::{
    EntryKey, NEVER, POSITION, Position, intact, key_of_entry, read_offsets, split_value, state_key,
    timer_key,
};
use crate::expiry::expires_ms;
use crate::failure::Failure;
use crate::failures::{FailurePlace, Failures};
use crate::index::{KeyHash, KeyHasher, KeyIndex, counted};
use crate::timer_index::{KnownTimer, Timers};

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
    done: DoneKeys,
    clock: Arc<Clock>,
    /// Steady time before which no entry expires.
    pub(crate) expires_ms: i64,
    /// Steady time before which expired entries are not removed.
    pub(crate) sweep_from_ms: i64,
    failures: Failures,
    /// Offset of the next commit.
    end: u64,
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
    /// Keys whose entries were deleted behind the place that a scan began at.
    pub deleted: Vec<Bytes>,
    /// Place to go on from; `None` at the end.
    pub next: Option<u64>,
    /// Place behind this page: a later scan from there has the changes since.
    pub end: u64,
}

/// Change of one record of a commit, in the order of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Applied {
    Position,
    Done(Bytes, Option<Box<[u64]>>),
    /// Finished keys do not count any more in an input.
    Forget(u8),
    /// With its time and the bytes of the record, or none if it is cleared.
    Timer(KeyHash, Option<(i64, usize)>),
    /// With the bytes of the record, or none if it is deleted.
    State(KeyHash, Option<StoredEntry>),
    Failure(FailurePlace, Option<Failure>),
}

/// An entry as it is stored. Times are by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredEntry {
    /// Bytes of key and value.
    pub(crate) bytes: usize,
    pub(crate) written_ms: i64,
    pub(crate) expiry: i64,
}

/// Totals of a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateTotals {
    pub entries: usize,
    /// Bytes of the keys and values of entries, timers and finished keys, about.
    pub bytes: u64,
    pub timers: usize,
    pub done: usize,
}

impl TaskState {
    /// Reads a task's log. `starts` are the offsets at which a task without a commit begins.
    pub(crate) async fn load(
        catalog: &TopicCatalog,
        clock: &Arc<Clock>,
        log: LogId,
        starts: Vec<u64>,
    ) -> Result<Self, String> {
        let bounds = catalog.bounds(log).ok_or("the log does not exist")?;
        let mut state = Self {
            position: Position::start(starts),
            hasher: KeyHasher::default(),
            index: KeyIndex::default(),
            timers: Timers::default(),
            done: DoneKeys::default(),
            clock: Arc::clone(clock),
            expires_ms: NEVER,
            sweep_from_ms: i64::MIN,
            failures: Failures::default(),
            end: bounds.end.0,
        };
        let mut tail = RecordTail::new(log, bounds.start, READ_BYTES, Visibility::Stored);
        loop {
            while let Some(item) = tail.item() {
                match item {
                    RecordItem::Record(record) => state.replay(&record)?,
                    RecordItem::Skipped(skipped) => intact(&skipped)?,
                }
            }
            match tail.read(catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => break,
                Err(why) => return Err(why.to_string()),
            }
        }
        state.done.pass(&state.position.safe);
        Ok(state)
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
            EntryKey::Forgotten { input } => Applied::Forget(input),
            EntryKey::Timer { .. } => {
                let due = record.value.as_deref().map(|value| {
                    let due = value.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
                    due.ok_or_else(unknown)
                });
                let due = due.transpose()?.map(|due| (due, key.len()));
                Applied::Timer(self.hasher.hash(key), due)
            }
            EntryKey::Failure(place) => {
                let failure = record
                    .value
                    .as_deref()
                    .map(|value| Failure::decode(value).ok_or_else(unknown));
                Applied::Failure(place, failure.transpose()?)
            }
            EntryKey::State { .. } => {
                let entry = record.value.as_ref().map(|value| {
                    let (expiry, _) = split_value(value).ok_or_else(unknown)?;
                    Ok::<_, String>(StoredEntry {
                        bytes: key.len() + value.len(),
                        written_ms: record.timestamp,
                        expiry,
                    })
                });
                Applied::State(self.hasher.hash(key), entry.transpose()?)
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
        self.done.pass(&self.position.safe);
    }

    fn apply_one(&mut self, offset: u64, change: Applied) {
        match change {
            Applied::Position => {}
            Applied::Done(key, offsets) => self.done.set(key, offsets, &self.position.safe),
            Applied::Forget(input) => self.done.forget(input, &self.position.safe),
            Applied::Timer(key, due) => {
                let timer = due.map(|(due, bytes)| KnownTimer::new(due, offset, bytes));
                self.timers.set(key, timer);
            }
            Applied::State(key, Some(entry)) => {
                self.index.insert(key, offset, entry.bytes);
                let expires_ms = expires_ms(&self.clock, entry.written_ms, entry.expiry);
                self.expires_ms = self.expires_ms.min(expires_ms);
            }
            Applied::State(key, None) => drop(self.index.remove(key)),
            Applied::Failure(place, failure) => self.failures.set(place, failure),
        }
    }

    pub(crate) fn hash(&self, record_key: &[u8]) -> KeyHash {
        self.hasher.hash(record_key)
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn done(&self) -> &DoneKeys {
        &self.done
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Returns the time of a timer.
    pub(crate) fn timer(&self, key: &[u8], name: &[u8]) -> Option<i64> {
        self.timer_place(key, name).map(|(due, _)| due)
    }

    /// Returns the time of a timer, and its place.
    pub(crate) fn timer_place(&self, key: &[u8], name: &[u8]) -> Option<(i64, u64)> {
        let known = self.timers.get(self.hash(&timer_key(key, name)));
        known.map(KnownTimer::at)
    }

    pub(crate) fn totals(&self) -> StateTotals {
        StateTotals {
            entries: self.index.len(),
            bytes: self.index.bytes() + self.timers.bytes() + self.done.bytes(),
            timers: self.timers.len(),
            done: self.done.keys().len(),
        }
    }

    /// Returns the bytes by which changes make the state larger, or smaller.
    pub(crate) fn growth(&self, changes: &[Applied]) -> i64 {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let of_one = |change: &Applied| match change {
            Applied::Position | Applied::Failure(..) | Applied::Forget(_) => 0,
            Applied::Done(key, offsets) => self.done.growth(key, offsets.as_deref()),
            Applied::Timer(key, due) => {
                let known = self.timers.get(*key).map_or(0, KnownTimer::bytes);
                signed(due.map_or(0, |(_, bytes)| bytes as u64)) - signed(known)
            }
            Applied::State(key, entry) => {
                signed(entry.map_or(0, |entry| counted(entry.bytes))) - signed(self.index.size(*key))
            }
        };
        changes.iter().map(of_one).sum()
    }

    /// Returns the place of an entry's record.
    pub(crate) fn place_of(&self, table: u16, key: &[u8]) -> Option<u64> {
        self.index.offset(self.hash(&state_key(table, key)))
    }

    /// Returns true if the record with this key at this offset is the latest.
    pub(crate) fn is_current(&self, key: &[u8], offset: u64) -> bool {
        self.index.offset(self.hash(key)) == Some(offset)
    }

    /// Returns true if the timer with this key is at this offset.
    pub(crate) fn is_current_timer(&self, key: &[u8], offset: u64) -> bool {
        let known = self.timers.get(self.hash(key));
        known.is_some_and(|timer| timer.at().1 == offset)
    }

    /// Returns the time of the earliest timer, but for some.
    pub(crate) fn next_timer_but(&self, told: &Told) -> Option<i64> {
        let mut timers = self.timers.by_time().iter();
        timers
            .find(|timer| !told.contains_key(timer))
            .map(|(due, _)| *due)
    }

    /// True for a timer that is there, at this time and place.
    pub(crate) fn has_timer(&self, timer: (i64, u64)) -> bool {
        self.timers.by_time().contains(&timer)
    }

    /// Returns the places of timers that are due, but for some, in the order of their times.
    pub(crate) fn due(&self, time: i64, told: &Told, max: usize) -> Vec<(i64, u64)> {
        let due = self.timers.by_time().range(..=(time, u64::MAX));
        due.filter(|timer| !told.contains_key(timer))
            .take(max)
            .copied()
            .collect()
    }

    /// True if there is an entry, or a timer, with the key of a record.
    pub(crate) fn has_record(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        self.index.offset(hash).is_some() || self.timers.get(hash).is_some()
    }

    /// True if there is no entry with the key of a record.
    pub(crate) fn is_gone(&self, key: &[u8]) -> bool {
        self.index.offset(self.hash(key)).is_none()
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

/// Reads the position of a task from the end of its log. `None` if the task never committed.
pub(crate) async fn read_position(catalog: &TopicCatalog, log: LogId) -> Result<Option<Position>, String> {
    let bounds = catalog.bounds(log).ok_or("the log does not exist")?;
    let Some(last) = bounds.end.0.checked_sub(1) else {
        return Ok(None);
    };
    let ticket = catalog.read_log(log, Offset(last), 1, Visibility::Stored);
    let run = match ticket.finish().await {
        LogRead::Batches(run) => run,
        LogRead::Skip(_) => return Err("its end is gone".to_owned()),
        LogRead::End(why) => return Err(why.to_string()),
    };
    // Each commit begins with the position.
    let mut position = None;
    for record in
        records(&Bytes::from(run.pieces.concat()), BATCH_BYTES_MAX).map_err(|why| why.to_string())?
    {
        let record = record.map_err(|why| why.to_string())?;
        if record.key.as_deref() == Some(POSITION) {
            position = record.value.as_deref().and_then(Position::decode);
        }
    }
    position
        .map(Some)
        .ok_or_else(|| "its end has no position".to_owned())
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
            LogRead::Skip(skipped) => {
                intact(&skipped)?;
                continue;
            }
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

/// Records of a table, and keys of records that delete.
#[derive(Debug, Default)]
pub(crate) struct TableRecords {
    pub(crate) found: Vec<StoredRecord>,
    pub(crate) deleted: Vec<Bytes>,
    /// Offset behind them.
    pub(crate) end: u64,
    /// True at the end of the log.
    pub(crate) is_all: bool,
}

/// Reads records of a log that are entries of a table, from an offset on, up to a bound.
pub(crate) async fn read_table(
    catalog: &TopicCatalog,
    log: LogId,
    from: u64,
    (table, prefix): (u16, &[u8]),
    count: usize,
) -> Result<TableRecords, String> {
    let begin = state_key(table, prefix);
    let mut tail = RecordTail::new(log, Offset(from), READ_BYTES, Visibility::Stored);
    let mut read = TableRecords::default();
    loop {
        while read.found.len() + read.deleted.len() < count {
            match tail.item() {
                Some(RecordItem::Record(record)) => {
                    let Some(key) = record.key.as_ref().filter(|key| key.starts_with(&begin)) else {
                        continue;
                    };
                    if record.value.is_some() {
                        read.found.push(record);
                    } else {
                        read.deleted.push(key.clone());
                    }
                }
                Some(RecordItem::Skipped(skipped)) => intact(&skipped)?,
                None => break,
            }
        }
        read.end = tail.next_offset().0;
        if read.found.len() + read.deleted.len() >= count || tail.bytes_read() >= SCAN_BYTES_MAX {
            return Ok(read);
        }
        match tail.read(catalog).await {
            Ok(()) => {}
            Err(ReadEnd::AtEnd) => {
                read.is_all = true;
                return Ok(read);
            }
            Err(why) => return Err(why.to_string()),
        }
    }
}

/// Returns the entry of a record, unless it has expired.
pub(crate) fn entry_of(record: &StoredRecord, clock: &Clock) -> Option<Entry> {
    let key = key_of_entry(record.key.as_ref()?)?;
    let (expiry, value) = split_value(record.value.as_ref()?)?;
    let expires_ms = expires_ms(clock, record.timestamp, expiry);
    (expires_ms > clock.now_ms()).then_some(Entry { key, value })
}

/// Returns the timer of a record.
pub(crate) fn timer_of(record: &StoredRecord, due: i64) -> Option<DueTimer> {
    match EntryKey::decode(record.key.as_ref()?)? {
        EntryKey::Timer { key, name } => Some(DueTimer { key, name, due }),
        EntryKey::Position
        | EntryKey::Done(_)
        | EntryKey::Forgotten { .. }
        | EntryKey::State { .. }
        | EntryKey::Failure(_) => None,
    }
}
