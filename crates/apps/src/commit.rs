//! Commits of a task: checked, and built as one append.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use stafett_journal::{Append, Frame, OwnerEpoch};
use stafett_model::{BatchBuilder, Codec, LogId, Record};
use stafett_topics::{NewRecord, RecordsAppend, TopicCatalog};

use crate::definition::Definition;
use crate::delivery::Delivery;
use crate::done::is_kept;
use crate::entry::{NEVER, POSITION, Position, done_key, offsets_value, state_key, state_value, timer_key};
use crate::error::AppError;
use crate::failure::Failure;
use crate::failures::FailurePlace;
use crate::index::OFFSETS_MAX;
use crate::lost_topics::check_whole;
use crate::queues::QueueMessages;
use crate::state::{Applied, StoredEntry, TaskState};
use crate::task::Slice;

/// Limits of every task.
pub(crate) const DONE_MAX: usize = 1_000_000;
pub(crate) const TIMERS_MAX: usize = 1_000_000;
pub(crate) const KEY_BYTES_MAX: usize = 32 << 10;
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 20;
/// Bytes of a commit's records in the task's log.
pub(crate) const COMMIT_BYTES_MAX: usize = 16 << 20;

/// Bytes of finished keys that a commit drops, at most, and of each beside its key.
const DROPPED_BYTES_MAX: usize = 1 << 20;
const DROPPED_BYTES: usize = 32;

/// A commit as a worker asks for it. Offsets are per input of the app.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewCommit {
    pub seq: u64,
    /// Next offsets to do; absent ones stay.
    pub next: Vec<Option<u64>>,
    /// Offsets from which a restart has to read; absent ones are as `next`.
    pub safe: Vec<Option<u64>>,
    /// Finished keys with the offset of their last record, per input.
    pub done: Vec<(Bytes, Vec<Option<u64>>)>,
    /// Entries to store, by table; `None` deletes.
    pub entries: Vec<NewEntry>,
    /// Timers in their order: key, name, and the time, or `None` to clear it.
    pub timers: Vec<(Bytes, Bytes, Option<i64>)>,
    pub emit: Vec<(Box<str>, NewRecord)>,
    /// Results for queues.
    pub messages: QueueMessages,
}

/// An entry to store or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    pub table: Box<str>,
    pub key: Bytes,
    /// `None` deletes the entry.
    pub value: Option<Bytes>,
    /// Lifetime of its own, instead of the table's.
    pub ttl_ms: Option<u64>,
}

/// Place of results that were emitted, in the order of their batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    pub topic: Box<str>,
    pub partition: u32,
    pub base: u64,
    pub count: u32,
}

impl Emitted {
    /// Returns the places of batches: topic, partition and number of records of each, and their bases.
    pub(crate) fn at(batches: Vec<(Box<str>, u32, u32)>, bases: impl IntoIterator<Item = u64>) -> Vec<Self> {
        let placed = batches.into_iter().zip(bases);
        let emitted = placed.map(|((topic, partition, count), base)| Self {
            topic,
            partition,
            base,
            count,
        });
        emitted.collect()
    }
}

/// Answer to a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    pub seq: u64,
    /// True if it was stored before; then places are not known.
    pub repeated: bool,
    pub emitted: Vec<Emitted>,
}

/// A commit that passed its checks.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) append: Append,
    pub(crate) position: Position,
    pub(crate) changes: Vec<Applied>,
    /// Topic, partition and number of records of each emitted batch.
    pub(crate) emitted: Vec<(Box<str>, u32, u32)>,
    pub(crate) messages: QueueMessages,
}

/// Surroundings of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitContext<'a> {
    pub(crate) catalog: &'a TopicCatalog,
    pub(crate) definition: &'a Definition,
    pub(crate) log: LogId,
    /// Keys of the task.
    pub(crate) slice: Slice,
    pub(crate) epoch: u64,
    /// Bounds of `next`, per input: the end of deliveries, or of the log.
    pub(crate) reached: &'a [u64],
    /// Deliveries of the claim, which know the time at the new position.
    pub(crate) delivery: &'a Delivery,
    pub(crate) now_ms: i64,
}

/// Records of the task's log under construction.
pub(crate) struct Build {
    batch: BatchBuilder,
    changes: Vec<Applied>,
    now_ms: i64,
}

