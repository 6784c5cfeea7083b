//! Decoder of the protocol's primitives.
//!
//! Invariants: nothing is read beyond the frame or beyond the current tagged field; each length and count is
//! checked against the remaining bytes before it is used; memory for arrays is charged to a budget before it
//! is taken. Strings and bytes are slices of the frame and cost nothing.
//!
//! Two encodings of lengths exist: `flexible` ones are unsigned varints of the length plus one, the others
//! are big-endian integers. As in Kafka, any negative length means null.

use bytes::Bytes;

use crate::errors::DecodeError;
use crate::records::Records;
use crate::str::Str;
use crate::uuid::Uuid;
use crate::wire::Wire;

/// Maximum memory in bytes per byte of a frame. Checked for every struct at compile time.
const AMPLIFICATION_MAX: usize = 64;

/// Maximum length of a string, also if its length is a varint.
pub(crate) const STRING_BYTES_MAX: usize = 0x7fff;

/// Bounds on the cost of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Memory for the elements of all arrays of the message, in bytes. The frame itself is not counted.
    pub memory_bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
        }
    }
}

/// A position in a frame.
#[derive(Debug, Clone)]
pub struct Decoder {
    frame: Bytes,
    at: usize,
    /// Where reading stops: the end of the frame or of the current tagged field.
    end: usize,
    budget: usize,
    limits: DecodeLimits,
    #[cfg(any(test, feature = "sampling"))]
    pub(crate) sampler: Option<crate::sample::Sampler>,
}

