//! The parts of a message that routing uses.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_expr::Value;

use crate::filter::{Filter, FilterWork};
use crate::spec::Property;

/// A message as seen by exchanges. Headers and properties are read only when an exchange on the way needs
/// them.
pub trait MessageView {
    /// Returns the routing key. It need not be UTF-8.
    fn key(&self) -> &[u8];

    /// Returns further routing keys: the message is routed by each of its keys.
    fn more_keys(&self) -> &[ByteString] {
        &[]
    }

    /// Visits the headers, each name once.
    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue));

    fn property(&self, property: Property) -> Option<Bytes>;

    /// Returns true if a filter is true of the message. One that would take more than the work that is left
    /// is not.
    fn admits(&self, _: &Filter, _: &mut FilterWork) -> bool {
        false
    }

    /// Returns true if the message waits at an exchange that delays.
    fn is_delayed(&self) -> bool {
        false
    }
}

/// Value of a header. Values are equal if variant and content are equal; the front end maps its types to
/// variants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderValue {
    Nothing,
    Bool(bool),
    Integer(i128),
    /// The bits of an IEEE 754 double.
    Float(u64),
    Text(Bytes),
    /// Any other value, in an encoding in which equal values have equal bytes.
    Other(Bytes),
}

impl HeaderValue {
    /// Returns the header as filters see it. Lists and tables are bytes.
    pub fn into_value(self) -> Value<'static> {
        let text = |bytes: Bytes| match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Value::Text(Cow::Owned(text)),
            Err(why) => Value::Bytes(Cow::Owned(why.into_bytes())),
        };
        match self {
            Self::Nothing => Value::Null,
            Self::Bool(it) => Value::Bool(it),
            Self::Integer(number) => i64::try_from(number).map_or(Value::Double(number as f64), Value::Int),
            Self::Float(bits) => Value::Double(f64::from_bits(bits)),
            Self::Text(bytes) => text(bytes),
            Self::Other(other) => Value::Bytes(Cow::Owned(other.to_vec())),
        }
    }

    /// Returns the bytes to be hashed.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::Bool(value) => Bytes::copy_from_slice(&[u8::from(*value)]),
            Self::Integer(value) => Bytes::copy_from_slice(&value.to_le_bytes()),
            Self::Float(bits) => Bytes::copy_from_slice(&bits.to_le_bytes()),
            Self::Text(bytes) | Self::Other(bytes) => bytes.clone(),
        }
    }
}

/// A message with only a routing key.
#[derive(Debug, Clone, Copy)]
pub struct KeyOnly<'a>(pub &'a [u8]);

impl MessageView for KeyOnly<'_> {
    fn key(&self) -> &[u8] {
        self.0
    }

    fn headers(&self, _: &mut dyn FnMut(&[u8], HeaderValue)) {}

    fn property(&self, _: Property) -> Option<Bytes> {
        None
    }
}
