//! Encoding of primitives and frames, straight into one buffer.

use bytes::{BufMut, BytesMut};

use crate::frame::{FRAME_END, FrameKind};
use crate::table::Table;

/// Bytes of the longest short string.
pub const SHORT_STRING_BYTES_MAX: usize = 255;

/// Appends to a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut BytesMut,
    bits: u8,
    bits_used: u8,
}

impl<'a> Encoder<'a> {
    pub fn new(out: &'a mut BytesMut) -> Self {
        Self {
            out,
            bits: 0,
            bits_used: 0,
        }
    }

    /// Writes a frame whose payload is written by `write`.
    pub fn frame(out: &mut BytesMut, kind: FrameKind, channel: u16, write: impl FnOnce(&mut Encoder<'_>)) {
        out.put_u8(kind as u8);
        out.put_u16(channel);
        let length_at = out.len();
        out.put_u32(0);
        let mut encoder = Encoder::new(out);
        write(&mut encoder);
        drop(encoder);
        let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
        if let Some(place) = out.get_mut(length_at..length_at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        out.put_u8(FRAME_END);
    }

    pub fn u8(&mut self, value: u8) {
        self.flush_bits();
        self.out.put_u8(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.flush_bits();
        self.out.put_u16(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.flush_bits();
        self.out.put_u32(value);
    }

    pub fn u64(&mut self, value: u64) {
        self.flush_bits();
        self.out.put_u64(value);
    }

    /// Writes one bit. Up to eight consecutive bits share a byte.
    pub fn bit(&mut self, value: bool) {
        if self.bits_used == 8 {
            self.flush_bits();
        }
        self.bits |= u8::from(value) << self.bits_used;
        self.bits_used += 1;
    }

    /// Writes a short string. Longer text is cut at the end of a character: this concerns only texts of our
    /// own making, such as reply texts.
    pub fn short_string(&mut self, text: &str) {
        let text = text
            .get(..text.floor_char_boundary(SHORT_STRING_BYTES_MAX))
            .unwrap_or(text);
        self.u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.out.put_slice(text.as_bytes());
    }

    pub fn long_string(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.out.put_slice(bytes);
    }

    pub fn table(&mut self, table: &Table) {
        self.long_string(table.as_bytes());
    }

    /// Writes bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.flush_bits();
        self.out.put_slice(bytes);
    }

    /// Lets `write` append bytes unchanged.
    pub fn with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.flush_bits();
        write(self.out);
    }

    fn flush_bits(&mut self) {
        if self.bits_used > 0 {
            self.out.put_u8(self.bits);
            self.bits = 0;
            self.bits_used = 0;
        }
    }
}

impl Drop for Encoder<'_> {
    fn drop(&mut self) {
        self.flush_bits();
    }
}
