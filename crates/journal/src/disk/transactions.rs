//! Transactions of one log: those that are open, and those that were aborted.
//!
//! A transaction of a log begins with the first transactional batch of its producer, and ends with the next
//! control batch of that producer (see [`stafett_model::end_marker`]). Both are batches of the log, so that
//! replay finds them again. Applying one again changes nothing in the end: a transaction that begins again is
//! ended again by the control batch behind it.

use std::collections::VecDeque;

use stafett_model::{Offset, ProducerId, TransactionEnd};

use super::codec::Reader;
use crate::contract::AbortedTransaction;

/// Transactions of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transactions {
    /// By their first offset.
    open: Vec<OpenTransaction>,
    /// Ended ones whose control batch may not be readable yet.
    ending: Vec<EndingTransaction>,
    /// By the offset of their control batch. Those whose records are gone, truncated or compacted away, are
    /// forgotten.
    aborted: VecDeque<AbortedTransaction>,
    /// Bound on the offsets from the begin to the end of an aborted transaction.
    span: u64,
    /// Offset before which aborted transactions are forgotten.
    forgotten: Offset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenTransaction {
    producer: ProducerId,
    first: Offset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EndingTransaction {
    first: Offset,
    /// Offset of the control batch.
    last: Offset,
}

impl Transactions {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.aborted.is_empty() && self.forgotten == Offset::ZERO
    }

    pub(crate) fn has_open(&self, producer: ProducerId) -> bool {
        self.open.iter().any(|open| open.producer == producer)
    }

    /// Returns the open transactions: producer and first offset.
    pub(crate) fn open(&self) -> impl Iterator<Item = (ProducerId, Offset)> {
        self.open.iter().map(|open| (open.producer, open.first))
    }

    /// Records a transactional batch. True if it begins a transaction.
    pub(crate) fn on_batch(&mut self, producer: ProducerId, base: Offset) -> bool {
        if self.has_open(producer) {
            return false;
        }
        let index = self.open.partition_point(|open| open.first < base);
        self.open.insert(
            index,
            OpenTransaction {
                producer,
                first: base,
            },
        );
        true
    }

    /// Records a control batch at `last`. `visible` is the end of the readable offsets.
    pub(crate) fn on_end(
        &mut self,
        producer: ProducerId,
        end: TransactionEnd,
        last: Offset,
        visible: Offset,
    ) -> Ended {
        let index = self
            .open
            .iter()
            .position(|open| open.producer == producer && open.first < last);
        let Some(index) = index else {
            return Ended::Nothing;
        };
        let first = self.open.remove(index).first;
        self.ending.retain(|ending| ending.last >= visible);
        self.ending.push(EndingTransaction { first, last });
        if end == TransactionEnd::Commit {
            return Ended::Committed;
        }
        self.add_aborted(AbortedTransaction {
            producer,
            first,
            last,
        });
        Ended::Aborted
    }

    fn add_aborted(&mut self, aborted: AbortedTransaction) {
        let at = self.aborted.partition_point(|known| known.last < aborted.last);
        if self
            .aborted
            .get(at)
            .is_none_or(|known| known.last != aborted.last)
        {
            self.span = self.span.max(aborted.last.0.saturating_sub(aborted.first.0));
            self.aborted.insert(at, aborted);
        }
    }

    /// Iterates over the aborted transactions that may have an offset in `from..=to`.
    fn aborted_near(&self, from: Offset, to: Offset) -> impl Iterator<Item = &AbortedTransaction> {
        let behind = self.aborted.partition_point(|aborted| aborted.last < from);
        let end = to.0.saturating_add(self.span);
        self.aborted
            .range(behind..)
            .take_while(move |aborted| aborted.last.0 <= end)
    }

    /// Returns the end of the decided offsets: `visible`, or the first offset of a transaction before that
    /// whose end is not readable yet.
    pub(crate) fn stable(&self, visible: Offset) -> Offset {
        let open = self.open.first().map(|open| open.first);
        let ending = self.ending.iter().filter(|ending| ending.last >= visible);
        ending
            .map(|ending| ending.first)
            .chain(open)
            .fold(visible, Offset::min)
    }

    /// Returns the aborted transactions that have an offset in `from..to`, by their first offset.
    pub(crate) fn aborted_in(&self, from: Offset, to: Offset) -> Vec<AbortedTransaction> {
        let near = self.aborted_near(from, to);
        let mut found: Vec<_> = near.filter(|aborted| aborted.first < to).copied().collect();
        found.sort_unstable_by_key(|aborted| aborted.first);
        found
    }

    /// Returns true if the batch of a producer at `base` belongs to an aborted transaction.
    pub(crate) fn is_aborted(&self, producer: ProducerId, base: Offset) -> bool {
        // Its next control batch ends the transaction of a batch, if there was one.
        let mut near = self.aborted_near(base, base);
        let of_producer = near.find(|aborted| aborted.producer == producer);
        of_producer.is_some_and(|aborted| aborted.first <= base)
    }

    /// Forgets the aborted transactions that end before `end`, where none of their records is left, and
    /// returns the offsets of their control batches.
    pub(crate) fn forget(&mut self, end: Offset) -> Vec<Offset> {
        let gone = self.aborted.partition_point(|aborted| aborted.last < end);
        let ends = self.aborted.drain(..gone).map(|aborted| aborted.last).collect();
        if gone > 0 {
            self.forgotten = self.forgotten.max(end);
        }
        if self.aborted.len() < self.aborted.capacity() / 4 {
            self.aborted.shrink_to_fit();
        }
        ends
    }

    /// Returns the offset before which aborted transactions are forgotten. A read during which it changed may
    /// have records of theirs.
    pub(crate) fn forgotten(&self) -> Offset {
        self.forgotten
    }

    /// Returns the offsets of the control batches of all aborted transactions.
    pub(crate) fn aborted_ends(&self) -> impl Iterator<Item = Offset> {
        self.aborted.iter().map(|aborted| aborted.last)
    }

    /// Encodes the open transactions, each: `i64 producer, u64 first`; `None` if there is none.
    pub(crate) fn encode_open(&self) -> Option<Vec<u8>> {
        let fields = self
            .open
            .iter()
            .flat_map(|open| [open.producer.0.to_le_bytes(), open.first.0.to_le_bytes()]);
        (!self.open.is_empty()).then(|| fields.flatten().collect())
    }

    /// Reads open transactions. False if they are malformed.
    pub(crate) fn restore_open(&mut self, row: &[u8]) -> bool {
        let mut reader = Reader(row);
        while !reader.0.is_empty() {
            let (Some(producer), Some(first)) = (reader.i64(), reader.u64()) else {
                return false;
            };
            self.on_batch(ProducerId(producer), Offset(first));
        }
        true
    }

    /// Encodes the aborted transaction whose control batch is at `last`: `i64 producer, u64 first`.
    pub(crate) fn encode_aborted(&self, last: Offset) -> Option<Vec<u8>> {
        let index = self.aborted.binary_search_by_key(&last, |aborted| aborted.last);
        let aborted = self.aborted.get(index.ok()?)?;
        Some([aborted.producer.0.to_le_bytes(), aborted.first.0.to_le_bytes()].concat())
    }

    /// Reads an aborted transaction. False if it is malformed.
    pub(crate) fn restore_aborted(&mut self, last: Offset, row: &[u8]) -> bool {
        let mut reader = Reader(row);
        let (Some(producer), Some(first)) = (reader.i64(), reader.u64()) else {
            return false;
        };
        self.add_aborted(AbortedTransaction {
            producer: ProducerId(producer),
            first: Offset(first),
            last,
        });
        true
    }
}

