//! Rebuilds a batch with a part of another one's records.
//!
//! A stored batch may belong to several logs, with other records in each. A log that has all of them gets the
//! batch as it is; one that has a part gets what is made here.

use std::ops::Range;

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::batch_builder::{pack, seal};
use crate::id::Offset;
use crate::record;
use crate::records::{block, for_each_raw, readable, timestamp};

/// Which records of a batch, by their index in it.
#[derive(Debug, Clone)]
pub enum Selection<'a> {
    /// Those of a range; what it has beyond the batch's last record counts for nothing.
    Range(Range<u32>),
    /// Those whose bit is set: record `i` is bit `i % 8`, from the lowest, of byte `i / 8`.
    Bitmap(&'a [u8]),
}

/// What offsets the selected records get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The deltas that they have in the source, holes and all: the first selected record need not be at the
    /// base offset, and the batch takes as many offsets as the source.
    Keep,
    /// 0, 1, 2, …
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

/// A batch at `base` with those records of `source` that `selection` names.
///
/// Codec, timestamps, producer and leader epoch are the source's; the max timestamp is that of the records
/// selected (or the source's append time). A codec that cannot be written leaves the records uncompressed.
/// Selecting nothing is an error: there are no batches without records.
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
    let (mut count, mut latest) = (0, -1);
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
