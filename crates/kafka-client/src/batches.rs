//! Batches of a fetch response, split by their headers; records are not read.

use std::collections::HashSet;

use bytes::Bytes;
use stafett_model::{BatchError, BatchHeader, TransactionEnd, transaction_end};

/// Iterator over the whole batches of a partition's response. A truncated batch at the end is left out;
/// brokers may send one.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    verify: bool,
}

impl Batches {
    /// Iterates over all batches and verifies their checksums.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            verify: true,
        }
    }

    /// Iterates over all batches by their headers alone.
    pub fn unverified(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            verify: false,
        }
    }
}

impl Iterator for Batches {
    type Item = Result<(BatchHeader, Bytes), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = match BatchHeader::parse(&self.rest) {
            Ok(header) if header.bytes > self.rest.len() => return None,
            Ok(_) if self.verify => BatchHeader::verify(&self.rest),
            other => other,
        };
        match read {
            Ok(header) => Some(Ok((header, self.rest.split_to(header.bytes)))),
            Err(BatchError::Truncated { .. }) => None,
            Err(error) => {
                self.rest = Bytes::new();
                Some(Err(error))
            }
        }
    }
}

/// Aborted transactions of one response, to which each of its batches is held in order.
#[derive(Debug, Clone)]
pub struct Aborted {
    /// Producer and first offset, the lowest offset last.
    to_come: Vec<(i64, i64)>,
    producers: HashSet<i64>,
}

impl Aborted {
    /// Takes the aborted transactions of a response: producer and first offset.
    pub fn new(mut transactions: Vec<(i64, i64)>) -> Self {
        transactions.sort_unstable_by_key(|(_, first)| std::cmp::Reverse(*first));
        Self {
            to_come: transactions,
            producers: HashSet::new(),
        }
    }

    /// Returns true if the next batch belongs to an aborted transaction.
    pub fn has(&mut self, header: &BatchHeader, batch: &Bytes) -> bool {
        while let Some((producer, _)) = self
            .to_come
            .pop_if(|(_, first)| *first <= header.base_offset + i64::from(header.last_offset_delta))
        {
            self.producers.insert(producer);
        }
        if transaction_end(header, batch) == Some(TransactionEnd::Abort) {
            self.producers.remove(&header.producer_id);
        }
        header.is_transactional() && !header.is_control() && self.producers.contains(&header.producer_id)
    }
}

/// Returns the offset behind the last whole batch of `bytes`. `None` if there is no whole batch.
pub fn next_offset(bytes: &Bytes) -> Result<Option<i64>, BatchError> {
    let mut next = None;
    for batch in Batches::unverified(bytes.clone()) {
        let (header, _) = batch?;
        let behind = header
            .base_offset
            .checked_add(i64::from(header.last_offset_delta))
            .and_then(|last| last.checked_add(1));
        next = Some(behind.ok_or(BatchError::BaseOffset(header.base_offset))?);
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use stafett_model::{BatchBuilder, Codec, ProducerId, Record, end_marker};

    use super::*;

    /// Returns a batch at an offset: records of a producer, or the end of its transaction.
    fn batch(offset: i64, producer: i64, end: Option<TransactionEnd>) -> (BatchHeader, Bytes) {
        let batch = if let Some(end) = end {
            end_marker(ProducerId(producer), 0, end, 0)
        } else {
            let builder = BatchBuilder::new(Codec::None).producer(ProducerId(producer), 0, 0);
            let mut builder = builder.transactional();
            builder.push(&Record::default()).unwrap();
            builder.finish().unwrap()
        };
        let mut header = BatchHeader::verify(&batch).unwrap();
        header.base_offset = offset;
        (header, batch)
    }

    #[test]
    fn batches_of_aborted_transactions_are_found_and_those_behind_their_ends_are_not() {
        let abort = Some(TransactionEnd::Abort);
        let commit = Some(TransactionEnd::Commit);
        let batches = [
            (batch(0, 1, None), false),
            (batch(1, 2, None), true),
            (batch(2, 1, commit), false),
            (batch(3, 1, None), true),
            (batch(4, 2, None), true),
            (batch(5, 2, abort), false),
            (batch(6, 2, None), false),
            (batch(7, 1, abort), false),
            (batch(8, 1, None), false),
        ];
        let mut aborted = Aborted::new(vec![(1, 3), (2, 1)]);
        for ((header, bytes), expected) in &batches {
            let found = aborted.has(header, bytes);
            assert_eq!(found, *expected, "at {}", header.base_offset);
        }
    }
}