impl Build {
    pub(crate) fn new(now_ms: i64) -> Self {
        Self {
            batch: BatchBuilder::new(Codec::None),
            changes: Vec::new(),
            now_ms,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>, change: Applied) -> Result<(), AppError> {
        self.push_of(self.now_ms, key, value, change)
    }

    /// Adds a record of an earlier commit.
    pub(crate) fn push_of(
        &mut self,
        written_ms: i64,
        key: &[u8],
        value: Option<&[u8]>,
        change: Applied,
    ) -> Result<(), AppError> {
        let too_large = AppError::TooLarge {
            what: "the commit",
            max: COMMIT_BYTES_MAX as u64,
        };
        if self.batch.bytes() + key.len() + value.map_or(0, <[u8]>::len) > COMMIT_BYTES_MAX {
            return Err(too_large);
        }
        let record = Record {
            key: Some(key),
            value,
            timestamp: written_ms,
            ..Record::default()
        };
        self.batch.push(&record).map_err(|_| too_large)?;
        self.changes.push(change);
        Ok(())
    }

    /// Stores a failure, or forgets it.
    pub(crate) fn push_failure(
        &mut self,
        place: FailurePlace,
        failure: Option<Failure>,
    ) -> Result<(), AppError> {
        let value = failure.as_ref().map(Failure::encode);
        self.push(&place.key(), value.as_deref(), Applied::Failure(place, failure))
    }

    /// Stores the rest of failures that a position has passed.
    pub(crate) fn push_rest(&mut self, state: &TaskState, position: &Position) -> Result<(), AppError> {
        for (place, known) in state.failures().iter() {
            let next = position.next.get(usize::from(place.input));
            if let Some(next) = next.filter(|next| known.offset < **next) {
                self.push_failure(place, known.rest(*next))?;
            }
        }
        Ok(())
    }

    /// Returns the append to the task's log under an epoch, and its changes.
    pub(crate) fn finish(self, log: LogId, epoch: u64) -> Result<(Append, Vec<Applied>), AppError> {
        let body = self.batch.finish().map_err(|why| AppError::Bad {
            field: "commit",
            why: why.to_string(),
        })?;
        let mut append = Append::batch(log, body);
        let owner = OwnerEpoch(epoch);
        append.frames.insert(0, Frame::Claim { log, owner });
        Ok((append, self.changes))
    }
}

impl CommitContext<'_> {
    /// Checks a commit against the state, and builds its append, with a failure of the record at its
    /// position.
    pub(crate) fn prepare(
        self,
        state: &TaskState,
        commit: &NewCommit,
        failure: Option<(FailurePlace, Failure)>,
    ) -> Result<Prepared, AppError> {
        let position = self.position(state, commit)?;
        let mut build = Build::new(self.now_ms);
        build.push(POSITION, Some(&position.encode()), Applied::Position)?;
        self.push_done(state, commit, &position, &mut build)?;
        self.push_entries(state, commit, &mut build)?;
        self.push_timers(state, commit, &mut build)?;
        build.push_rest(state, &position)?;
        if let Some((place, failure)) = failure {
            build.push_failure(place, Some(failure))?;
        }
        let growth = state.growth(&build.changes);
        let max = self.definition.state_bytes_max;
        if growth > 0 && state.totals().bytes.saturating_add_signed(growth) > max {
            return Err(AppError::TooLarge {
                what: "the state of the task",
                max,
            });
        }
        if state.end() + build.changes.len() as u64 >= OFFSETS_MAX {
            let max = OFFSETS_MAX;
            return Err(AppError::TooLarge { what: "the log", max });
        }
        let (mut append, changes) = build.finish(self.log, self.epoch)?;
        let emitted = push_results(self.catalog, &commit.emit, commit.seq, self.now_ms, &mut append)?;
        Ok(Prepared {
            append,
            position,
            changes,
            emitted,
            messages: commit.messages.clone(),
        })
    }

