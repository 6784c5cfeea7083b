//! What generated structs are: readable, writable, and tied to their API.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::errors::DecodeError;
use crate::generated::api_key::ApiKey;
use crate::version::VersionRange;

/// A value of the protocol that reads and writes itself in a version of the message it belongs to.
///
/// The version must be one that the message has; [`crate::frame`] checks that. Fields that the version does
/// not have are left at their default when read.
pub trait Wire: Sized {
    /// The least number of bytes that one value takes in any version: what a count is checked with.
    const BYTES_MIN: usize;

    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the value. What cannot be written is reported by the encoder when it is finished.
    fn encode(&self, e: &mut Encoder, version: i16);
}

/// A whole request, response or data structure.
pub trait Message: Wire + std::fmt::Debug + Clone + PartialEq + Default {
    const NAME: &'static str;
    const VERSIONS: VersionRange;
    /// The first version with tagged fields and compact lengths; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;
}

/// A request, and with it the response that answers it.
pub trait Request: Message {
    const KEY: ApiKey;
    type Response: Message;
}

macro_rules! fixed_width {
    ($($type:ident)*) => {$(
        impl Wire for $type {
            const BYTES_MIN: usize = size_of::<$type>();

            fn decode(d: &mut Decoder, _version: i16) -> Result<Self, DecodeError> {
                d.$type()
            }

            fn encode(&self, e: &mut Encoder, _version: i16) {
                e.$type(*self);
            }
        }
    )*};
}

fixed_width!(i8 i16 i32 i64);

impl Wire for crate::Uuid {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, _version: i16) -> Result<Self, DecodeError> {
        d.uuid()
    }

    fn encode(&self, e: &mut Encoder, _version: i16) {
        e.uuid(*self);
    }
}
