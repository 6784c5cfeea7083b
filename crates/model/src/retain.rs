//! Rebuilds a batch with some of its records, chosen by key: the part of compaction that reads records.
//!
//! ```text
//! before   base 100, last offset delta 4, sequence 70 │ 100 a  101 b  102 a  103 c  104 b
//! after    base 100, last offset delta 4, sequence 70 │               102 a  103 c  104 b
//! ```
//!
//! The kept records are copied with their offset and timestamp deltas. Base offset, last offset delta, base
//! timestamp and producer are those of the source, so the batch takes the same offsets and sequence numbers.
//! The max timestamp is that of the kept records. A batch may end up without records: then it is not
//! compressed, and keeps the max timestamp of its source.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::batch_builder::{pack, seal};
use crate::id::Offset;
use crate::record;
use crate::records::{block, for_each_raw, readable, timestamp};

/// A record as compaction sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRecord<'a> {
    pub offset: Offset,
    pub key: Option<&'a [u8]>,
    /// True if the record has no value: it deletes its key.
    pub is_tombstone: bool,
}

/// Result of [`retain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retained {
    /// Every record was kept: the source is the result.
    All,
    /// The batch with the kept records; at least one is gone, and at least one is left.
    Some(Bytes),
    /// No record was kept.
    Nothing,
}