impl Decoder {
    pub fn new(frame: Bytes, limits: DecodeLimits) -> Self {
        Self {
            at: 0,
            end: frame.len(),
            frame,
            budget: limits.memory_bytes,
            limits,
            #[cfg(any(test, feature = "sampling"))]
            sampler: None,
        }
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Fails if bytes are left: a frame holds one message and nothing else.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing { at: self.at, left }),
        }
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.fixed().map(u16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return Ok(sampler.finite());
        }
        self.fixed().map(f64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.fixed().map(Uuid)
    }

    pub fn string(&mut self, flexible: bool) -> Result<Str, DecodeError> {
        self.opt_string(flexible, false).map(Option::unwrap_or_default)
    }

    pub fn opt_string(&mut self, flexible: bool, nullable: bool) -> Result<Option<Str>, DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return Ok(sampler.string(nullable));
        }
        let at = self.at;
        let length = if flexible {
            self.compact()?
        } else {
            i64::from(self.i16()?)
        };
        let Some(length) = self.length(at, length, nullable)? else {
            return Ok(None);
        };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::Length {
                at,
                length: i64::try_from(length).unwrap_or(i64::MAX),
            });
        }
        Str::try_from(self.take(length)?)
            .map(Some)
            .map_err(|_| DecodeError::Utf8 { at })
    }

    pub fn bytes(&mut self, flexible: bool) -> Result<Bytes, DecodeError> {
        self.opt_bytes(flexible, false).map(Option::unwrap_or_default)
    }

    pub fn opt_bytes(&mut self, flexible: bool, nullable: bool) -> Result<Option<Bytes>, DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return Ok(sampler.bytes(nullable));
        }
        let at = self.at;
        let length = self.long_length(flexible)?;
        match self.length(at, length, nullable)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    pub fn records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        self.bytes(flexible).map(Records::from)
    }

    pub fn opt_records(&mut self, flexible: bool, nullable: bool) -> Result<Option<Records>, DecodeError> {
        Ok(self.opt_bytes(flexible, nullable)?.map(Records::from))
    }

    /// Reads a count of elements of at least `bytes_min` bytes each, for a caller that reads them one by one.
    /// Their memory is not charged; that is up to the caller.
    pub fn count_of(&mut self, flexible: bool, bytes_min: usize) -> Result<usize, DecodeError> {
        self.count(flexible, false, bytes_min, 0)
            .map(Option::unwrap_or_default)
    }

    /// Reads an array of anything but strings. Strings need to know how their own lengths are encoded.
    pub fn array<T: Wire>(&mut self, version: i16, flexible: bool) -> Result<Vec<T>, DecodeError> {
        self.opt_array(version, flexible, false)
            .map(Option::unwrap_or_default)
    }

    pub fn opt_array<T: Wire>(
        &mut self,
        version: i16,
        flexible: bool,
        nullable: bool,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        const { assert!(size_of::<T>() <= AMPLIFICATION_MAX * T::BYTES_MIN) };
        let Some(count) = self.count(flexible, nullable, T::BYTES_MIN, size_of::<T>())? else {
            return Ok(None);
        };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::decode(self, version)?);
        }
        Ok(Some(elements))
    }

    pub fn strings(&mut self, flexible: bool) -> Result<Vec<Str>, DecodeError> {
        self.opt_strings(flexible, false).map(Option::unwrap_or_default)
    }

    pub fn opt_strings(&mut self, flexible: bool, nullable: bool) -> Result<Option<Vec<Str>>, DecodeError> {
        let least = if flexible { 1 } else { 2 };
        let Some(count) = self.count(flexible, nullable, least, size_of::<Str>())? else {
            return Ok(None);
        };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(self.string(flexible)?);
        }
        Ok(Some(elements))
    }

    /// Reads a struct behind a byte that is negative if the struct is null.
    pub fn opt_struct<T: Wire>(&mut self, version: i16, nullable: bool) -> Result<Option<T>, DecodeError> {
        let at = self.at;
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return if nullable && sampler.coin() {
                Ok(None)
            } else {
                T::decode(self, version).map(Some)
            };
        }
        if self.i8()? >= 0 {
            return T::decode(self, version).map(Some);
        }
        if nullable {
            Ok(None)
        } else {
            Err(DecodeError::Null { at })
        }
    }

    /// Skips the tagged fields of a flexible struct that knows none.
    pub fn no_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(&mut |_, _| Ok(false))
    }

    /// Reads the tagged fields of a flexible struct. `known` reads the field with the given tag, or returns
    /// false to have it skipped. It cannot read beyond the field's length, and must read all of it.
    pub fn tags(
        &mut self,
        known: &mut dyn FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if self.sampler.is_some() {
            return self.draw_tags(known);
        }
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let at = self.at;
            let length = self.uvarint()?;
            let length = self.length(at, i64::from(length), false)?.unwrap_or(0);
            let outer = self.end;
            self.end = self.at + length;
            if !known(self, tag)? {
                self.at = self.end;
            }
            if self.at != self.end {
                return Err(DecodeError::Tag {
                    at: self.at,
                    tag,
                    left: self.remaining(),
                });
            }
            self.end = outer;
        }
        Ok(())
    }

    #[cfg(any(test, feature = "sampling"))]
    fn draw_tags(
        &mut self,
        known: &mut dyn FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for tag in 0..crate::sample::TAGS_DRAWN {
            if self.sampler.as_mut().is_some_and(crate::sample::Sampler::coin) {
                known(self, tag)?;
            }
        }
        Ok(())
    }

    /// Reads an unsigned varint of at most five bytes.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.fixed::<1>()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint { at })
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return Ok(sampler.fixed());
        }
        let Some(found) = self
            .frame
            .get(self.at..self.end)
            .and_then(<[u8]>::first_chunk::<N>)
        else {
            return Err(DecodeError::Truncated {
                at: self.at,
                wanted: N,
                left: self.remaining(),
            });
        };
        self.at += N;
        Ok(*found)
    }

    fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.remaining() {
            return Err(DecodeError::Truncated {
                at: self.at,
                wanted: length,
                left: self.remaining(),
            });
        }
        let from = self.at;
        self.at += length;
        Ok(self.frame.slice(from..self.at))
    }

    /// Reads a varint and returns it minus one: -1 means null.
    fn compact(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from(self.uvarint()?) - 1)
    }

    fn long_length(&mut self, flexible: bool) -> Result<i64, DecodeError> {
        if flexible {
            self.compact()
        } else {
            Ok(i64::from(self.i32()?))
        }
    }

    /// Checks a length that was read at `at` against the remaining bytes. Returns `None` for an allowed null.
    fn length(&self, at: usize, length: i64, nullable: bool) -> Result<Option<usize>, DecodeError> {
        let left = self.remaining();
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(Some(length)),
            Ok(wanted) => Err(DecodeError::Truncated {
                at: self.at,
                wanted,
                left,
            }),
            Err(_) if nullable => Ok(None),
            Err(_) => Err(DecodeError::Null { at }),
        }
    }

    /// Reads a count of elements and charges their memory. Each takes at least `least` bytes on the wire and
    /// `size` bytes in memory.
    fn count(
        &mut self,
        flexible: bool,
        nullable: bool,
        least: usize,
        size: usize,
    ) -> Result<Option<usize>, DecodeError> {
        #[cfg(any(test, feature = "sampling"))]
        if let Some(sampler) = &mut self.sampler {
            return Ok(sampler.count(nullable));
        }
        let at = self.at;
        let stated = self.long_length(flexible)?;
        let left = self.remaining();
        let Ok(count) = usize::try_from(stated) else {
            return if nullable {
                Ok(None)
            } else {
                Err(DecodeError::Null { at })
            };
        };
        if count > left / least {
            return Err(DecodeError::Count {
                at,
                count: stated,
                left,
            });
        }
        match self.budget.checked_sub(count.saturating_mul(size)) {
            Some(budget) => self.budget = budget,
            None => {
                return Err(DecodeError::Budget {
                    at,
                    budget: self.limits.memory_bytes,
                });
            }
        }
        Ok(Some(count))
    }
}
