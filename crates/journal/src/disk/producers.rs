//! Idempotent producers of one log: the last batches of each.
//!
//! A producer numbers its records per log, from 0, modulo 2^31. Its last five batches are known, the number
//! that a Kafka client keeps in flight (KIP-98), so that a resent batch is distinguished from one out of
//! order.
//!
//! A producer is known until it has sent nothing for a day of the journal's running time
//! ([`super::running`]), or until [`PRODUCERS_MAX`] others have sent since. Record timestamps and clock jumps
//! have no influence.
//!
//! Length: one structure, its rules beside its stored form.

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{BatchHeader, LogId, Offset, ProducerId, TransactionEnd, transaction_end};

use super::codec::Reader;
use super::running::Moment;
use super::transactions::{Ended, Transactions};
use crate::contract::{OpenTransaction, ProducerStatus, Refusal};

const BATCHES_KEPT: usize = 5;
/// Most producers of a log. Beyond, those that have been idle longest are removed.
pub(crate) const PRODUCERS_MAX: usize = 1 << 16;
/// Number of producers that are removed from a log at once.
const FORGOTTEN_AT_ONCE: usize = PRODUCERS_MAX / 8;
/// Key of the checkpoint row of the open transactions. Other negative keys are those of aborted transactions:
/// -1 minus the offset of their control batch.
const OPEN_KEY: i64 = i64::MIN;

/// Producers of a log. Most logs have none, and pay one pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    /// Sorted by id.
    known: Vec<Producer>,
    /// Keys of checkpoint rows that are out of date: the cost of a checkpoint grows only with these.
    changed: Vec<i64>,
    /// Most producers have no transactions, and pay one pointer.
    transactions: Option<Box<Transactions>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
    /// True if it is listed in `changed`.
    is_changed: bool,
    /// Arrival of its last batch.
    seen_at: Moment,
    /// Oldest first.
    batches: SmallVec<[SentBatch; 1]>,
}

/// Checkpoint row of a producer, by its id, or of transactions, by a negative key; `None` if it was removed.
pub(crate) type ProducerRow = (i64, Option<Vec<u8>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SentBatch {
    first: i32,
    last: i32,
    base: Offset,
}

/// Sequence numbers of a batch, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequencedBatch {
    pub(crate) producer: ProducerId,
    epoch: i16,
    first: i32,
    last: i32,
    is_transactional: bool,
}

/// Result of comparing a batch with its producer's last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    Next,
    Duplicate {
        base: Offset,
    },
    OutOfSequence {
        given: i32,
        expected: i32,
    },
    Stale {
        given: i16,
        current: i16,
    },
    /// Not part of the producer's open transaction.
    OutsideTransaction,
}

impl SequenceCheck {
    /// Refuses the sequence number `given` of a producer without batches.
    pub(crate) fn unknown(given: i32) -> Self {
        Self::OutOfSequence { given, expected: 0 }
    }

    /// Returns the base offset of a duplicate, or the reason to refuse the batch.
    pub(crate) fn verdict(self, log: LogId, producer: ProducerId) -> Result<Option<Offset>, Refusal> {
        match self {
            Self::Next => Ok(None),
            Self::Duplicate { base } => Ok(Some(base)),
            Self::OutOfSequence { given, expected } => Err(Refusal::OutOfSequence {
                log,
                producer,
                given,
                expected,
            }),
            Self::Stale { given, current } => Err(Refusal::StaleProducer {
                log,
                producer,
                given,
                current,
            }),
            Self::OutsideTransaction => Err(Refusal::OutsideTransaction { log, producer }),
        }
    }
}

impl SequencedBatch {
    /// Returns `None` for a batch without a producer id or sequence numbers.
    pub(crate) fn of(header: &BatchHeader) -> Option<Self> {
        let producer = header.producer()?;
        (header.base_sequence >= 0).then(|| Self {
            producer,
            epoch: header.producer_epoch,
            first: header.base_sequence,
            last: sequence_after(header.base_sequence, header.last_offset_delta),
            is_transactional: header.is_transactional(),
        })
    }
}

