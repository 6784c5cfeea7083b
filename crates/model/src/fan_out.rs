//! Rebuilds a batch with a part of another batch's records.
//!
//! A stored batch may belong to several logs, with different records in each. A log with all of its records
//! is served the batch as stored; a log with a part of them, a batch built here.

use std::ops::Range;

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::batch_builder::{pack, seal};
use crate::id::Offset;
use crate::record;
use crate::records::{block, for_each_raw, readable, timestamp};

/// Selection of records of a batch, by index.
#[derive(Debug, Clone)]
pub enum Selection<'a> {
    /// Records of a range; the part beyond the batch's last record is ignored.
    Range(Range<u32>),
    /// Records whose bit is set: record `i` is bit `i % 8`, from the lowest, of byte `i / 8`.
    Bitmap(&'a [u8]),
}

/// Offsets of the selected records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Deltas of the source, with gaps: the first selected record need not be at the base offset, and the
    /// batch takes as many offsets as the source.
    Keep,
    /// Deltas 0, 1, 2, …
    Renumber,
}

impl Selection<'_> {
    pub fn contains(&self, index: u32) -> bool {
        match self {
            Self::Range(range) => range.contains(&index),
            Self::Bitmap(bits) => {
                let byte = usize::try_from(index / 8).ok().and_then(|at| bits.get(at));
                byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
            }
        }
    }
}

/// Builds a batch at `base` from the records of `source` that `selection` contains.
///
/// Codec, timestamps, producer and leader epoch are the source's; the max timestamp is that of the selected
/// records (or the source's append time). If compression fails, the records stay uncompressed. Selecting
/// nothing is an error: there are no batches without records.
pub fn select(
    source: &Bytes,
    selection: &Selection<'_>,
    numbering: Numbering,
    base: Offset,
    bytes_max: usize,
) -> Result<Bytes, BatchError> {
    let header = readable(source)?;
    let block = block(&header, source, bytes_max)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + block.len());
    bytes.resize(HEADER_BYTES, 0);
    let (mut count, mut latest) = (0, i64::MIN);
    for_each_raw(&header, &block, |index, raw| {
        if !selection.contains(index) {
            return Ok(true);
        }
        let offset_delta = if numbering == Numbering::Renumber {
            count
        } else {
            raw.offset_delta
        };
        record::write_moved(&raw, offset_delta, &mut bytes);
        latest = latest.max(timestamp(&header, &raw).ok_or(BatchError::Record { index })?);
        count += 1;
        Ok(true)
    })?;
    let last_offset_delta = if numbering == Numbering::Renumber {
        count - 1
    } else {
        header.last_offset_delta
    };
    if count == 0 {
        return Err(BatchError::Counts {
            records: 0,
            last_offset_delta,
        });
    }
    let base_offset = i64::try_from(base.0).unwrap_or(i64::MAX);
    let part = BatchHeader {
        base_offset,
        last_offset_delta,
        record_count: count,
        max_timestamp: latest,
        ..header
    };
    let codec = header.codec()?;
    if codec == Codec::None {
        return seal(part, bytes);
    }
    match pack(codec, &bytes) {
        Ok(packed) => seal(part, packed),
        Err(_) => seal(part.with_codec(Codec::None), bytes),
    }
}