/// Calls `visit` with each record of the stored batch at the front of `batch`, until it returns false.
/// `bytes_max` bounds the decompressed records.
pub fn for_each_key(
    batch: &Bytes,
    bytes_max: usize,
    mut visit: impl FnMut(KeyedRecord<'_>) -> bool,
) -> Result<(), BatchError> {
    let header = readable(batch)?;
    let block = block(&header, batch, bytes_max)?;
    let base = base_of(&header)?;
    for_each_raw(&header, &block, |index, raw| Ok(visit(keyed(base, &raw, index)?)))
}

/// Returns the indexes of the records without a key, up to `count_max` of them. `bytes_max` bounds the
/// decompressed records.
pub fn records_without_key(
    batch: &Bytes,
    bytes_max: usize,
    count_max: usize,
) -> Result<Vec<u32>, BatchError> {
    let header = readable(batch)?;
    let block = block(&header, batch, bytes_max)?;
    let mut found = Vec::new();
    for_each_raw(&header, &block, |index, raw| {
        if raw.key.is_none() {
            found.push(index);
        }
        Ok(found.len() < count_max)
    })?;
    Ok(found)
}

/// Rebuilds a stored batch with the records for which `keep` returns true. The codec stays, unless
/// compression fails. `bytes_max` bounds the decompressed records.
pub fn retain(
    batch: &Bytes,
    bytes_max: usize,
    mut keep: impl FnMut(KeyedRecord<'_>) -> bool,
) -> Result<Retained, BatchError> {
    let header = readable(batch)?;
    let block = block(&header, batch, bytes_max)?;
    let base = base_of(&header)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + block.len());
    bytes.resize(HEADER_BYTES, 0);
    let (mut count, mut latest) = (0, i64::MIN);
    for_each_raw(&header, &block, |index, raw| {
        if keep(keyed(base, &raw, index)?) {
            record::write_moved(&raw, raw.offset_delta, &mut bytes);
            latest = latest.max(timestamp(&header, &raw).ok_or(BatchError::Record { index })?);
            count += 1;
        }
        Ok(true)
    })?;
    if count == header.record_count {
        return Ok(Retained::All);
    }
    if count == 0 {
        return Ok(Retained::Nothing);
    }
    let part = BatchHeader {
        record_count: count,
        max_timestamp: latest,
        ..header
    };
    let codec = header.codec()?;
    if codec == Codec::None {
        return seal(part, bytes).map(Retained::Some);
    }
    let whole = match pack(codec, &bytes) {
        Ok(packed) => seal(part, packed),
        Err(_) => seal(part.with_codec(Codec::None), bytes),
    };
    whole.map(Retained::Some)
}

/// Builds a batch without records in place of a stored one: it takes the same offsets and sequence numbers.
pub fn emptied(batch: &Bytes) -> Result<Bytes, BatchError> {
    let header = readable(batch)?.with_codec(Codec::None);
    let empty = BatchHeader {
        record_count: 0,
        ..header
    };
    seal(empty, vec![0; HEADER_BYTES])
}

fn base_of(header: &BatchHeader) -> Result<Offset, BatchError> {
    let base = u64::try_from(header.base_offset).ok();
    let base = base.and_then(|base| Offset::ZERO.checked_add(base));
    base.ok_or(BatchError::BaseOffset(header.base_offset))
}

fn keyed<'a>(base: Offset, raw: &record::RawRecord<'a>, index: u32) -> Result<KeyedRecord<'a>, BatchError> {
    let delta = u64::try_from(raw.offset_delta).ok();
    let offset = delta.and_then(|delta| base.checked_add(delta));
    Ok(KeyedRecord {
        offset: offset.ok_or(BatchError::Record { index })?,
        key: raw.key,
        is_tombstone: raw.value.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ProducerId, Record, records};

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    const MAX: usize = 1 << 20;

    /// Builds a batch with offsets 0, 1, 2, … and timestamps 1000, 1001, 1002, …
    fn batch(codec: Codec, keys: &[Option<&str>]) -> Bytes {
        let mut builder = BatchBuilder::new(codec).producer(ProducerId(7), 1, 20);
        for (timestamp, key) in (1000..).zip(keys) {
            let record = Record {
                key: key.map(str::as_bytes),
                value: (*key != Some("gone")).then_some(b"value"),
                headers: &[(b"h", Some(b"v"))],
                timestamp,
            };
            builder.push(&record).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn kept_records_are_as_before_and_the_batch_takes_the_same_offsets() {
        for codec in CODECS {
            let source = batch(codec, &[Some("a"), Some("b"), Some("gone"), None, Some("e")]);
            let before: Vec<_> = records(&source, MAX).unwrap().map(Result::unwrap).collect();
            for mask in 1_u32..31 {
                let keep = |record: KeyedRecord<'_>| mask >> record.offset.0 & 1 == 1;
                let Retained::Some(made) = retain(&source, MAX, keep).unwrap() else {
                    panic!("some records are kept");
                };
                let header = BatchHeader::verify(&made).unwrap();
                assert_eq!(header.codec(), Ok(codec));
                assert_eq!((header.last_offset_delta, header.base_sequence), (4, 20));
                let kept: Vec<_> = records(&made, MAX).unwrap().map(Result::unwrap).collect();
                let wanted = before.iter().filter(|record| mask >> record.offset.0 & 1 == 1);
                assert!(kept.iter().eq(wanted), "{codec:?} {mask:b}");
                let latest = kept.iter().map(|record| record.timestamp).max();
                assert_eq!(Some(header.max_timestamp), latest);
            }
            assert_eq!(retain(&source, MAX, |_| true), Ok(Retained::All));
            assert_eq!(retain(&source, MAX, |_| false), Ok(Retained::Nothing));
        }
    }

    #[test]
    fn a_batch_without_records_takes_the_same_offsets_and_sequences() {
        for codec in CODECS {
            let source = batch(codec, &[Some("a"), Some("b")]);
            let empty = emptied(&source).unwrap();
            let header = BatchHeader::verify(&empty).unwrap();
            assert_eq!(
                (header.span(), header.record_count, empty.len()),
                (2, 0, HEADER_BYTES)
            );
            assert_eq!((header.producer_id, header.base_sequence), (7, 20));
            assert_eq!((header.codec(), header.max_timestamp), (Ok(Codec::None), 1001));
            assert_eq!(records(&empty, MAX).unwrap().count(), 0);
            assert_eq!(retain(&empty, MAX, |_| false), Ok(Retained::All));
        }
    }

    #[test]
    fn keys_and_tombstones_are_seen_in_any_codec() {
        for codec in CODECS {
            let source = batch(codec, &[Some("a"), None, Some("gone"), None]);
            let mut seen = Vec::new();
            for_each_key(&source, MAX, |record| {
                seen.push((
                    record.offset.0,
                    record.key.map(<[u8]>::to_vec),
                    record.is_tombstone,
                ));
                true
            })
            .unwrap();
            let gone = (2, Some(b"gone".to_vec()), true);
            assert_eq!(
                seen,
                [
                    (0, Some(b"a".to_vec()), false),
                    (1, None, false),
                    gone,
                    (3, None, false)
                ]
            );
            assert_eq!(records_without_key(&source, MAX, 9), Ok(vec![1, 3]));
            assert_eq!(records_without_key(&source, MAX, 1), Ok(vec![1]));
        }
    }
}