    fn position(&self, state: &TaskState, commit: &NewCommit) -> Result<Position, AppError> {
        let before = &state.position;
        let topic = |input: usize| self.definition.topics.get(input).cloned().unwrap_or_default();
        let check = |field, input, given: u64, from: u64, to: u64| {
            if (from..=to).contains(&given) {
                return Ok(given);
            }
            Err(AppError::BadOffset {
                field,
                topic: topic(input),
                given,
                from,
                to,
            })
        };
        let wanted = |list: &[Option<u64>], input: usize| list.get(input).copied().flatten();
        let lowest = &self.delivery.lowest;
        let (mut next, mut safe) = (Vec::new(), Vec::new());
        for (input, (was, was_safe)) in before.next.iter().zip(&before.safe).enumerate() {
            let reached = self.reached.get(input).copied().unwrap_or(*was).max(*was);
            let place = match wanted(&commit.next, input) {
                // The broker has passed over records of others meanwhile.
                Some(given) => check("next", input, given, lowest.next(input, *was), reached)?.max(*was),
                None => *was,
            };
            let is_left = commit.next.is_empty() && commit.safe.is_empty();
            safe.push(match wanted(&commit.safe, input) {
                Some(given) => {
                    check("safe", input, given, lowest.safe(input, *was_safe), place)?.max(*was_safe)
                }
                None if is_left => *was_safe,
                None => place,
            });
            next.push(place);
        }
        let mut position = Position {
            seq: commit.seq,
            epoch: if commit.seq == before.seq {
                before.epoch
            } else {
                self.epoch
            },
            time: before
                .time
                .max(self.delivery.time_at(self.definition.time, &next)),
            next,
            safe,
            ahead: before.ahead.clone(),
        };
        position.drop_reached();
        Ok(position)
    }

    /// Adds finished keys, and drops those that have no record at or behind the safe offset: a part of them,
    /// if they are many, and the next commits the others.
    fn push_done(
        &self,
        state: &TaskState,
        commit: &NewCommit,
        position: &Position,
        build: &mut Build,
    ) -> Result<(), AppError> {
        let mut new: BTreeMap<&Bytes, Box<[u64]>> = BTreeMap::new();
        for (key, given) in &commit.done {
            check_key(key)?;
            let mut offsets = vec![0; position.next.len()];
            for (input, (offset, next)) in offsets.iter_mut().zip(&position.next).enumerate() {
                if let Some(given) = given.get(input).copied().flatten() {
                    if given >= *next {
                        return Err(AppError::BadOffset {
                            field: "done",
                            topic: self.definition.topics.get(input).cloned().unwrap_or_default(),
                            given,
                            from: 0,
                            to: next.saturating_sub(1),
                        });
                    }
                    // Stored as the offset behind it; 0 for none.
                    *offset = given + 1;
                }
            }
            new.insert(key, offsets.into());
        }
        let safe = &position.safe;
        let over = state.done().over(safe).filter(|key| !new.contains_key(key));
        let mut bytes = 0;
        let dropped: Vec<Bytes> = over
            .cloned()
            .take_while(|key| {
                bytes += key.len() + DROPPED_BYTES;
                bytes <= DROPPED_BYTES_MAX
            })
            .collect();
        let known = state.done().keys();
        if known.len() + new.len() > DONE_MAX + dropped.len() {
            let max = DONE_MAX as u64;
            return Err(AppError::TooLarge { what: "done", max });
        }
        for key in dropped {
            build.push(&done_key(&key), None, Applied::Done(key, None))?;
        }
        for (key, offsets) in new {
            if is_kept(&offsets, safe) {
                let value = offsets_value(&offsets);
                build.push(
                    &done_key(key),
                    Some(&value),
                    Applied::Done(key.clone(), Some(offsets)),
                )?;
            } else if known.contains_key(key) {
                build.push(&done_key(key), None, Applied::Done(key.clone(), None))?;
            }
        }
        Ok(())
    }

