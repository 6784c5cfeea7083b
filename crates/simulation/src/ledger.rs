//! Ledger of produced batches: their answers, and the expected content of the logs.

pub mod compaction;
mod messages;

use std::collections::{BTreeMap, BTreeSet};

use stafett_model::{Durability, TransactionEnd};

use self::compaction::Passes;
use crate::transactions::Transactions;
use crate::world::{Death, Finding};

/// One partition of one incarnation of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    pub topic: u8,
    /// Number of earlier incarnations of the topic.
    pub incarnation: u32,
    pub partition: u8,
}

/// A record: the number of its batch, and its index there.
pub type RecordId = (usize, u32);

#[derive(Debug, Clone)]
pub struct Batch {
    pub log: LogKey,
    /// Group of batches that are stored in the order in which they were first sent.
    pub group: u64,
    pub records: u32,
    pub level: Durability,
    pub state: State,
    /// Time from which its age counts, in milliseconds since 1970. A day earlier than real, as clocks are
    /// set.
    pub date_ms: i64,
    /// Number of times it was sent.
    pub sent: u32,
    /// Its transaction.
    pub transaction: Option<usize>,
    /// True for a record that an AMQP client published.
    pub is_message: bool,
}

/// Producer's knowledge of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not answered. It may be stored, and may be stored later if it is resent.
    Unknown,
    Acknowledged {
        base: u64,
    },
    /// Stored at an offset that was not told.
    Somewhere,
    /// Not stored and never will be: it was refused, or lost in a failure that its durability does not
    /// survive.
    Never,
}

/// All batches, and the records that were seen.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub batches: Vec<Batch>,
    /// Every record ever seen, by offset.
    seen: BTreeMap<LogKey, BTreeMap<u64, RecordId>>,
    /// Checksums of all records that were ever read, by offset.
    contents: BTreeMap<LogKey, BTreeMap<u64, u64>>,
    /// Batches older than this may have been deleted.
    expired_ms: i64,
    passes: Passes,
    pub transactions: Transactions,
}

/// Remains of a log after a loss.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    pub read: &'a [Seen],
    /// Offsets that return a read error.
    pub unreadable: &'a [std::ops::Range<u64>],
    pub end: u64,
    /// True if it refuses appends, because records behind its end may be lost.
    pub is_fenced: bool,
    /// True if any record may be missing.
    pub may_miss: bool,
}

/// A record that was read.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub offset: u64,
    pub id: RecordId,
}

impl Ledger {
    pub fn add(&mut self, batch: Batch) -> usize {
        self.batches.push(batch);
        self.batches.len() - 1
    }

    /// Records an acknowledgement.
    pub fn acknowledge(&mut self, number: usize, base: u64) -> Result<(), Finding> {
        let Some(batch) = self.batches.get_mut(number) else {
            return Ok(());
        };
        match batch.state {
            State::Acknowledged { base: before } if before != base => {
                return Err(Finding(format!(
                    "batch {number} was stored at {before} and is acknowledged at {base}"
                )));
            }
            State::Never => return Err(Finding(format!("batch {number} was refused and is acknowledged"))),
            State::Unknown | State::Somewhere | State::Acknowledged { .. } => {
                batch.state = State::Acknowledged { base };
            }
        }
        let (log, records) = (batch.log, batch.records);
        for index in 0..records {
            self.saw(log, base + u64::from(index), (number, index))?;
        }
        Ok(())
    }

