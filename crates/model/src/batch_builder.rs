//! Builds a batch out of records.
//!
//! The batch starts at offset 0 and belongs to no epoch yet: both are patched where it is stored (see
//! [`crate::batch::placement`]). Its first record gives the base timestamp.

use bytes::Bytes;

use crate::batch::{
    APPEND_TIME_BIT, BatchError, BatchHeader, CONTROL_BIT, Codec, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    TRANSACTIONAL_BIT,
};
use crate::compression;
use crate::id::ProducerId;
use crate::record::{self, Record};

/// The leader epoch of a batch that no leader has stored.
pub(crate) const NO_LEADER_EPOCH: i32 = -1;
const BATCH_BYTES_MAX: usize = i32::MAX as usize + LENGTH_PREFIX_BYTES;

/// A batch in the making.
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
    /// Room for the header, then the records.
    bytes: Vec<u8>,
}

impl BatchBuilder {
    pub fn new(codec: Codec) -> Self {
        Self::with_capacity(codec, 0)
    }

    /// A builder that has room for `record_bytes` of records, before compression.
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

    /// States which idempotent producer the batch is from, and the sequence number of its first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = id.0;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// The batch is part of a transaction of its producer.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// The batch holds marks of the broker (a transaction's end), not records of a producer.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes |= CONTROL_BIT;
        self
    }

    /// All records count as written at `timestamp`, whatever their own says.
    #[must_use]
    pub fn append_time(mut self, timestamp: i64) -> Self {
        self.attributes |= APPEND_TIME_BIT;
        self.append_time = Some(timestamp);
        self
    }

    /// Adds a record. After an error the batch is as it was before.
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

    /// Records so far.
    pub fn len(&self) -> usize {
        usize::try_from(self.record_count).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes of the batch so far, header included, before compression.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch. There is none without records.
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

/// Room for a header and the records, compressed, that lie in `bytes` behind such room.
pub(crate) fn pack(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut packed = Vec::with_capacity(HEADER_BYTES + bytes.len() / 2);
    packed.resize(HEADER_BYTES, 0);
    compression::compress(codec, bytes.get(HEADER_BYTES..).unwrap_or_default(), &mut packed)?;
    Ok(packed)
}

/// Makes a batch of `header` and what lies in `bytes` behind room for it.
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
