//! Decoding of primitives. Everything is bounded by the payload: a length that points beyond it is an error
//! before any memory is taken.

use bytes::{Buf, Bytes};
use bytestring::ByteString;

use crate::table::Table;

/// Reasons why a payload cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("it ends too early")]
    TooShort,
    #[error("{left} bytes are left over")]
    TooLong { left: usize },
    #[error("a short string is not UTF-8")]
    NotUtf8,
    #[error("{0:#04x} is no type of a field")]
    UnknownFieldType(u8),
    #[error("tables are nested more than {max} deep")]
    TooDeep { max: usize },
    #[error("class {class} has no method {method}")]
    UnknownMethod { class: u16, method: u16 },
    #[error("class {0} has no content")]
    UnknownContent(u16),
    #[error("property flags go on beyond the properties that there are")]
    UnknownProperty,
}

/// Reads one payload from beginning to end.
#[derive(Debug, Clone)]
pub struct Decoder {
    rest: Bytes,
    bits: u8,
    bits_left: u8,
}

impl Decoder {
    #[must_use]
    pub fn new(payload: Bytes) -> Self {
        Self {
            rest: payload,
            bits: 0,
            bits_left: 0,
        }
    }

    /// Returns the number of bytes not yet read.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// # Errors
    /// Fails if bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::TooLong { left }),
        }
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.bits_left = 0;
        self.rest.try_get_u8().map_err(|_| DecodeError::TooShort)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.bits_left = 0;
        self.rest.try_get_u16().map_err(|_| DecodeError::TooShort)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.bits_left = 0;
        self.rest.try_get_u32().map_err(|_| DecodeError::TooShort)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.bits_left = 0;
        self.rest.try_get_u64().map_err(|_| DecodeError::TooShort)
    }

    /// Reads one bit. Up to eight consecutive bits share a byte.
    pub fn bit(&mut self) -> Result<bool, DecodeError> {
        if self.bits_left == 0 {
            self.bits = self.u8()?;
            self.bits_left = 8;
        }
        let bit = self.bits & 1 == 1;
        self.bits >>= 1;
        self.bits_left -= 1;
        Ok(bit)
    }

    pub fn short_string(&mut self) -> Result<ByteString, DecodeError> {
        let length = usize::from(self.u8()?);
        ByteString::try_from(self.bytes(length)?).map_err(|_| DecodeError::NotUtf8)
    }

    pub fn long_string(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Reads a table and checks it.
    pub fn table(&mut self) -> Result<Table, DecodeError> {
        Table::decode(self.long_string()?)
    }

    pub fn bytes(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.bits_left = 0;
        if length > self.rest.len() {
            return Err(DecodeError::TooShort);
        }
        Ok(self.rest.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_in_a_row_share_a_byte_and_end_with_the_next_field() {
        let mut d = Decoder::new(Bytes::from_static(&[0b101, 7, 0b1, 0b1111_1111, 0b0]));
        assert_eq!((d.bit(), d.bit(), d.bit()), (Ok(true), Ok(false), Ok(true)));
        assert_eq!(d.u8(), Ok(7));
        assert_eq!(d.bit(), Ok(true));
        d.bits_left = 0;
        for _ in 0..8 {
            assert_eq!(d.bit(), Ok(true));
        }
        assert_eq!(d.bit(), Ok(false), "the ninth bit is in the next byte");
        assert_eq!(d.finish(), Ok(()));
    }

    #[test]
    fn a_length_beyond_the_payload_is_an_error_and_takes_nothing() {
        let mut d = Decoder::new(Bytes::from_static(&[5, b'a']));
        assert_eq!(d.short_string(), Err(DecodeError::TooShort));
        let mut d = Decoder::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, b'a']));
        assert_eq!(d.long_string(), Err(DecodeError::TooShort));
        let mut d = Decoder::new(Bytes::from_static(&[2, 0xff, 0xff]));
        assert_eq!(d.short_string(), Err(DecodeError::NotUtf8));
    }
}
