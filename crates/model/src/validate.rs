//! What has to hold for a batch that a producer sends; checked once, where it comes in.
//!
//! The model is the check of Kafka's broker (`LogValidator` and the append path of Kafka 4.3), and a test
//! holds the answers of both to the same bytes side by side. What is refused there is refused here, with one
//! exception, the first line; some more things are refused here:
//!
//! | | Kafka 4.3 | here |
//! |---|---|---|
//! | compressed records | always decompressed and walked | only with [`ProduceLimits::deep`]; else the record count is bounded |
//! | append-time bit set by a producer | refused if the topic keeps append time or the records have no timestamp | refused |
//! | max timestamp is not that of the records | put right in silence | the same in [`sole_batch`], where records are walked or it is earlier than the first; [`validate_produced`] refuses it |
//! | offset deltas that are not 0, 1, 2, … | stored as they are, unless compressed | refused |
//! | producer id with an epoch of -1, producer id below -1 | taken | refused |
//! | key or value length below -1 | taken for none | refused |
//! | bytes behind the batch that are too few for another one | ignored | refused by [`sole_batch`] |
//!
//! A batch marked transactional without a producer id is refused here; Kafka refuses the request before it
//! looks. Creation times far off the clock, and keys on compacted topics, are the topic's affair and not
//! checked here.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::compression;
use crate::record::{self, RECORD_BYTES_MIN};
use crate::records::block;

/// What stands where a timestamp is not known. Times before 1970 are below it.
const NO_TIMESTAMP: i64 = -1;

/// How much a producer may send at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceLimits {
    /// Bytes of a batch as it is sent, header included.
    pub batch_bytes_max: usize,
    pub records_max: u32,
    /// Whether compressed records are decompressed and walked.
    pub deep: bool,
    /// Bytes that they may take then.
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

/// Checks the one batch at the front of `bytes`, which may go on behind it.
///
/// Compressed records are not looked at unless [`ProduceLimits::deep`] is set. Their count is then bounded by
/// what so many bytes can hold at most: 7 bytes a record, at the codec's greatest possible ratio.
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

/// As [`validate_produced`], decompressing whatever is compressed.
pub fn validate_deep(bytes: &[u8], limits: &ProduceLimits) -> Result<BatchHeader, BatchError> {
    validate_produced(
        bytes,
        &ProduceLimits {
            deep: true,
            ..*limits
        },
    )
}

/// Checks that `bytes` are one batch and nothing else, which is what a producer may send for a partition, and
/// returns it with its header.
///
/// The batch shares the bytes given, but for one case: where its max timestamp is not that of its records
/// (some producers leave it at -1, or have that of the last record there) it is a copy in which that is put
/// right.
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

/// Returns the header and, where the records were walked, their max timestamp.
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

/// Walks the records: each one sound, offsets 0, 1, 2, …, nothing left over. Returns the latest timestamp.
///
/// This runs for every record that is sent: it takes no memory, and leaves sums over all records to the end.
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
