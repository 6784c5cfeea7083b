//! Gives a batch the time of its append, for topics that keep that instead of the records' creation time.

use bytes::Bytes;

use crate::batch::{APPEND_TIME_BIT, BatchError, BatchHeader, HEADER_BYTES};
use crate::records::readable;

/// A batch in two pieces: a header of its own, and records that are shared with the batch it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitBatch {
    pub head: [u8; HEADER_BYTES],
    pub body: Bytes,
}

impl SplitBatch {
    /// The batch in one piece, copied.
    pub fn join(&self) -> Bytes {
        [&self.head[..], &self.body[..]].concat().into()
    }
}

/// The batch at the front of `batch` with append time: max timestamp and timestamp type are set, the checksum
/// follows. Base timestamp and records stay as they are, since readers use neither any more; this is what
/// Kafka does.
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