    fn push_entries(&self, state: &TaskState, commit: &NewCommit, build: &mut Build) -> Result<(), AppError> {
        let mut seen = HashSet::new();
        for entry in &commit.entries {
            let known = self.definition.table(&entry.table);
            let (table, rules) = known.ok_or_else(|| AppError::NoSuchTable(entry.table.clone()))?;
            check_key(&entry.key)?;
            if !seen.insert((table, &entry.key)) {
                return Err(AppError::Bad {
                    field: "put",
                    why: "a key stands in put or delete once".to_owned(),
                });
            }
            let key = state_key(table, &entry.key);
            let hash = state.hash(&key);
            let Some(value) = &entry.value else {
                // An absent entry needs no tombstone.
                if state.place_of(table, &entry.key).is_some() {
                    build.push(&key, None, Applied::State(hash, None))?;
                }
                continue;
            };
            if rules.keyed && !self.slice.has(Some(&entry.key)) {
                return Err(AppError::Bad {
                    field: "put",
                    why: "the key of an entry is one of another slice of the partition".to_owned(),
                });
            }
            if value.len() > VALUE_BYTES_MAX {
                let max = VALUE_BYTES_MAX as u64;
                return Err(AppError::TooLarge {
                    what: "an entry",
                    max,
                });
            }
            let ttl_ms = entry.ttl_ms.or(rules.ttl_ms);
            let expiry = ttl_ms.map_or(NEVER, |ttl| self.now_ms.saturating_add_unsigned(ttl));
            let value = state_value(expiry, value);
            let entry = StoredEntry {
                bytes: key.len() + value.len(),
                written_ms: self.now_ms,
                expiry,
            };
            build.push(&key, Some(&value), Applied::State(hash, Some(entry)))?;
        }
        Ok(())
    }

    fn push_timers(&self, state: &TaskState, commit: &NewCommit, build: &mut Build) -> Result<(), AppError> {
        // The last one for a key and name counts.
        let last: BTreeMap<_, _> = commit
            .timers
            .iter()
            .map(|(key, name, due)| ((key, name), *due))
            .collect();
        let is_new = |((key, name), due): &(&(&Bytes, &Bytes), &Option<i64>)| {
            due.is_some() && state.timer(key, name).is_none()
        };
        if state.totals().timers + last.iter().filter(is_new).count() > TIMERS_MAX {
            let max = TIMERS_MAX as u64;
            return Err(AppError::TooLarge { what: "timers", max });
        }
        for ((key, name), due) in last {
            check_key(key)?;
            check_key(name)?;
            if due.is_some() && !self.slice.has(Some(key)) {
                return Err(AppError::Bad {
                    field: "timers",
                    why: "the key of a timer is one of another slice of the partition".to_owned(),
                });
            }
            if due.is_none() && state.timer(key, name).is_none() {
                continue;
            }
            let record = timer_key(key, name);
            let value = due.map(i64::to_le_bytes);
            let timer = due.map(|due| (due, record.len()));
            let change = Applied::Timer(state.hash(&record), timer);
            build.push(&record, value.as_ref().map(|value| &value[..]), change)?;
            if let Some((place, _)) = state.failures().of_timer(key, name) {
                build.push_failure(place, None)?;
            }
        }
        Ok(())
    }
}

/// Adds results to an append. Those of one topic keep their order. Returns topic, partition and number of
/// records of each batch.
pub(crate) fn push_results(
    catalog: &TopicCatalog,
    results: &[(Box<str>, NewRecord)],
    keyless: u64,
    now_ms: i64,
    append: &mut Append,
) -> Result<Vec<(Box<str>, u32, u32)>, AppError> {
    let mut by_topic: BTreeMap<&str, Vec<&NewRecord>> = BTreeMap::new();
    for (topic, record) in results {
        by_topic.entry(topic).or_default().push(record);
    }
    let mut emitted = Vec::new();
    for (name, results) in by_topic {
        let topic = catalog.topics().named(name);
        let topic = topic
            .filter(|topic| !topic.id.is_queue())
            .ok_or_else(|| AppError::NoSuchTopic(name.into()))?;
        check_whole(&topic, "emit")?;
        let keyless = u32::try_from(keyless & 0xffff_ffff).unwrap_or(0);
        let built = catalog.records_append(&topic, &results, keyless, now_ms);
        let RecordsAppend { append: own, batches } = built.map_err(|why| AppError::Emit {
            topic: name.into(),
            why,
        })?;
        append.frames.extend(own.frames);
        append.pinned_bytes += own.pinned_bytes;
        emitted.extend(
            batches
                .iter()
                .map(|(partition, count)| (name.into(), *partition, *count)),
        );
    }
    Ok(emitted)
}

fn check_key(key: &[u8]) -> Result<(), AppError> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let max = KEY_BYTES_MAX as u64;
    Err(AppError::TooLarge { what: "a key", max })
}