impl Producers {
    pub(crate) fn judge(&self, batch: SequencedBatch) -> SequenceCheck {
        let has_open = |known: &Transactions| known.has_open(batch.producer);
        if !batch.is_transactional && self.transactions().is_some_and(has_open) {
            return SequenceCheck::OutsideTransaction;
        }
        let Ok(index) = self.find(batch.producer) else {
            return SequenceCheck::Next;
        };
        let Some(known) = self.known.get(index) else {
            return SequenceCheck::Next;
        };
        if batch.epoch < known.epoch {
            return SequenceCheck::Stale {
                given: batch.epoch,
                current: known.epoch,
            };
        }
        if batch.epoch > known.epoch {
            return match batch.first {
                0 => SequenceCheck::Next,
                given => SequenceCheck::OutOfSequence { given, expected: 0 },
            };
        }
        let sent = known
            .batches
            .iter()
            .find(|sent| sent.first == batch.first && sent.last == batch.last);
        if let Some(sent) = sent {
            return SequenceCheck::Duplicate { base: sent.base };
        }
        let expected = known
            .batches
            .last()
            .map_or(0, |sent| sequence_after(sent.last, 1));
        if batch.first == expected {
            SequenceCheck::Next
        } else {
            SequenceCheck::OutOfSequence {
                given: batch.first,
                expected,
            }
        }
    }

    /// Records a batch at a base offset: its sequence numbers, if it was judged `Next`, and the transaction
    /// that it begins or ends. A batch that several logs share counts only as control batch. The second
    /// place is the end of the log's readable offsets.
    pub(crate) fn note_batch(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
        is_shared: bool,
        places: (Offset, Offset),
        now: Moment,
    ) {
        let Some(producer) = header.producer() else { return };
        if let Some(end) = transaction_end(header, batch) {
            self.note_end((producer, header.producer_epoch), end, places, now);
        } else if let (false, Some(numbered)) = (is_shared, SequencedBatch::of(header)) {
            self.note(numbered, places.0, now);
            if header.is_transactional() {
                self.note_transactional(producer, places.0);
            }
        }
    }

    /// Records a batch that was judged `Next`. Ignores a batch that is already recorded, so that frames can
    /// be replayed.
    fn note(&mut self, batch: SequencedBatch, base: Offset, now: Moment) {
        let index = self.find_or_insert(batch.producer, batch.epoch, now);
        let Some(known) = self.known.get_mut(index) else {
            return;
        };
        if batch.epoch < known.epoch || known.batches.last().is_some_and(|sent| sent.base >= base) {
            return;
        }
        if batch.epoch != known.epoch {
            known.epoch = batch.epoch;
            known.batches.clear();
        }
        if known.batches.len() == BATCHES_KEPT {
            known.batches.remove(0);
        }
        known.batches.push(SentBatch {
            first: batch.first,
            last: batch.last,
            base,
        });
        known.seen_at = now;
        known.mark_changed(&mut self.changed);
    }

    /// Returns true if the log has batches of a producer.
    pub(crate) fn has_batches_of(&self, producer: ProducerId) -> bool {
        let known = self.find(producer).ok().and_then(|index| self.known.get(index));
        known.is_some_and(|known| !known.batches.is_empty())
    }

    /// Returns the latest epoch of a producer if it is later than `given`.
    pub(crate) fn later_epoch(&self, producer: ProducerId, given: i16) -> Option<i16> {
        let known = self.known.get(self.find(producer).ok()?)?;
        (given < known.epoch).then_some(known.epoch)
    }

    /// Records a batch of a transaction, behind [`Self::note`].
    fn note_transactional(&mut self, producer: ProducerId, base: Offset) {
        if self.transactions.get_or_insert_default().on_batch(producer, base) {
            self.changed.push(OPEN_KEY);
        }
    }

    /// Records a control batch at `base`. A later epoch starts its sequences anew. `visible` is the end of
    /// the log's readable offsets.
    fn note_end(
        &mut self,
        (producer, epoch): (ProducerId, i16),
        end: TransactionEnd,
        (base, visible): (Offset, Offset),
        now: Moment,
    ) {
        let index = self.find_or_insert(producer, epoch, now);
        if let Some(known) = self.known.get_mut(index)
            && epoch >= known.epoch
        {
            if epoch > known.epoch {
                known.epoch = epoch;
                known.batches.clear();
            }
            known.seen_at = now;
            known.mark_changed(&mut self.changed);
        }
        let transactions = self.transactions.get_or_insert_default();
        match transactions.on_end(producer, end, base, visible) {
            Ended::Nothing => {}
            Ended::Committed => self.changed.push(OPEN_KEY),
            Ended::Aborted => self.changed.extend([OPEN_KEY, aborted_key(base)]),
        }
    }

