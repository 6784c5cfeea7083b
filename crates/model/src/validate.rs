//! Checks of a batch from a producer; made once, when it is received.
//!
//! Modelled on Kafka's broker (`LogValidator` and the append path of Kafka 4.3); a test compares the answers
//! of both to the same bytes. Everything refused there is refused here, except in the first line; some more
//! is refused here:
//!
//! | | Kafka 4.3 | here |
//! |---|---|---|
//! | compressed records | decompressed and walked | only if [`ProduceLimits::deep`]; else count bounded |
//! | append-time bit set | refused if the topic keeps append time or timestamps are missing | refused |
//! | max timestamp is not that of the records | corrected | see below |
//! | offset deltas that are not 0, 1, 2, … | stored as they are, unless compressed | refused |
//! | producer id with an epoch of -1, producer id below -1 | accepted | refused |
//! | key or value length below -1 | taken as none | refused |
//! | bytes behind the batch that are too few for another one | ignored | refused by [`sole_batch`] |
//!
//! [`sole_batch`] corrects the max timestamp if it walks the records or if that is earlier than the base
//! timestamp; [`validate_produced`] refuses it. A transactional batch without a producer id is refused here;
//! Kafka refuses the request before. Not checked here: creation times far off the clock, and keys on
//! compacted topics.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::compression;
use crate::record::{self, RECORD_BYTES_MIN};
use crate::records::block;

/// Value of an unknown timestamp. Times before 1970 are below it.
const NO_TIMESTAMP: i64 = -1;

/// Limits on a batch from a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceLimits {
    /// Bytes of a batch as sent, header included.
    pub batch_bytes_max: usize,
    pub records_max: u32,
    /// True if compressed records are decompressed and walked.
    pub deep: bool,
    /// Bytes that they may take decompressed.
    pub decompressed_bytes_max: usize,
}

impl Default for ProduceLimits {
    fn default() -> Self {
        Self {
            batch_bytes_max: (1 << 20) + 12,
            records_max: 1 << 20,
            deep: false,
            decompressed_bytes_max: 64 << 20,
        }
    }
}

/// Checks the batch at the front of `bytes`, which may continue behind it.
///
/// Compressed records are examined only if [`ProduceLimits::deep`] is set. Otherwise their count is bounded
/// by the compressed size: 7 bytes per record, at the codec's maximum ratio.
pub fn validate_produced(bytes: &[u8], limits: &ProduceLimits) -> Result<BatchHeader, BatchError> {
    let (header, max) = check(bytes, limits)?;
    let (base, stated) = (header.base_timestamp, header.max_timestamp);
    let sound = match max {
        Some(max) => max == stated,
        None => stated == NO_TIMESTAMP || stated >= base,
    };
    sound
        .then_some(header)
        .ok_or(BatchError::Timestamps { base, max: stated })
}

/// Validates like [`validate_produced`], but decompresses compressed records.
pub fn validate_deep(bytes: &[u8], limits: &ProduceLimits) -> Result<BatchHeader, BatchError> {
    validate_produced(
        bytes,
        &ProduceLimits {
            deep: true,
            ..*limits
        },
    )
}

/// Checks that `bytes` are exactly one batch, as a producer has to send for a partition, and returns it with
/// its header.
///
/// The returned batch shares `bytes`, unless its max timestamp is not that of its records (some producers
/// leave it at -1 or set that of the last record): then it is a corrected copy.
pub fn sole_batch(bytes: &Bytes, limits: &ProduceLimits) -> Result<(Bytes, BatchHeader), BatchError> {
    let (mut header, mut max) = check(bytes, limits)?;
    if bytes.len() > header.bytes {
        return Err(BatchError::Trailing {
            bytes: bytes.len() - header.bytes,
        });
    }
    if max.is_none() && (header.max_timestamp == NO_TIMESTAMP || header.max_timestamp < header.base_timestamp)
    {
        max = check(
            bytes,
            &ProduceLimits {
                deep: true,
                ..*limits
            },
        )?
        .1;
    }
    match max {
        Some(max) if max != header.max_timestamp => {
            header.max_timestamp = max;
            let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
            let head = header.seal(body);
            let whole = Bytes::from([&head[..], body].concat());
            let header = BatchHeader::parse(&whole)?;
            Ok((whole, header))
        }
        _ => Ok((bytes.clone(), header)),
    }
}

/// Returns the header and, if the records were walked, their max timestamp.
fn check(bytes: &[u8], limits: &ProduceLimits) -> Result<(BatchHeader, Option<i64>), BatchError> {
    let header = BatchHeader::parse(bytes)?;
    // Before the checksum is computed over all of it.
    if header.bytes > limits.batch_bytes_max {
        return Err(BatchError::Oversized {
            bytes: header.bytes,
            limit: limits.batch_bytes_max,
        });
    }
    let header = BatchHeader::verify(bytes)?;
    check_header(&header, limits)?;
    let codec = header.codec()?;
    if codec == Codec::None || limits.deep {
        let block = block(&header, bytes, limits.decompressed_bytes_max)?;
        let max = walk(&header, &block)?;
        return Ok((header, Some(max)));
    }
    let stored = header.bytes - HEADER_BYTES;
    let records = usize::try_from(header.record_count).unwrap_or(usize::MAX);
    if records.saturating_mul(RECORD_BYTES_MIN) > stored.saturating_mul(compression::ratio_max(codec)) {
        return Err(BatchError::Implausible {
            records: header.record_count,
            bytes: stored,
        });
    }
    Ok((header, None))
}

fn check_header(header: &BatchHeader, limits: &ProduceLimits) -> Result<(), BatchError> {
    if header.base_offset != 0 {
        return Err(BatchError::BaseOffset(header.base_offset));
    }
    let records = header.record_count;
    if records <= 0 || header.last_offset_delta != records - 1 {
        return Err(BatchError::Counts {
            records,
            last_offset_delta: header.last_offset_delta,
        });
    }
    if records.cast_unsigned() > limits.records_max {
        return Err(BatchError::TooManyRecords {
            records,
            limit: limits.records_max,
        });
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if header.is_append_time() {
        return Err(BatchError::AppendTime);
    }
    let known = header.producer_id >= 0;
    let numbered = header.producer_epoch >= 0 && header.base_sequence >= 0;
    if header.producer_id < -1 || known && !numbered || header.is_transactional() && !known {
        return Err(BatchError::Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
            sequence: header.base_sequence,
        });
    }
    Ok(())
}

/// Walks the records: each is well formed, offsets are 0, 1, 2, …, and nothing follows. Returns the latest
/// timestamp.
///
/// Runs for every record that is sent: it allocates nothing, and checks the timestamps for overflow once, at
/// the end.
fn walk(header: &BatchHeader, block: &[u8]) -> Result<i64, BatchError> {
    let mut rest = block;
    let (mut earliest, mut latest) = (i64::MAX, i64::MIN);
    for index in 0..header.record_count {
        let malformed = BatchError::Record {
            index: index.cast_unsigned(),
        };
        let (raw, behind) = record::read(rest).ok_or(malformed)?;
        if raw.offset_delta != index {
            return Err(malformed);
        }
        earliest = earliest.min(raw.timestamp_delta);
        latest = latest.max(raw.timestamp_delta);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(BatchError::Record {
            index: header.record_count.cast_unsigned(),
        });
    }
    let base = header.base_timestamp;
    match (base.checked_add(earliest), base.checked_add(latest)) {
        (Some(_), Some(latest)) => Ok(latest),
        _ => Err(BatchError::Timestamps {
            base,
            max: header.max_timestamp,
        }),
    }
}
