//! Control batches that end a transaction of a producer.
//!
//! Bit-compatible with the control records of Kafka (message format in Kafka's documentation, section
//! 5.3.2.1): one record, key `i16 version, i16 type`, value `i16 version, i32 coordinator epoch`.

use bytes::Bytes;

use crate::batch::{BatchHeader, Codec};
use crate::batch_builder::BatchBuilder;
use crate::id::ProducerId;
use crate::record::Record;
use crate::records::records;

const ABORT: [u8; 4] = [0, 0, 0, 0];
const COMMIT: [u8; 4] = [0, 0, 0, 1];
/// Version 0, coordinator epoch 0.
const VALUE: [u8; 6] = [0; 6];
/// Most bytes of the record of a control batch.
const RECORD_BYTES_MAX: usize = 1024;

/// End of a transaction: its batches count, or are as if they had not been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionEnd {
    Abort,
    Commit,
}

/// Returns the control batch that ends the transaction of a producer. `now_ms` is in milliseconds since 1970.
///
/// # Panics
///
/// Never: one small record always fits.
pub fn end_marker(producer: ProducerId, epoch: i16, end: TransactionEnd, now_ms: i64) -> Bytes {
    let key = match end {
        TransactionEnd::Abort => ABORT,
        TransactionEnd::Commit => COMMIT,
    };
    let record = Record {
        key: Some(&key),
        value: Some(&VALUE),
        headers: &[],
        timestamp: now_ms,
    };
    let mut builder = BatchBuilder::new(Codec::None)
        .producer(producer, epoch, -1)
        .transactional()
        .control();
    builder.push(&record).expect("one small record fits");
    builder.finish().expect("there is a record")
}

/// Returns the end that a control batch says; `None` for every other batch.
pub fn transaction_end(header: &BatchHeader, batch: &Bytes) -> Option<TransactionEnd> {
    if !header.is_control() {
        return None;
    }
    let record = records(batch, RECORD_BYTES_MAX).ok()?.next()?.ok()?;
    match record.key?.get(2..4)? {
        [0, 0] => Some(TransactionEnd::Abort),
        [0, 1] => Some(TransactionEnd::Commit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_says_how_its_transaction_ended() {
        for end in [TransactionEnd::Abort, TransactionEnd::Commit] {
            let marker = end_marker(ProducerId(7), 3, end, 5);
            let header = BatchHeader::verify(&marker).unwrap();
            assert!(header.is_control() && header.is_transactional());
            let fields = (header.producer_id, header.producer_epoch, header.base_sequence);
            assert_eq!((fields, header.span()), ((7, 3, -1), 1));
            assert_eq!(transaction_end(&header, &marker), Some(end));
        }
    }

    #[test]
    fn other_batches_end_nothing() {
        let record = Record {
            key: Some(&COMMIT),
            value: Some(&VALUE),
            headers: &[],
            timestamp: 0,
        };
        let built = |builder: BatchBuilder, record: &Record<'_>| {
            let mut builder = builder;
            builder.push(record).unwrap();
            builder.finish().unwrap()
        };
        let plain = built(BatchBuilder::new(Codec::None), &record);
        assert_eq!(
            transaction_end(&BatchHeader::parse(&plain).unwrap(), &plain),
            None
        );
        for key in [None, Some(&[0, 0, 0, 2][..]), Some(&[0, 0])] {
            let batch = built(
                BatchBuilder::new(Codec::None).control(),
                &Record { key, ..record },
            );
            assert_eq!(
                transaction_end(&BatchHeader::parse(&batch).unwrap(), &batch),
                None
            );
        }
    }
}
