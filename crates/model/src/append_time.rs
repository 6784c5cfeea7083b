//! Sets the append time of a batch, for topics that keep it instead of the records' creation time.

use bytes::Bytes;

use crate::batch::{APPEND_TIME_BIT, BatchError, BatchHeader, HEADER_BYTES};
use crate::records::readable;

/// A batch in two pieces: a new header, and records shared with the source batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitBatch {
    pub head: [u8; HEADER_BYTES],
    pub body: Bytes,
}

impl SplitBatch {
    /// Copies the batch into one piece.
    pub fn join(&self) -> Bytes {
        [&self.head[..], &self.body[..]].concat().into()
    }
}

/// Returns the batch at the front of `batch` with append time: max timestamp, timestamp type and checksum are
/// set. Base timestamp and records stay, as in Kafka: readers use neither with append time.
pub fn with_append_time(batch: &Bytes, now_ms: i64) -> Result<SplitBatch, BatchError> {
    let header = readable(batch)?;
    let body = batch.slice(HEADER_BYTES..header.bytes);
    let attributes = header.attributes | APPEND_TIME_BIT;
    let head = BatchHeader {
        attributes,
        max_timestamp: now_ms,
        ..header
    }
    .seal(&body);
    Ok(SplitBatch { head, body })
}
