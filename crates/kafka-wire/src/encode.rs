//! Encoder of the protocol's primitives.
//!
//! Small values are copied into one buffer. Byte fields of [`SPLICE_BYTES_MIN`] or more are not copied: the
//! encoder notes their positions, and the finished frame is a list of chunks for a vectored write.
//!
//! Writing never fails midway: the first error is kept and reported by [`Encoder::finish`], so that generated
//! code is a straight line.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::decode::STRING_BYTES_MAX;
use crate::encoded::Encoded;
use crate::errors::EncodeError;
use crate::records::Records;
use crate::str::Str;
use crate::uuid::Uuid;
use crate::wire::Wire;

/// Minimum size of a byte field that becomes a chunk of its own.
const SPLICE_BYTES_MIN: usize = 1024;

const PREFIX_BYTES: usize = 4;
const VARINT_BYTES_MAX: usize = 5;

/// Bytes that belong at a position of the buffer, but were not copied into it.
#[derive(Debug)]
struct Splice {
    at: usize,
    bytes: Bytes,
}

/// Writer of a frame or of bare data.
#[derive(Debug)]
pub struct Encoder {
    buffer: BytesMut,
    splices: SmallVec<[Splice; 1]>,
    spliced_bytes: usize,
    framed: bool,
    error: Option<EncodeError>,
}

impl Encoder {
    /// Starts a frame, with four bytes reserved for its length.
    pub fn frame() -> Self {
        Self::frame_into(BytesMut::with_capacity(256))
    }

    /// Starts a frame whose small parts go into `buffer`. A connection can reuse the same allocation for all
    /// its frames.
    pub fn frame_into(mut buffer: BytesMut) -> Self {
        buffer.clear();
        buffer.put_bytes(0, PREFIX_BYTES);
        Self {
            buffer,
            splices: SmallVec::new(),
            spliced_bytes: 0,
            framed: true,
            error: None,
        }
    }