/// Effect of a control batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There was no transaction.
    Nothing,
    Committed,
    Aborted,
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProducerId = ProducerId(1);
    const B: ProducerId = ProducerId(2);

    #[test]
    fn nothing_behind_the_first_open_transaction_is_stable() {
        let mut log = Transactions::default();
        assert_eq!(log.stable(Offset(9)), Offset(9));
        assert!(log.on_batch(A, Offset(3)) && log.on_batch(B, Offset(5)) && !log.on_batch(A, Offset(7)));
        assert_eq!(
            (log.stable(Offset(9)), log.stable(Offset(2))),
            (Offset(3), Offset(2))
        );
        assert_eq!(
            log.on_end(A, TransactionEnd::Commit, Offset(9), Offset(9)),
            Ended::Committed
        );
        assert_eq!(log.stable(Offset(9)), Offset(3), "its end is not readable yet");
        assert_eq!(log.stable(Offset(10)), Offset(5));
        assert_eq!(
            log.on_end(B, TransactionEnd::Abort, Offset(10), Offset(10)),
            Ended::Aborted
        );
        assert_eq!(log.stable(Offset(11)), Offset(11));
        assert_eq!(
            log.on_end(B, TransactionEnd::Abort, Offset(11), Offset(11)),
            Ended::Nothing
        );
    }

    #[test]
    fn aborted_transactions_are_found_by_every_offset_of_theirs() {
        let mut log = Transactions::default();
        for n in 0..4 {
            log.on_batch(A, Offset(n * 10));
            log.on_batch(B, Offset(n * 10 + 1));
            log.on_end(A, TransactionEnd::Abort, Offset(n * 10 + 5), Offset(n * 10 + 5));
            log.on_end(B, TransactionEnd::Commit, Offset(n * 10 + 6), Offset(n * 10 + 6));
        }
        let firsts = |log: &Transactions, from, to| -> Vec<u64> {
            let found = log.aborted_in(Offset(from), Offset(to));
            found.iter().map(|aborted| aborted.first.0).collect()
        };
        assert_eq!(firsts(&log, 5, 11), [0, 10]);
        assert_eq!(firsts(&log, 6, 10), []);
        assert_eq!(firsts(&log, 12, 13), [10]);
        assert_eq!(log.forget(Offset(16)), [Offset(5), Offset(15)]);
        assert_eq!(firsts(&log, 0, 99), [20, 30]);
    }

    #[test]
    fn forgotten_transactions_take_no_memory() {
        const MANY: u64 = 1_000_000;
        let bytes = |log: &Transactions| log.aborted.capacity() * size_of::<AbortedTransaction>();
        let mut log = Transactions::default();
        for n in 0..MANY {
            log.on_batch(A, Offset(n * 2));
            log.on_end(A, TransactionEnd::Abort, Offset(n * 2 + 1), Offset(n * 2 + 1));
        }
        assert!(bytes(&log) >= 24_000_000);
        assert_eq!(log.forget(Offset(MANY * 2 - 10)).len(), 999_995);
        assert!(bytes(&log) < 1024, "five are left");
        assert_eq!(log.forgotten(), Offset(MANY * 2 - 10));
    }

    #[test]
    fn many_aborted_transactions_are_read_and_searched_in_any_order() {
        const MANY: u64 = 300_000;
        let row = |n: u64| [1_i64.to_le_bytes(), (n * 10).to_le_bytes()].concat();
        let mut log = Transactions::default();
        // A checkpoint has the latest first.
        for n in (0..MANY).rev() {
            assert!(log.restore_aborted(Offset(n * 10 + 5), &row(n)));
        }
        for n in 0..MANY {
            let (first, last) = (Offset(n * 10), Offset(n * 10 + 5));
            let found = log.aborted_in(first, last);
            assert_eq!(found.iter().map(|it| it.first).collect::<Vec<_>>(), [first]);
            assert!(log.is_aborted(A, Offset(n * 10 + 3)) && !log.is_aborted(A, Offset(n * 10 + 6)));
            assert!(!log.is_aborted(B, first));
        }
    }

    #[test]
    fn applying_batches_again_changes_nothing() {
        let apply = |log: &mut Transactions| {
            log.on_batch(A, Offset(0));
            log.on_batch(A, Offset(1));
            log.on_end(A, TransactionEnd::Abort, Offset(2), Offset(9));
            log.on_batch(B, Offset(3));
            log.on_end(B, TransactionEnd::Commit, Offset(4), Offset(9));
            log.on_batch(A, Offset(5));
        };
        let (mut once, mut twice) = (Transactions::default(), Transactions::default());
        apply(&mut once);
        apply(&mut twice);
        apply(&mut twice);
        assert_eq!(twice.open, once.open);
        assert_eq!(twice.aborted, once.aborted);
        let mut read = Transactions::default();
        assert!(read.restore_open(&once.encode_open().unwrap()));
        for end in once.aborted_ends() {
            assert!(read.restore_aborted(end, &once.encode_aborted(end).unwrap()));
        }
        assert_eq!((read.open, read.aborted), (once.open, once.aborted));
    }
}