    /// Returns the open transactions of `log`, whose producers these are.
    pub(crate) fn open_transactions(&self, log: LogId) -> impl Iterator<Item = OpenTransaction> {
        let open = self.transactions.iter().flat_map(|known| known.open());
        open.map(move |(producer, first)| {
            let known = self.find(producer).ok().and_then(|index| self.known.get(index));
            OpenTransaction {
                log,
                producer,
                epoch: known.map_or(-1, |known| known.epoch),
                first,
            }
        })
    }

    pub(crate) fn transactions(&self) -> Option<&Transactions> {
        self.transactions.as_deref()
    }

    /// Forgets the aborted transactions that end before `end`: none of their records is left.
    pub(crate) fn forget_aborted(&mut self, end: Offset) {
        if let Some(transactions) = &mut self.transactions {
            let gone = transactions.forget(end);
            self.changed.extend(gone.into_iter().map(aborted_key));
        }
    }

    /// Returns the index of a producer that is known from now on.
    fn find_or_insert(&mut self, producer: ProducerId, epoch: i16, now: Moment) -> usize {
        match self.find(producer) {
            Ok(index) => index,
            Err(index) if self.known.len() < PRODUCERS_MAX => self.insert(index, producer, epoch, now),
            Err(_) => {
                self.forget_idlest();
                let index = self.find(producer).unwrap_or_else(|index| index);
                self.insert(index, producer, epoch, now)
            }
        }
    }

    fn insert(&mut self, index: usize, producer: ProducerId, epoch: i16, now: Moment) -> usize {
        let new = Producer {
            id: producer.0,
            epoch,
            is_changed: false,
            seen_at: now,
            batches: SmallVec::new(),
        };
        self.known.insert(index, new);
        index
    }

    /// Removes producers that have sent nothing since `running`.
    pub(crate) fn forget_before(&mut self, running: i64) {
        self.retain(|producer| producer.seen_at.running >= running);
    }

    /// Removes the producers that have been idle longest.
    fn forget_idlest(&mut self) {
        let mut bases: Vec<Offset> = self.known.iter().filter_map(Producer::last_base).collect();
        if bases.len() > FORGOTTEN_AT_ONCE {
            let (_, base, _) = bases.select_nth_unstable(FORGOTTEN_AT_ONCE);
            let base = *base;
            self.retain(|producer| producer.last_base().is_some_and(|last| last >= base));
        }
    }

    /// Removes producers, except those with an open transaction.
    fn retain(&mut self, is_kept: impl Fn(&Producer) -> bool) {
        let (changed, transactions) = (&mut self.changed, self.transactions.as_deref());
        let has_open = |id| transactions.is_some_and(|known| known.has_open(ProducerId(id)));
        self.known.retain(|producer| {
            let is_kept = is_kept(producer) || has_open(producer.id);
            if !is_kept && !producer.is_changed {
                changed.push(producer.id);
            }
            is_kept
        });
    }

    /// Returns true if there is neither a producer, nor a transaction, nor a change for the next checkpoint.
    pub(crate) fn is_empty(&self) -> bool {
        let has_none = self.transactions.as_ref().is_none_or(|known| known.is_empty());
        self.known.is_empty() && self.changed.is_empty() && has_none
    }

    /// Returns all producers, by id.
    pub(crate) fn seen(&self) -> Vec<ProducerStatus> {
        let last = |producer: &Producer| producer.batches.last().map_or(-1, |sent| sent.last);
        let all = self.known.iter();
        all.map(|producer| ProducerStatus {
            id: ProducerId(producer.id),
            epoch: producer.epoch,
            sequence: last(producer),
            at: producer.seen_at.clock,
            open: self.open_since(ProducerId(producer.id)),
        })
        .collect()
    }

    fn open_since(&self, id: ProducerId) -> Option<Offset> {
        let mut open = self.transactions.iter().flat_map(|known| known.open());
        open.find_map(|(producer, first)| (producer == id).then_some(first))
    }

    fn find(&self, id: ProducerId) -> Result<usize, usize> {
        self.known.binary_search_by_key(&id.0, |producer| producer.id)
    }

    /// Takes the changes since the last checkpoint; they count as stored from now on.
    pub(crate) fn take_changed(&mut self) -> Vec<ProducerRow> {
        let mut keys = std::mem::take(&mut self.changed);
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
            .map(|id| {
                if id < 0 {
                    return (id, self.transactions_row(id));
                }
                let index = self.find(ProducerId(id)).ok();
                let known = index.and_then(|index| self.known.get_mut(index));
                let row = known.map(|producer| {
                    producer.is_changed = false;
                    producer.encode()
                });
                (id, row)
            })
            .collect()
    }

