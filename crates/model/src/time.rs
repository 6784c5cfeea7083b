//! Finds records of a batch by timestamp.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader};
use crate::id::Offset;
use crate::records::{block, for_each_raw, readable, timestamp};

/// Finds the first record of `batch` at or behind `from` whose timestamp is `wanted` or later; returns its
/// offset and timestamp.
///
/// The records are not read if the batch's max timestamp is earlier.
pub fn offset_for_timestamp(
    batch: &Bytes,
    wanted: i64,
    from: Offset,
    bytes_max: usize,
) -> Result<Option<(Offset, i64)>, BatchError> {
    let header = readable(batch)?;
    if header.max_timestamp < wanted {
        return Ok(None);
    }
    first(&header, batch, bytes_max, |offset, timestamp| {
        timestamp >= wanted && offset >= from
    })
}

/// Finds the first record that has the batch's max timestamp; with append time, the first record.
pub fn max_timestamp_record(batch: &Bytes, bytes_max: usize) -> Result<Option<(Offset, i64)>, BatchError> {
    let header = readable(batch)?;
    first(&header, batch, bytes_max, |_, timestamp| {
        timestamp == header.max_timestamp
    })
}

fn first(
    header: &BatchHeader,
    batch: &[u8],
    bytes_max: usize,
    wanted: impl Fn(Offset, i64) -> bool,
) -> Result<Option<(Offset, i64)>, BatchError> {
    let block = block(header, batch, bytes_max)?;
    let base =
        Offset(u64::try_from(header.base_offset).map_err(|_| BatchError::BaseOffset(header.base_offset))?);
    let mut found = None;
    for_each_raw(header, &block, |index, raw| {
        let malformed = BatchError::Record { index };
        let delta = u64::try_from(raw.offset_delta).map_err(|_| malformed)?;
        let offset = base.checked_add(delta).ok_or(malformed)?;
        let timestamp = timestamp(header, &raw).ok_or(malformed)?;
        if wanted(offset, timestamp) {
            found = Some((offset, timestamp));
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}