    /// Starts data without a length prefix.
    pub fn bare() -> Self {
        Self {
            buffer: BytesMut::new(),
            splices: SmallVec::new(),
            spliced_bytes: 0,
            framed: false,
            error: None,
        }
    }

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> usize {
        self.buffer.len() + self.spliced_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the finished bytes, or the first error.
    pub fn finish(mut self) -> Result<Encoded, EncodeError> {
        let bytes = self.len();
        if self.framed {
            let body = i32::try_from(bytes.saturating_sub(PREFIX_BYTES));
            let body = body.map_err(|_| EncodeError::TooLong { bytes })?;
            if let Some(prefix) = self.buffer.first_chunk_mut::<PREFIX_BYTES>() {
                *prefix = body.to_be_bytes();
            }
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.splices.is_empty() {
            return Ok(Encoded::new(self.buffer.freeze(), SmallVec::new(), bytes));
        }
        let mut chunks = SmallVec::with_capacity(2 * self.splices.len() + 1);
        let mut cut_at = 0;
        for Splice { at, bytes } in self.splices {
            if at > cut_at {
                chunks.push(self.buffer.split_to(at - cut_at).freeze());
                cut_at = at;
            }
            chunks.push(bytes);
        }
        if !self.buffer.is_empty() {
            chunks.push(self.buffer.freeze());
        }
        Ok(Encoded::new(Bytes::new(), chunks, bytes))
    }

    /// Keeps the reason why the message cannot be written. The first reason wins.
    pub fn refuse(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// Refuses the message if a field is set that `version` does not have.
    pub fn unsupported(&mut self, field: &'static str, version: i16, is_set: bool) {
        if is_set {
            self.refuse(EncodeError::Unsupported { field, version });
        }
    }

    /// Refuses the message if a field is null where `version` does not allow it.
    pub fn not_null(&mut self, field: &'static str, version: i16, is_null: bool) {
        if is_null {
            self.refuse(EncodeError::Null { field, version });
        }
    }

    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    pub fn f64(&mut self, value: f64) {
        self.buffer.put_f64(value);
    }

    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(&value.0);
    }

    pub fn string(&mut self, value: &Str, flexible: bool) {
        self.opt_string(Some(value), flexible);
    }

    pub fn opt_string(&mut self, value: Option<&Str>, flexible: bool) {
        let bytes = value.map_or(0, |text| text.len());
        if bytes > STRING_BYTES_MAX {
            self.refuse(EncodeError::TooLong { bytes });
            return;
        }
        if flexible {
            self.compact(value.map(|_| bytes));
        } else {
            self.i16(value.map_or(-1, |_| i16::try_from(bytes).unwrap_or(i16::MAX)));
        }
        if let Some(text) = value {
            self.buffer.put_slice(text.as_bytes());
        }
    }

    pub fn bytes(&mut self, value: &Bytes, flexible: bool) {
        self.opt_bytes(Some(value), flexible);
    }

    pub fn opt_bytes(&mut self, value: Option<&Bytes>, flexible: bool) {
        self.count(value.map(Bytes::len), flexible);
        if let Some(bytes) = value {
            self.splice(bytes);
        }
    }

    pub fn records(&mut self, value: &Records, flexible: bool) {
        self.opt_records(Some(value), flexible);
    }

    pub fn opt_records(&mut self, value: Option<&Records>, flexible: bool) {
        self.count(value.map(Records::len), flexible);
        if let Some(records) = value {
            records.pieces().for_each(|piece| self.splice(piece));
        }
    }

    pub fn array<T: Wire>(&mut self, elements: &[T], version: i16, flexible: bool) {
        self.count(Some(elements.len()), flexible);
        for element in elements {
            element.encode(self, version);
        }
    }

    pub fn opt_array<T: Wire>(&mut self, elements: Option<&Vec<T>>, version: i16, flexible: bool) {
        match elements {
            Some(elements) => self.array(elements, version, flexible),
            None => self.count(None, flexible),
        }
    }

    pub fn strings(&mut self, elements: &[Str], flexible: bool) {
        self.count(Some(elements.len()), flexible);
        for element in elements {
            self.string(element, flexible);
        }
    }

    pub fn opt_strings(&mut self, elements: Option<&Vec<Str>>, flexible: bool) {
        match elements {
            Some(elements) => self.strings(elements, flexible),
            None => self.count(None, flexible),
        }
    }

    /// Writes a struct behind a byte that is -1 if the struct is null.
    pub fn opt_struct<T: Wire>(&mut self, value: Option<&T>, version: i16) {
        self.i8(if value.is_some() { 1 } else { -1 });
        if let Some(value) = value {
            value.encode(self, version);
        }
    }

    /// Writes the number of tagged fields that are `set`.
    pub fn tags(&mut self, set: &[bool]) {
        let count = set.iter().filter(|set| **set).count();
        self.uvarint(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Writes one tagged field if it is set: tag, length, and the output of `write`.
    pub fn tag(&mut self, tag: u32, is_set: bool, write: impl FnOnce(&mut Self)) {
        if !is_set {
            return;
        }
        self.uvarint(tag);
        let from = self.buffer.len();
        let before = self.len();
        write(self);
        let length = u32::try_from(self.len() - before).unwrap_or(u32::MAX);
        self.insert_uvarint(from, length);
    }

    pub fn uvarint(&mut self, value: u32) {
        let (bytes, length) = varint(value);
        self.buffer.put_slice(bytes.get(..length).unwrap_or_default());
    }

    /// Inserts a varint before the bytes written since `from`. Tagged fields are small and nest two deep at
    /// most, so this is cheaper than computing sizes ahead.
    fn insert_uvarint(&mut self, from: usize, value: u32) {
        let (bytes, length) = varint(value);
        let end = self.buffer.len();
        self.buffer.put_bytes(0, length);
        self.buffer.copy_within(from..end, from + length);
        if let (Some(gap), Some(varint)) = (self.buffer.get_mut(from..from + length), bytes.get(..length)) {
            gap.copy_from_slice(varint);
        }
        for splice in self
            .splices
            .iter_mut()
            .rev()
            .take_while(|splice| splice.at >= from)
        {
            splice.at += length;
        }
    }

    /// Writes a length plus one as a varint; zero for null.
    fn compact(&mut self, length: Option<usize>) {
        match length.map_or(Some(0), |length| u32::try_from(length).ok()?.checked_add(1)) {
            Some(value) => self.uvarint(value),
            None => self.refuse(EncodeError::TooLong {
                bytes: length.unwrap_or(0),
            }),
        }
    }

    fn count(&mut self, count: Option<usize>, flexible: bool) {
        if flexible {
            return self.compact(count);
        }
        match count.map_or(Ok(-1), i32::try_from) {
            Ok(count) => self.i32(count),
            Err(_) => self.refuse(EncodeError::TooLong {
                bytes: count.unwrap_or(0),
            }),
        }
    }

    fn splice(&mut self, bytes: &Bytes) {
        if bytes.len() < SPLICE_BYTES_MIN {
            self.buffer.put_slice(bytes);
            return;
        }
        self.spliced_bytes += bytes.len();
        self.splices.push(Splice {
            at: self.buffer.len(),
            bytes: bytes.clone(),
        });
    }
}

fn varint(mut value: u32) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut length = 0;
    for byte in &mut bytes {
        length += 1;
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        *byte = if value == 0 { low } else { low | 0x80 };
        if value == 0 {
            break;
        }
    }
    (bytes, length)
}