    fn transactions_row(&self, key: i64) -> Option<Vec<u8>> {
        let transactions = self.transactions.as_ref()?;
        match key {
            OPEN_KEY => transactions.encode_open(),
            _ => transactions.encode_aborted(aborted_end(key)),
        }
    }

    /// Marks all as changed, because a checkpoint failed or rows have to be rewritten.
    pub(crate) fn change_all(&mut self) {
        for producer in &mut self.known {
            producer.is_changed = true;
        }
        self.changed = self.known.iter().map(|producer| producer.id).collect();
        if let Some(transactions) = &self.transactions {
            let aborted = transactions.aborted_ends().map(aborted_key);
            self.changed.extend(aborted.chain([OPEN_KEY]));
        }
    }

    /// Adds a producer, or transactions, from a checkpoint row. False if the row is malformed.
    pub(crate) fn restore(&mut self, id: i64, row: &[u8]) -> bool {
        if id < 0 {
            let transactions = self.transactions.get_or_insert_default();
            return match id {
                OPEN_KEY => transactions.restore_open(row),
                _ => transactions.restore_aborted(aborted_end(id), row),
            };
        }
        let Some(producer) = Producer::decode(id, row) else {
            return false;
        };
        match self.find(ProducerId(id)) {
            Ok(index) => drop(self.known.get_mut(index).map(|known| *known = producer)),
            Err(index) => self.known.insert(index, producer),
        }
        true
    }

    /// Decodes the end of a log's row of old versions, which had no rows of producers:
    /// `u32 producers, each: i64 id, i16 epoch, i64 seen, u8 batches, each: i32 first, i32 last, u64 base`
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let mut producers = Self::default();
        for _ in 0..reader.u32()? {
            let id = reader.i64()?;
            let epoch = reader.u16()?.cast_signed();
            let seen_at = Moment {
                clock: reader.i64()?,
                running: 0,
            };
            producers.known.push(Producer {
                id,
                epoch,
                is_changed: false,
                seen_at,
                batches: decode_batches(reader)?,
            });
        }
        producers.change_all();
        Some(producers)
    }
}

fn aborted_key(end: Offset) -> i64 {
    -1 - end.0.cast_signed()
}

fn aborted_end(key: i64) -> Offset {
    Offset((-1 - key).cast_unsigned())
}

impl Producer {
    /// Lists it for the next checkpoint.
    fn mark_changed(&mut self, changed: &mut Vec<i64>) {
        if !self.is_changed {
            self.is_changed = true;
            changed.push(self.id);
        }
    }

    fn last_base(&self) -> Option<Offset> {
        self.batches.last().map(|sent| sent.base)
    }

    /// Encodes the row: `i64 seen by the clock, i64 seen in running time, i16 epoch, u8 batches, each: i32
    /// first, i32 last, u64 base`
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(19 + 16 * self.batches.len());
        out.extend_from_slice(&self.seen_at.clock.to_le_bytes());
        out.extend_from_slice(&self.seen_at.running.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.push(u8::try_from(self.batches.len()).unwrap_or(0));
        for sent in &self.batches {
            out.extend_from_slice(&sent.first.to_le_bytes());
            out.extend_from_slice(&sent.last.to_le_bytes());
            out.extend_from_slice(&sent.base.0.to_le_bytes());
        }
        out
    }

    fn decode(id: i64, row: &[u8]) -> Option<Self> {
        let mut reader = Reader(row);
        let seen_at = Moment {
            clock: reader.i64()?,
            running: reader.i64()?,
        };
        Some(Self {
            id,
            epoch: reader.u16()?.cast_signed(),
            is_changed: false,
            seen_at,
            batches: decode_batches(&mut reader)?,
        })
    }
}

fn decode_batches(reader: &mut Reader<'_>) -> Option<SmallVec<[SentBatch; 1]>> {
    (0..reader.u8()?)
        .map(|_| {
            let (first, last) = (reader.u32()?.cast_signed(), reader.u32()?.cast_signed());
            Some(SentBatch {
                first,
                last,
                base: Offset(reader.u64()?),
            })
        })
        .collect()
}

/// Returns the sequence number `steps` behind another: 0 follows 2^31 - 1.
pub(crate) fn sequence_after(sequence: i32, steps: i32) -> i32 {
    let sum = (i64::from(sequence) + i64::from(steps)) & i64::from(i32::MAX);
    i32::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests;
