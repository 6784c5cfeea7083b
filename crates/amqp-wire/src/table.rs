//! Tables and arrays, still encoded.
//!
//! Both hold the bytes behind their length, checked once: every length is within bounds, every type is known,
//! names are UTF-8, and nesting is bounded. The check does not recurse, and its memory does not grow with the
//! bytes. Nested tables and arrays are slices.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use bytestring::ByteString;
use smallvec::SmallVec;

use crate::decode::DecodeError;
use crate::value::{Shape, Value};

/// Maximum nesting of tables and arrays.
pub const DEPTH_MAX: usize = 64;

/// Names and values, in order.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Table(Bytes);

/// Values, in order.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Array(Bytes);

impl Table {
    /// Checks the bytes behind a table's length.
    ///
    /// # Errors
    /// Fails if they are not a valid table.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        check(&bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn checked(bytes: Bytes) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Iterates over the fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteString, Value)> + use<> {
        let mut rest = self.0.clone();
        std::iter::from_fn(move || {
            let length = usize::from(rest.try_get_u8().ok()?);
            if length > rest.len() {
                return None;
            }
            let name = ByteString::try_from(rest.split_to(length)).ok()?;
            Some((name, Value::take(&mut rest)?))
        })
    }

    /// Returns the first field with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        self.iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value)
    }
}

impl Array {
    /// Iterates over the values in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> + use<> {
        let mut rest = self.0.clone();
        std::iter::from_fn(move || Value::take(&mut rest))
    }

    pub(crate) fn checked(bytes: Bytes) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl FromIterator<Value> for Array {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let mut out = BytesMut::new();
        for value in values {
            value.put(&mut out);
        }
        Self(out.freeze())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Builds a table.
#[derive(Debug, Default)]
pub struct TableBuilder(BytesMut);

impl TableBuilder {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field. A name longer than 255 bytes is cut at the end of a character.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.push(name, &value.into());
        self
    }

    /// Adds a field. A name longer than 255 bytes is cut at the end of a character.
    pub fn push(&mut self, name: &str, value: &Value) {
        let name = name.get(..name.floor_char_boundary(255)).unwrap_or(name);
        self.0.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
        self.0.put_slice(name.as_bytes());
        value.put(&mut self.0);
    }

    #[must_use]
    pub fn finish(self) -> Table {
        Table(self.0.freeze())
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

/// An enclosing table or array: its bytes behind the current one, and which of the two it is.
struct Outer {
    left: usize,
    is_table: bool,
}

/// Checks the fields of a table, nested ones included.
fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut outers: SmallVec<[Outer; 8]> = SmallVec::new();
    let mut rest = bytes;
    // Bytes of `rest` that belong to the current table or array.
    let mut left = rest.len();
    let mut is_table = true;
    loop {
        while left == 0 {
            let Some(outer) = outers.pop() else {
                return Ok(());
            };
            (left, is_table) = (outer.left, outer.is_table);
        }
        let mut field = rest.get(..left).ok_or(DecodeError::TooShort)?;
        if is_table {
            let length = usize::from(take(&mut field, 1)?.first().copied().unwrap_or(0));
            let name = take(&mut field, length)?;
            std::str::from_utf8(name).map_err(|_| DecodeError::NotUtf8)?;
        }
        let letter = take(&mut field, 1)?.first().copied().unwrap_or(0);
        match Shape::of(letter).ok_or(DecodeError::UnknownFieldType(letter))? {
            Shape::Fixed(count) => {
                take(&mut field, count)?;
            }
            Shape::Sized => {
                let length = length(&mut field)?;
                take(&mut field, length)?;
            }
            nested @ (Shape::Table | Shape::Array) => {
                let inner = length(&mut field)?;
                if inner > field.len() {
                    return Err(DecodeError::TooShort);
                }
                if outers.len() + 1 >= DEPTH_MAX {
                    return Err(DecodeError::TooDeep { max: DEPTH_MAX });
                }
                outers.push(Outer {
                    left: field.len() - inner,
                    is_table,
                });
                rest = rest.get(left - field.len()..).ok_or(DecodeError::TooShort)?;
                (left, is_table) = (inner, nested == Shape::Table);
                continue;
            }
        }
        rest = rest.get(left - field.len()..).ok_or(DecodeError::TooShort)?;
        left = field.len();
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, behind) = rest.split_at_checked(count).ok_or(DecodeError::TooShort)?;
    *rest = behind;
    Ok(taken)
}

fn length(rest: &mut &[u8]) -> Result<usize, DecodeError> {
    let taken = take(rest, 4)?;
    let length: [u8; 4] = taken.try_into().map_err(|_| DecodeError::TooShort)?;
    usize::try_from(u32::from_be_bytes(length)).map_err(|_| DecodeError::TooShort)
}