    /// Records the record at an offset. Fails if another one was seen there.
    pub fn saw(&mut self, log: LogKey, offset: u64, id: RecordId) -> Result<(), Finding> {
        let batch = self.batches.get(id.0);
        if batch.is_none_or(|batch| batch.log != log || id.1 >= batch.records) {
            return Err(Finding(format!(
                "offset {offset} of {log:?} has {id:?}, which was not sent there"
            )));
        }
        if let Some(batch) = self.batches.get_mut(id.0).filter(|batch| batch.is_message) {
            match batch.state {
                State::Never => {
                    return Err(Finding(format!(
                        "{id:?} was dropped, and is at {offset} of {log:?}"
                    )));
                }
                State::Unknown | State::Somewhere => batch.state = State::Acknowledged { base: offset },
                State::Acknowledged { .. } => {}
            }
        }
        let before = self.seen.entry(log).or_default().insert(offset, id);
        match before {
            Some(before) if before != id => Err(Finding(format!(
                "offset {offset} of {log:?} names record {before:?} and record {id:?}"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Records the contents of records. Fails if one had another content when it was read before.
    pub fn saw_contents(&mut self, log: LogKey, sums: &[(u64, u64)]) -> Result<(), Finding> {
        let known = self.contents.entry(log).or_default();
        for (offset, sum) in sums {
            if known.insert(*offset, *sum).is_some_and(|before| before != *sum) {
                return Err(Finding(format!(
                    "offset {offset} of {log:?} holds something else now"
                )));
            }
        }
        Ok(())
    }

    /// Returns the offset behind the last record that was seen.
    pub fn known_end(&self, log: LogKey) -> u64 {
        let last = self.seen.get(&log).and_then(BTreeMap::last_key_value);
        last.map_or(0, |(offset, _)| offset + 1)
    }

    /// Returns the lowest offset from `from` on at which a reader must get a record.
    pub fn owed(&self, log: LogKey, from: u64, is_committed: bool) -> Option<u64> {
        if is_committed {
            return self.stored_from(log, from, 0);
        }
        let mut seen = self.seen.get(&log)?.range(from..);
        let is_there = |(offset, id): &(&u64, &RecordId)| {
            self.batches.get(id.0).is_some_and(|batch| {
                matches!(batch.state, State::Acknowledged { .. })
                    && batch.level != Durability::Memory
                    && batch.date_ms >= self.expired_ms
                    && !self.may_be_replaced(log, **offset, **id)
            })
        };
        seen.find(is_there).map(|(offset, _)| *offset)
    }

    /// Compares the complete content of a log with the ledger.
    ///
    /// `died` is the way in which the program ended before, `None` while it runs. Batches that were
    /// acknowledged during the read may be missing: `before` has the states from before it.
    pub fn check(
        &mut self,
        log: LogKey,
        read: &[Seen],
        died: Option<Death>,
        before: &[State],
    ) -> Result<(), Finding> {
        let found = self.found_in(log, read)?;
        for number in 0..self.batches.len() {
            let at = found.get(&number).copied();
            if at.is_some() || before.get(number).is_some_and(|state| *state != State::Unknown) {
                self.check_batch(log, number, at, died)?;
            }
        }
        self.check_order(log, &found)
    }

    /// Compares the remains of a log after a loss with the ledger.
    pub fn check_left(&mut self, log: LogKey, left: &Left<'_>, died: Option<Death>) -> Result<(), Finding> {
        let found = self.found_in(log, left.read)?;
        for (number, batch) in self.batches.iter().enumerate() {
            let State::Acknowledged { base } = batch.state else {
                continue;
            };
            let is_there = found.get(&number).map(|at| *at == base);
            let range = base..base + u64::from(batch.records);
            let is_told = left
                .unreadable
                .iter()
                .any(|of| of.start < range.end && range.start < of.end);
            let is_excused = left.may_miss
                || is_told
                || (left.is_fenced && base >= left.end)
                || died.is_some_and(|death| !survives(batch.level, death))
                || batch.date_ms < self.expired_ms
                || self.is_replaceable(number, batch, base);
            if batch.log == log && !is_there.unwrap_or(is_excused) {
                return Err(Finding(format!(
                    "batch {number} was acknowledged at {base} of {log:?} and is gone or elsewhere, and nothing says so"
                )));
            }
        }
        self.check_order(log, &found)
    }

    /// True if compaction may have removed all records of a batch.
    fn is_replaceable(&self, number: usize, batch: &Batch, base: u64) -> bool {
        let mut records = (0..batch.records).map(|index| (base + u64::from(index), (number, index)));
        records.all(|(offset, id)| self.may_be_replaced(batch.log, offset, id))
    }

    /// Returns the batches in a log with their offsets. Fails if one is incomplete, repeated or in the wrong
    /// log.
    fn found_in(&mut self, log: LogKey, read: &[Seen]) -> Result<BTreeMap<usize, u64>, Finding> {
        if compaction::policy(log.topic).is_some() {
            return self.parts_in(log, read);
        }
        let mut found: BTreeMap<usize, u64> = BTreeMap::new();
        let mut rest = read;
        while let Some(first) = rest.first() {
            let number = first.id.0;
            let Some(batch) = self.batches.get(number) else {
                return Err(Finding(format!(
                    "{log:?} holds {:?}, which nobody sent",
                    first.id
                )));
            };
            if batch.log != log {
                return Err(Finding(format!(
                    "{log:?} holds batch {number}, which is of {:?}",
                    batch.log
                )));
            }
            for index in 0..batch.records {
                let wanted = (number, index);
                match rest.split_first() {
                    Some((seen, behind))
                        if seen.id == wanted && seen.offset == first.offset + u64::from(index) =>
                    {
                        rest = behind;
                    }
                    other => {
                        return Err(Finding(format!(
                            "batch {number} is not whole at {} of {log:?}: {:?} is in the place of {index}",
                            first.offset,
                            other.map(|(seen, _)| seen)
                        )));
                    }
                }
            }
            if let Some(before) = found.insert(number, first.offset) {
                return Err(Finding(format!(
                    "batch {number} is in {log:?} twice, at {before} and {}",
                    first.offset
                )));
            }
        }
        for seen in read {
            self.saw(log, seen.offset, seen.id)?;
        }
        Ok(found)
    }

    /// Returns the lowest offset from `from` on at which an acknowledged and committed record must be, of the
    /// batch with number `first` or a later one.
    pub fn stored_from(&self, log: LogKey, from: u64, first: usize) -> Option<u64> {
        if self.is_undecided(log) {
            return None;
        }
        let mut seen = self.seen.get(&log)?.range(from..);
        let is_there =
            |(offset, id): &(&u64, &RecordId)| id.0 >= first && self.must_be_there(log, **offset, **id);
        seen.find(is_there).map(|(offset, _)| *offset)
    }

    /// Returns the offsets at which acknowledged and committed records must be.
    pub fn all_stored(&self, log: LogKey) -> Vec<u64> {
        if self.is_undecided(log) {
            return Vec::new();
        }
        let seen = self.seen.get(&log).into_iter().flatten();
        seen.filter(|(offset, id)| self.must_be_there(log, **offset, **id))
            .map(|(offset, _)| *offset)
            .collect()
    }

    /// True if readers of committed records must get a record that was seen.
    fn must_be_there(&self, log: LogKey, offset: u64, id: RecordId) -> bool {
        self.batches.get(id.0).is_some_and(|batch| {
            matches!(batch.state, State::Acknowledged { .. })
                && batch.date_ms >= self.expired_ms
                && self.is_committed(batch)
                && !self.may_be_replaced(log, offset, id)
        })
    }

    /// True if a log may hold records of a transaction that is open.
    pub fn is_undecided(&self, log: LogKey) -> bool {
        let mut batches = self
            .batches
            .iter()
            .filter(|batch| batch.log == log && batch.state != State::Never);
        batches.any(|batch| {
            let number = batch.transaction;
            let transaction = number.and_then(|number| self.transactions.all.get(number));
            transaction.is_some_and(|transaction| !transaction.is_closed)
        })
    }

    /// Marks transactions as ended that the broker knows: those with acknowledged batches or commits. The
    /// addition of a log alone is not stored; the transaction may still begin.
    pub fn close_stored_transactions(&mut self) {
        let is_stored = |batch: &&Batch| matches!(batch.state, State::Acknowledged { .. });
        let numbers: BTreeSet<usize> = self
            .batches
            .iter()
            .filter(is_stored)
            .filter_map(|batch| batch.transaction)
            .collect();
        for (number, transaction) in self.transactions.all.iter_mut().enumerate() {
            transaction.is_closed |= transaction.has_offsets || numbers.contains(&number);
        }
    }

    /// True if readers of committed records must get a batch.
    fn is_committed(&self, batch: &Batch) -> bool {
        batch.transaction.is_none_or(|number| {
            let transaction = self.transactions.all.get(number);
            transaction.is_some_and(|it| it.is_told && it.end == Some(TransactionEnd::Commit))
        })
    }

    /// Records that a reader of committed records got one.
    pub fn saw_committed(&mut self, log: LogKey, seen: Seen) -> Result<(), Finding> {
        let number = self.batches.get(seen.id.0).and_then(|batch| batch.transaction);
        if let Some(transaction) = number.and_then(|number| self.transactions.all.get_mut(number)) {
            transaction
                .learn(TransactionEnd::Commit)
                .map_err(|why| Finding(format!("{seen:?} of {log:?} is read: {}: {transaction:?}", why.0)))?;
        }
        self.saw(log, seen.offset, seen.id)
    }

    /// Returns the offset behind the last acknowledged record that can be read.
    pub fn stored_to(&self, log: LogKey) -> u64 {
        if self.is_undecided(log) {
            return 0;
        }
        let is_there = |(_, id): &(&u64, &RecordId)| {
            let batch = self.batches.get(id.0);
            // At the level `memory` it can be read once it is written.
            batch.is_some_and(|batch| {
                matches!(batch.state, State::Acknowledged { .. }) && batch.level != Durability::Memory
            })
        };
        let seen = self.seen.get(&log);
        let last = seen.and_then(|seen| seen.iter().rev().find(is_there));
        last.map_or(0, |(offset, _)| offset + 1)
    }

    /// Allows the deletion of batches older than `date_ms`.
    pub fn expire_before(&mut self, date_ms: i64) {
        self.expired_ms = self.expired_ms.max(date_ms);
    }

    fn check_batch(
        &mut self,
        log: LogKey,
        number: usize,
        found: Option<u64>,
        died: Option<Death>,
    ) -> Result<(), Finding> {
        let Some(batch) = self.batches.get_mut(number).filter(|batch| batch.log == log) else {
            return Ok(());
        };
        let is_compacted = compaction::policy(log.topic).is_some();
        match (batch.state, found) {
            // Its records are checked one by one.
            (State::Acknowledged { .. }, None) if is_compacted => Ok(()),
            (State::Acknowledged { base }, Some(at)) if base != at => Err(Finding(format!(
                "batch {number} was acknowledged at {base} of {log:?} and is at {at}"
            ))),
            (State::Acknowledged { .. } | State::Somewhere, None) => match died {
                Some(death) if !survives(batch.level, death) => {
                    batch.state = State::Never;
                    Ok(())
                }
                // It can be read once it is written.
                None if batch.level == Durability::Memory => Ok(()),
                _ if batch.date_ms < self.expired_ms => Ok(()),
                _ => Err(Finding(format!(
                    "batch {number} was acknowledged in {log:?} under {} and is gone ({died:?}): {batch:?}",
                    batch.level
                ))),
            },
            (State::Never, Some(at)) => Err(Finding(format!(
                "batch {number} was refused or gone, and is at {at} of {log:?}"
            ))),
            // A batch that was seen must stay.
            (State::Unknown | State::Somewhere, Some(at)) => {
                batch.state = State::Acknowledged { base: at };
                Ok(())
            }
            (State::Unknown | State::Never, None) | (State::Acknowledged { .. }, Some(_)) => Ok(()),
        }
    }

    /// Checks that batches of one group are in the order in which they were first sent.
    fn check_order(&self, log: LogKey, found: &BTreeMap<usize, u64>) -> Result<(), Finding> {
        let mut last: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for (number, at) in found {
            let Some(batch) = self.batches.get(*number) else {
                continue;
            };
            if let Some((before, before_at)) = last.insert(batch.group, (*number, *at))
                && before_at > *at
            {
                return Err(Finding(format!(
                    "batch {before} of {log:?} was sent before batch {number} and lies behind it"
                )));
            }
        }
        Ok(())
    }

    /// Marks an unanswered batch as never stored.
    pub fn give_up(&mut self, number: usize) {
        if let Some(batch) = self.batches.get_mut(number)
            && batch.state == State::Unknown
        {
            batch.state = State::Never;
        }
    }
}

/// True if batches acknowledged under `level` survive this end of the program.
pub fn survives(level: Durability, death: Death) -> bool {
    match level {
        Durability::Sync => true,
        _ if death == Death::Stopped => true,
        Durability::Memory => false,
        Durability::Os | Durability::Interval { .. } => !matches!(death, Death::Power(_)),
    }
}
