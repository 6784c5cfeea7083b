//! Reads the records of a stored batch.
//!
//! Keys, values and headers are slices of the batch if it is not compressed, otherwise of one decompressed
//! buffer; nothing is copied. The caller has verified the batch ([`BatchHeader::verify`]); even so, no input
//! causes a panic, an endless loop or more memory than the given bound.
//!
//! Offsets ascend but may have gaps: batches are also rebuilt with a part of their records.

use bytes::{Buf, Bytes};

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES, MAGIC};
use crate::compression;
use crate::id::Offset;
use crate::record::{self, RawRecord};
use crate::stored_message::StoredMessage;

/// A record of a stored batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub offset: Offset,
    /// Timestamp of the record, or of the batch's append if the batch keeps append time; -1: none.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Headers,
}

/// The headers of a record, in order; a key may occur more than once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers {
    count: u32,
    bytes: Bytes,
}

impl Headers {
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = record::Header<'_>> {
        let mut rest: &[u8] = &self.bytes;
        std::iter::from_fn(move || {
            let (header, behind) = record::read_header(rest)?;
            rest = behind;
            Some(header)
        })
    }

    /// Returns the value of the last header named `key`, like Kafka's `lastHeader`.
    pub fn last(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.iter()
            .filter(|(name, _)| *name == key)
            .last()
            .map(|(_, value)| value)
    }
}

/// Iterator over the records of one batch, in order. Ends after an error.
#[derive(Debug, Clone)]
pub struct Records {
    header: BatchHeader,
    cursor: RecordCursor,
    block: Bytes,
}

/// Reads the records of the batch at the front of `batch`; decompressed, they take at most `bytes_max`.
pub fn records(batch: &Bytes, bytes_max: usize) -> Result<Records, BatchError> {
    let header = readable(batch)?;
    let stored = batch.slice(HEADER_BYTES..header.bytes);
    let codec = header.codec()?;
    let block = if codec == Codec::None {
        stored
    } else {
        compression::decompress(codec, &stored, bytes_max)?.into()
    };
    Ok(Records {
        header,
        cursor: RecordCursor::new(&header),
        block,
    })
}

impl Records {
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Skips to the first record at or behind `offset`, without slicing the records before it. Never moves
    /// back.
    pub fn seek(&mut self, offset: Offset) -> Result<(), BatchError> {
        let base = i128::from(self.header.base_offset);
        loop {
            let mut ahead = self.cursor.clone();
            let (raw, rest) = match ahead.next(&self.block) {
                None => return Ok(()),
                Some(Err(error)) => {
                    self.cursor = ahead;
                    return Err(error);
                }
                Some(Ok(read)) => read,
            };
            if base + i128::from(raw.offset_delta) >= i128::from(offset.0) {
                return Ok(());
            }
            let used = self.block.len() - rest.len();
            self.block.advance(used);
            self.cursor = ahead;
        }
    }

