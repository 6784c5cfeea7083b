//! Builds a batch from records.
//!
//! The batch starts at offset 0 and has no epoch: both are patched when it is stored (see
//! [`crate::batch::placement`]). Its first record gives the base timestamp.

use bytes::Bytes;

use crate::batch::{
    APPEND_TIME_BIT, BatchError, BatchHeader, CONTROL_BIT, Codec, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    TRANSACTIONAL_BIT,
};
use crate::compression;
use crate::id::ProducerId;
use crate::record::{self, Record};

/// Leader epoch of a batch that is not stored yet.
pub(crate) const NO_LEADER_EPOCH: i32 = -1;
const BATCH_BYTES_MAX: usize = i32::MAX as usize + LENGTH_PREFIX_BYTES;

/// A batch under construction.
#[derive(Debug)]
pub struct BatchBuilder {
    codec: Codec,
    attributes: u16,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    append_time: Option<i64>,
    record_count: i32,
    /// Space for the header, then the records.
    bytes: Vec<u8>,
}

impl BatchBuilder {
    pub fn new(codec: Codec) -> Self {
        Self::with_capacity(codec, 0)
    }

    /// Creates a builder with capacity for `record_bytes` of records, before compression.
    pub fn with_capacity(codec: Codec, record_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + record_bytes);
        bytes.resize(HEADER_BYTES, 0);
        Self {
            codec,
            attributes: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            base_timestamp: -1,
            max_timestamp: -1,
            append_time: None,
            record_count: 0,
            bytes,
        }
    }

    /// Sets the idempotent producer and the sequence number of the first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = id.0;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of a transaction of its producer.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Marks the batch as control batch: it holds markers of the broker (end of a transaction), not records
    /// of a producer.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes |= CONTROL_BIT;
        self
    }

    /// Gives all records the timestamp `timestamp` instead of their own.
    #[must_use]
    pub fn append_time(mut self, timestamp: i64) -> Self {
        self.attributes |= APPEND_TIME_BIT;
        self.append_time = Some(timestamp);
        self
    }

    /// Adds a record. After an error the batch is unchanged.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), BatchError> {
        let timestamp = record.timestamp;
        let (base, max) = if self.record_count == 0 {
            (timestamp, timestamp)
        } else {
            (self.base_timestamp, self.max_timestamp)
        };
        let delta = timestamp
            .checked_sub(base)
            .ok_or(BatchError::Timestamps { base, max: timestamp })?;
        let before = self.bytes.len();
        let written = record::write(record, delta, self.record_count, &mut self.bytes);
        if written.is_none() || self.bytes.len() > BATCH_BYTES_MAX {
            self.bytes.truncate(before);
            return Err(BatchError::TooLarge {
                limit: BATCH_BYTES_MAX,
            });
        }
        self.base_timestamp = base;
        self.max_timestamp = max.max(timestamp);
        self.record_count += 1;
        Ok(())
    }

    /// Returns the number of records so far.
    pub fn len(&self) -> usize {
        usize::try_from(self.record_count).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Returns the size of the batch so far, header included, before compression.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Finishes the batch. An error if it has no records.
    pub fn finish(self) -> Result<Bytes, BatchError> {
        if self.is_empty() {
            return Err(BatchError::Counts {
                records: 0,
                last_offset_delta: -1,
            });
        }
        let header = BatchHeader {
            base_offset: 0,
            bytes: 0,
            leader_epoch: NO_LEADER_EPOCH,
            magic: MAGIC,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: self.record_count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        let header = header.with_codec(self.codec);
        if self.codec == Codec::None {
            seal(header, self.bytes)
        } else {
            seal(header, pack(self.codec, &self.bytes)?)
        }
    }
}

/// Compresses the records in `bytes`, which start behind space for a header. The result has that space too.
pub(crate) fn pack(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut packed = Vec::with_capacity(HEADER_BYTES + bytes.len() / 2);
    packed.resize(HEADER_BYTES, 0);
    compression::compress(codec, bytes.get(HEADER_BYTES..).unwrap_or_default(), &mut packed)?;
    Ok(packed)
}

/// Writes `header` into the space at the front of `bytes` and returns the batch.
pub(crate) fn seal(header: BatchHeader, mut bytes: Vec<u8>) -> Result<Bytes, BatchError> {
    if bytes.len() > BATCH_BYTES_MAX {
        return Err(BatchError::TooLarge {
            limit: BATCH_BYTES_MAX,
        });
    }
    if let Some((head, body)) = bytes.split_first_chunk_mut::<HEADER_BYTES>() {
        *head = header.seal(body);
    }
    Ok(bytes.into())
}
