//! Values of table fields.
//!
//! Source: RabbitMQ's errata to AMQP 0-9-1, section 3 ("Field types"): these letters, not those of the
//! specification.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::table::{Array, Table};

/// A decoded value; the letter is its type on the wire.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: number of decimal places, and all digits.
    Decimal(u8, u32),
    /// `S`: text by convention, but any bytes are valid.
    LongString(Bytes),
    /// `A`
    Array(Array),
    /// `T`: seconds since 1970.
    Timestamp(u64),
    /// `F`
    Table(Table),
    /// `V`
    Void,
    /// `x`
    Bytes(Bytes),
}

/// Encoding behind a type's letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Fixed(usize),
    /// A length of four bytes, then that many bytes.
    Sized,
    Table,
    Array,
}

impl Shape {
    pub(crate) fn of(letter: u8) -> Option<Self> {
        Some(match letter {
            b'V' => Self::Fixed(0),
            b't' | b'b' | b'B' => Self::Fixed(1),
            b's' | b'u' => Self::Fixed(2),
            b'I' | b'i' | b'f' => Self::Fixed(4),
            b'D' => Self::Fixed(5),
            b'l' | b'd' | b'T' => Self::Fixed(8),
            b'S' | b'x' => Self::Sized,
            b'F' => Self::Table,
            b'A' => Self::Array,
            _ => return None,
        })
    }
}

impl Value {
    /// Returns the value of an integer or timestamp. `None` for other types.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::I8(number) => Some(i64::from(*number)),
            Self::U8(number) => Some(i64::from(*number)),
            Self::I16(number) => Some(i64::from(*number)),
            Self::U16(number) => Some(i64::from(*number)),
            Self::I32(number) => Some(i64::from(*number)),
            Self::U32(number) => Some(i64::from(*number)),
            Self::I64(number) => Some(*number),
            Self::Timestamp(number) => i64::try_from(*number).ok(),
            Self::Bool(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal(..)
            | Self::LongString(_)
            | Self::Array(_)
            | Self::Table(_)
            | Self::Void
            | Self::Bytes(_) => None,
        }
    }

    /// Returns the text of a long string. `None` if it is not UTF-8 or another type.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Self::LongString(bytes) = self {
            std::str::from_utf8(bytes).ok()
        } else {
            None
        }
    }

    /// Returns the type's name in RabbitMQ's error messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::I8(_) => "byte",
            Self::U8(_) => "unsignedbyte",
            Self::I16(_) => "short",
            Self::U16(_) => "unsignedshort",
            Self::I32(_) => "signedint",
            Self::U32(_) => "unsignedint",
            Self::I64(_) => "long",
            Self::F32(_) => "float",
            Self::F64(_) => "double",
            Self::Decimal(..) => "decimal",
            Self::LongString(_) => "longstr",
            Self::Array(_) => "array",
            Self::Timestamp(_) => "timestamp",
            Self::Table(_) => "table",
            Self::Void => "void",
            Self::Bytes(_) => "binary",
        }
    }

    /// Takes a value, letter first, from checked bytes. `None` if there is none.
    pub(crate) fn take(rest: &mut Bytes) -> Option<Self> {
        let letter = rest.try_get_u8().ok()?;
        Some(match letter {
            b't' => Self::Bool(rest.try_get_u8().ok()? != 0),
            b'b' => Self::I8(rest.try_get_i8().ok()?),
            b'B' => Self::U8(rest.try_get_u8().ok()?),
            b's' => Self::I16(rest.try_get_i16().ok()?),
            b'u' => Self::U16(rest.try_get_u16().ok()?),
            b'I' => Self::I32(rest.try_get_i32().ok()?),
            b'i' => Self::U32(rest.try_get_u32().ok()?),
            b'l' => Self::I64(rest.try_get_i64().ok()?),
            b'f' => Self::F32(rest.try_get_f32().ok()?),
            b'd' => Self::F64(rest.try_get_f64().ok()?),
            b'D' => Self::Decimal(rest.try_get_u8().ok()?, rest.try_get_u32().ok()?),
            b'T' => Self::Timestamp(rest.try_get_u64().ok()?),
            b'V' => Self::Void,
            b'S' => Self::LongString(sized(rest)?),
            b'x' => Self::Bytes(sized(rest)?),
            b'F' => Self::Table(Table::checked(sized(rest)?)),
            b'A' => Self::Array(Array::checked(sized(rest)?)),
            _ => return None,
        })
    }

    /// Writes the value, letter first.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        match self {
            Self::Bool(value) => out.put_slice(&[b't', u8::from(*value)]),
            Self::I8(value) => {
                out.put_u8(b'b');
                out.put_i8(*value);
            }
            Self::U8(value) => out.put_slice(&[b'B', *value]),
            Self::I16(value) => {
                out.put_u8(b's');
                out.put_i16(*value);
            }
            Self::U16(value) => {
                out.put_u8(b'u');
                out.put_u16(*value);
            }
            Self::I32(value) => {
                out.put_u8(b'I');
                out.put_i32(*value);
            }
            Self::U32(value) => {
                out.put_u8(b'i');
                out.put_u32(*value);
            }
            Self::I64(value) => {
                out.put_u8(b'l');
                out.put_i64(*value);
            }
            Self::F32(value) => {
                out.put_u8(b'f');
                out.put_f32(*value);
            }
            Self::F64(value) => {
                out.put_u8(b'd');
                out.put_f64(*value);
            }
            Self::Decimal(scale, digits) => {
                out.put_slice(&[b'D', *scale]);
                out.put_u32(*digits);
            }
            Self::Timestamp(value) => {
                out.put_u8(b'T');
                out.put_u64(*value);
            }
            Self::Void => out.put_u8(b'V'),
            Self::LongString(bytes) => put_sized(out, b'S', bytes),
            Self::Bytes(bytes) => put_sized(out, b'x', bytes),
            Self::Table(table) => put_sized(out, b'F', table.as_bytes()),
            Self::Array(array) => put_sized(out, b'A', array.as_bytes()),
        }
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::LongString(Bytes::from_static(text.as_bytes()))
    }
}

impl From<bytestring::ByteString> for Value {
    fn from(text: bytestring::ByteString) -> Self {
        Self::LongString(text.into_bytes())
    }
}

fn sized(rest: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(rest.try_get_u32().ok()?).ok()?;
    (length <= rest.len()).then(|| rest.split_to(length))
}

fn put_sized(out: &mut BytesMut, letter: u8, bytes: &[u8]) {
    out.put_u8(letter);
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}