    /// Returns the next record as a message.
    pub fn next_message(&mut self) -> Option<Result<(Offset, StoredMessage), BatchError>> {
        let (raw, rest) = match self.cursor.next(&self.block)? {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let message = StoredMessage::of(&self.header, &raw, &self.block, self.cursor.last_index());
        let used = self.block.len() - rest.len();
        self.block.advance(used);
        if message.is_err() {
            self.cursor.stop();
        }
        Some(message)
    }

    fn own(&self, raw: &RawRecord<'_>) -> Result<StoredRecord, BatchError> {
        let malformed = BatchError::Record {
            index: self.cursor.last_index(),
        };
        let base = u64::try_from(self.header.base_offset).map_err(|_| malformed)?;
        let delta = u64::try_from(raw.offset_delta).map_err(|_| malformed)?;
        Ok(StoredRecord {
            offset: Offset(base).checked_add(delta).ok_or(malformed)?,
            timestamp: timestamp(&self.header, raw).ok_or(malformed)?,
            key: raw.key.map(|key| self.block.slice_ref(key)),
            value: raw.value.map(|value| self.block.slice_ref(value)),
            headers: Headers {
                count: raw.header_count,
                bytes: self.block.slice_ref(raw.headers),
            },
        })
    }
}

impl Iterator for Records {
    type Item = Result<StoredRecord, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (raw, rest) = match self.cursor.next(&self.block)? {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let record = self.own(&raw);
        let used = self.block.len() - rest.len();
        self.block.advance(used);
        if record.is_err() {
            self.cursor.stop();
        }
        Some(record)
    }
}

/// Reads the header of a batch that has to be complete and of the supported layout.
pub(crate) fn readable(batch: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.bytes > batch.len() {
        return Err(BatchError::Truncated {
            given: batch.len(),
            wanted: header.bytes,
        });
    }
    if header.magic != MAGIC {
        return Err(BatchError::Magic(header.magic));
    }
    Ok(header)
}

/// Returns the effective timestamp of `raw`; `None` if it overflows.
pub(crate) fn timestamp(header: &BatchHeader, raw: &RawRecord<'_>) -> Option<i64> {
    if header.is_append_time() {
        Some(header.max_timestamp)
    } else {
        header.base_timestamp.checked_add(raw.timestamp_delta)
    }
}

/// Cursor over a records block. Requires the record count of the header, ascending offsets within the batch's
/// range, and nothing behind the last record.
#[derive(Debug, Clone)]
pub(crate) struct RecordCursor {
    index: u32,
    count: u32,
    offset_delta: i32,
    last_offset_delta: i32,
    ended: bool,
}

impl RecordCursor {
    pub(crate) fn new(header: &BatchHeader) -> Self {
        Self {
            index: 0,
            count: u32::try_from(header.record_count).unwrap_or(0),
            offset_delta: -1,
            last_offset_delta: header.last_offset_delta,
            ended: false,
        }
    }

    /// Reads the record at the front of `block`; returns it with the bytes behind it.
    pub(crate) fn next<'a>(
        &mut self,
        block: &'a [u8],
    ) -> Option<Result<(RawRecord<'a>, &'a [u8]), BatchError>> {
        if self.ended {
            return None;
        }
        if self.index == self.count {
            self.ended = true;
            return (!block.is_empty()).then_some(Err(BatchError::Record { index: self.index }));
        }
        let read = record::read(block).filter(|(raw, _)| {
            raw.offset_delta > self.offset_delta && raw.offset_delta <= self.last_offset_delta
        });
        let Some((raw, rest)) = read else {
            self.ended = true;
            return Some(Err(BatchError::Record { index: self.index }));
        };
        self.offset_delta = raw.offset_delta;
        self.index += 1;
        Some(Ok((raw, rest)))
    }

    fn last_index(&self) -> u32 {
        self.index.saturating_sub(1)
    }

    fn stop(&mut self) {
        self.ended = true;
    }
}

/// Calls `visit` with each record of `block`, in place, until it returns false.
pub(crate) fn for_each_raw<'a>(
    header: &BatchHeader,
    block: &'a [u8],
    mut visit: impl FnMut(u32, RawRecord<'a>) -> Result<bool, BatchError>,
) -> Result<(), BatchError> {
    let mut cursor = RecordCursor::new(header);
    let mut rest = block;
    while let Some(read) = cursor.next(rest) {
        let (raw, behind) = read?;
        rest = behind;
        if !visit(cursor.last_index(), raw)? {
            break;
        }
    }
    Ok(())
}

/// Returns the records block of `batch`, decompressed if necessary.
pub(crate) fn block<'a>(
    header: &BatchHeader,
    batch: &'a [u8],
    bytes_max: usize,
) -> Result<std::borrow::Cow<'a, [u8]>, BatchError> {
    let stored = batch.get(HEADER_BYTES..header.bytes).unwrap_or_default();
    let codec = header.codec()?;
    if codec == Codec::None {
        return Ok(stored.into());
    }
    Ok(compression::decompress(codec, stored, bytes_max)?.into())
}
