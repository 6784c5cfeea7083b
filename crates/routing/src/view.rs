//! What of a message decides its way.

use bytes::Bytes;
use bytestring::ByteString;

use crate::spec::Property;

/// A message as exchanges see it. Headers and properties are asked for only when an exchange on the way needs
/// them.
pub trait View {
    /// The routing key. It need not be text.
    fn key(&self) -> &[u8];

    /// Further routing keys: the message goes where any of its keys leads.
    fn more_keys(&self) -> &[ByteString] {
        &[]
    }

    /// Visits the headers, each name once.
    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue));

    fn property(&self, property: Property) -> Option<Bytes>;

    /// Whether the message is to wait where it comes to an exchange that delays.
    fn is_delayed(&self) -> bool {
        false
    }
}

/// The value of a header. Two are equal if they are of one variant and hold the same: the front end decides
/// which of its types are one variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderValue {
    Nothing,
    Bool(bool),
    Integer(i128),
    /// The bits of an IEEE 754 double.
    Float(u64),
    Text(Bytes),
    /// Anything else, in an encoding in which equal values have equal bytes.
    Other(Bytes),
}

impl HeaderValue {
    /// What a hash over the value goes over.
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

/// A message that has a routing key and nothing else.
#[derive(Debug, Clone, Copy)]
pub struct KeyOnly<'a>(pub &'a [u8]);

impl View for KeyOnly<'_> {
    fn key(&self) -> &[u8] {
        self.0
    }

    fn headers(&self, _: &mut dyn FnMut(&[u8], HeaderValue)) {}

    fn property(&self, _: Property) -> Option<Bytes> {
        None
    }
}
