//! One record of a batch's records block: layout, encoding and decoding.
//!
//! ```text
//! varint   length of the rest
//! i8       attributes, unused
//! varlong  timestamp delta, to the batch's base timestamp
//! varint   offset delta, to the batch's base offset
//! varint   key length, -1: none     key
//! varint   value length, -1: none   value
//! varint   header count
//!          each: varint key length, key, varint value length, -1: none, value
//! ```
//!
//! Decoding allocates and copies nothing. Kafka's broker takes every negative key or value length for "none";
//! here only -1 is, since no producer writes another one.

use crate::varint;

/// Minimum size of a record: each of its seven fields takes at least one byte.
pub(crate) const RECORD_BYTES_MIN: usize = 7;

/// Key and value of a header.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record to be added to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
    /// Milliseconds since 1970; -1: none.
    pub timestamp: i64,
}

/// A record decoded in place, in a records block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) header_count: u32,
    pub(crate) headers: &'a [u8],
    /// Attributes and timestamp delta, encoded.
    pub(crate) before_offset: &'a [u8],
    /// Key, value and headers, encoded.
    pub(crate) behind_offset: &'a [u8],
}

/// Reads the record at the front of `block`; `None` if it is malformed.
#[inline]
pub(crate) fn read(block: &[u8]) -> Option<(RawRecord<'_>, &[u8])> {
    let (length, rest) = varint::read_i32(block)?;
    let (record, next) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let (_attributes, rest) = record.split_first()?;
    let (timestamp_delta, rest) = varint::read_i64(rest)?;
    let before_offset = record.get(..record.len() - rest.len())?;
    let (offset_delta, behind_offset) = varint::read_i32(rest)?;
    let (key, rest) = read_optional(behind_offset)?;
    let (value, rest) = read_optional(rest)?;
    let (header_count, headers) = varint::read_i32(rest)?;
    let header_count = u32::try_from(header_count).ok()?;
    if header_count == 0 {
        if !headers.is_empty() {
            return None;
        }
    } else if !headers_fill(header_count, headers) {
        return None;
    }
    let raw = RawRecord {
        timestamp_delta,
        offset_delta,
        key,
        value,
        header_count,
        headers,
        before_offset,
        behind_offset,
    };
    Some((raw, next))
}

/// Reads the header at the front of `headers`.
pub(crate) fn read_header(headers: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (key, rest) = read_optional(headers)?;
    let (value, rest) = read_optional(rest)?;
    Some(((key?, value), rest))
}

/// Writes `record`. `None`, with nothing written, if a length does not fit the layout.
pub(crate) fn write(
    record: &Record<'_>,
    timestamp_delta: i64,
    offset_delta: i32,
    out: &mut Vec<u8>,
) -> Option<()> {
    let header_count = i32::try_from(record.headers.len()).ok()?;
    let mut length = 1 + varint::len_i64(timestamp_delta) + varint::len_i64(offset_delta.into());
    length += optional_bytes(record.key)? + optional_bytes(record.value)?;
    length += varint::len_i64(header_count.into());
    for (key, value) in record.headers {
        length += optional_bytes(Some(key))? + optional_bytes(*value)?;
    }
    varint::write_i32(i32::try_from(length).ok()?, out);
    out.push(0);
    varint::write_i64(timestamp_delta, out);
    varint::write_i32(offset_delta, out);
    write_optional(record.key, out);
    write_optional(record.value, out);
    varint::write_i32(header_count, out);
    for (key, value) in record.headers {
        write_optional(Some(key), out);
        write_optional(*value, out);
    }
    Some(())
}

/// Copies `raw` with another offset delta.
pub(crate) fn write_moved(raw: &RawRecord<'_>, offset_delta: i32, out: &mut Vec<u8>) {
    let length = raw.before_offset.len() + varint::len_i64(offset_delta.into()) + raw.behind_offset.len();
    varint::write_i64(i64::try_from(length).unwrap_or(i64::MAX), out);
    out.extend_from_slice(raw.before_offset);
    varint::write_i32(offset_delta, out);
    out.extend_from_slice(raw.behind_offset);
}

#[inline]
fn read_optional(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = varint::read_i32(bytes)?;
    if length == -1 {
        return Some((None, rest));
    }
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((Some(value), rest))
}

fn headers_fill(count: u32, mut headers: &[u8]) -> bool {
    for _ in 0..count {
        let Some((_, rest)) = read_header(headers) else {
            return false;
        };
        headers = rest;
    }
    headers.is_empty()
}

fn optional_bytes(value: Option<&[u8]>) -> Option<usize> {
    let Some(value) = value else { return Some(1) };
    let length = i32::try_from(value.len()).ok()?;
    Some(varint::len_i64(length.into()) + value.len())
}

fn write_optional(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => varint::write_i32(-1, out),
        Some(value) => {
            varint::write_i64(i64::try_from(value.len()).unwrap_or(i64::MAX), out);
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_written() {
        let headers: [Header<'_>; 2] = [(b"a", None), (b"", Some(b"1"))];
        let record = Record {
            key: Some(b"k"),
            value: None,
            headers: &headers,
            timestamp: 0,
        };
        let mut bytes = Vec::new();
        write(&record, -70, 300, &mut bytes).unwrap();
        let (raw, rest) = read(&bytes).unwrap();
        assert!(rest.is_empty());
        assert_eq!((raw.timestamp_delta, raw.offset_delta), (-70, 300));
        assert_eq!((raw.key, raw.value, raw.header_count), (Some(&b"k"[..]), None, 2));
        let (first, behind) = read_header(raw.headers).unwrap();
        assert_eq!(first, headers[0]);
        assert_eq!(read_header(behind).unwrap(), (headers[1], &[][..]));
    }

    #[test]
    fn the_smallest_record_takes_the_minimum() {
        let mut bytes = Vec::new();
        write(&Record::default(), 0, 0, &mut bytes).unwrap();
        assert_eq!(bytes.len(), RECORD_BYTES_MIN);
        assert!(read(&bytes).is_some());
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let sound = [12, 0, 0, 0, 1, 1, 0];
        assert!(read(&sound).is_some());
        for (at, value, what) in [
            (0, 14, "a record longer than the block"),
            (0, 10, "a record shorter than its fields"),
            (0, 1, "a negative length"),
            (4, 3, "a key length of -2"),
            (4, 2, "a key that eats the value length"),
            (6, 2, "a header that is not there"),
            (6, 1, "a negative header count"),
        ] {
            let mut bytes = sound;
            bytes[at] = value;
            assert!(read(&bytes).is_none(), "{what}");
        }
        assert!(
            read(&[14, 0, 0, 0, 1, 1, 0, 0]).is_none(),
            "a byte left over in the record"
        );
        assert!(
            read(&[16, 0, 0, 0, 1, 1, 2, 1, 1]).is_none(),
            "a header without a key"
        );
    }

    #[test]
    fn a_moved_record_keeps_all_but_its_offset_delta() {
        let record = Record {
            key: Some(b"key"),
            value: Some(b"value"),
            headers: &[],
            timestamp: 0,
        };
        let (mut before, mut moved, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        write(&record, 5, 1000, &mut before).unwrap();
        write(&record, 5, 3, &mut expected).unwrap();
        write_moved(&read(&before).unwrap().0, 3, &mut moved);
        assert_eq!(moved, expected);
    }
}
