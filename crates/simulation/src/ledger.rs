//! What producers did, what they were told, and what has to be in the logs therefore.

use std::collections::BTreeMap;

use stafett_model::Durability;

use crate::world::{Death, Finding};

/// One partition of one topic that was made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    pub topic: u8,
    /// How often a topic of this name had been made before.
    pub incarnation: u32,
    pub partition: u8,
}

/// A record: the number of its batch, and its place there.
pub type RecordId = (usize, u32);

#[derive(Debug, Clone)]
pub struct Batch {
    pub log: LogKey,
    /// Batches of one group are stored in the order in which they were first sent.
    pub group: u64,
    pub records: u32,
    pub level: Durability,
    pub state: State,
    /// How old it counts as, in milliseconds since 1970; a day of grace for clocks that are set.
    pub date_ms: i64,
    /// How often it was sent.
    pub sent: u32,
}

/// What its producer knows of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No answer came. It may be there, and may come if it is sent again.
    Unknown,
    Acknowledged {
        base: u64,
    },
    /// It is not there, and never will be: it was refused, or is gone after a failure that its level does not
    /// survive.
    Never,
}

/// All batches, and what was seen of them.
#[derive(Debug, Default)]
pub struct Ledger {
    pub batches: Vec<Batch>,
    /// What was ever seen at an offset.
    seen: BTreeMap<LogKey, BTreeMap<u64, RecordId>>,
    /// What is older may have been freed.
    expired_ms: i64,
}

/// What is left of a log after a loss.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    pub read: &'a [Seen],
    /// Where reading is an error.
    pub unreadable: &'a [std::ops::Range<u64>],
    pub end: u64,
    /// It takes nothing more, as it may have lost something behind its end.
    pub is_fenced: bool,
    /// Anything may be missing.
    pub may_miss: bool,
}

/// A record as it was read.
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

    /// The producer was told where its batch is.
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
            State::Unknown | State::Acknowledged { .. } => batch.state = State::Acknowledged { base },
        }
        let (log, records) = (batch.log, batch.records);
        for index in 0..records {
            self.saw(log, base + u64::from(index), (number, index))?;
        }
        Ok(())
    }

    /// Notes what is at an offset, which must never be anything else.
    fn saw(&mut self, log: LogKey, offset: u64, id: RecordId) -> Result<(), Finding> {
        let before = self.seen.entry(log).or_default().insert(offset, id);
        match before {
            Some(before) if before != id => Err(Finding(format!(
                "offset {offset} of {log:?} names record {before:?} and record {id:?}"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Compares what was read of a log, from its beginning to its end, with what has to be there.
    ///
    /// `died` is how the program ended before, `None` while it runs. What was acknowledged while it was read
    /// may be missing: `before` is what batches were before.
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

    /// Compares what is left of a log after a loss with what has to be there.
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
                || batch.date_ms < self.expired_ms;
            if batch.log == log && !is_there.unwrap_or(is_excused) {
                return Err(Finding(format!(
                    "batch {number} was acknowledged at {base} of {log:?} and is gone or elsewhere, and nothing says so"
                )));
            }
        }
        self.check_order(log, &found)
    }

    /// Batches that a log holds, and where: each whole, once, and where it has to be.
    fn found_in(&mut self, log: LogKey, read: &[Seen]) -> Result<BTreeMap<usize, u64>, Finding> {
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

    /// What is older may be freed from now on.
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
        match (batch.state, found) {
            (State::Acknowledged { base }, Some(at)) if base != at => Err(Finding(format!(
                "batch {number} was acknowledged at {base} of {log:?} and is at {at}"
            ))),
            (State::Acknowledged { base }, None) => match died {
                Some(death) if !survives(batch.level, death) => {
                    batch.state = State::Never;
                    Ok(())
                }
                // It is read once it is written.
                None if batch.level == Durability::Memory => Ok(()),
                _ if batch.date_ms < self.expired_ms => Ok(()),
                _ => Err(Finding(format!(
                    "batch {number} was acknowledged at {base} of {log:?} under {} and is gone ({died:?})",
                    batch.level
                ))),
            },
            (State::Never, Some(at)) => Err(Finding(format!(
                "batch {number} was refused or gone, and is at {at} of {log:?}"
            ))),
            // Seen once, it stays.
            (State::Unknown, Some(at)) => {
                batch.state = State::Acknowledged { base: at };
                Ok(())
            }
            (State::Unknown | State::Never, None) | (State::Acknowledged { .. }, Some(_)) => Ok(()),
        }
    }

    /// Batches of one group lie in the order in which they were first sent.
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

    /// What will not be sent again and is not there, never will be.
    pub fn give_up(&mut self, number: usize) {
        if let Some(batch) = self.batches.get_mut(number)
            && batch.state == State::Unknown
        {
            batch.state = State::Never;
        }
    }
}

/// Whether what was acknowledged under a level is there after a failure.
pub fn survives(level: Durability, death: Death) -> bool {
    match level {
        Durability::Sync => true,
        _ if death == Death::Stopped => true,
        Durability::Memory => false,
        Durability::Os | Durability::Interval { .. } => !matches!(death, Death::Power(_)),
    }
}
