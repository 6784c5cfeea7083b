//! Traits of generated structs: readable, writable, and tied to their API.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::errors::DecodeError;
use crate::generated::api_key::ApiKey;
use crate::version::VersionRange;

/// A protocol value that reads and writes itself in a version of its message.
///
/// The message must have the version; [`crate::frame`] checks that. Reading leaves fields that the version
/// lacks at their default.
pub trait Wire: Sized {
    /// Minimum bytes of a value in any version; counts are checked with it.
    const BYTES_MIN: usize;

    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the value. The encoder reports errors when it is finished.
    fn encode(&self, e: &mut Encoder, version: i16);
}

/// A whole request, response or data structure.
pub trait Message: Wire + std::fmt::Debug + Clone + PartialEq + Default {
    const NAME: &'static str;
    const VERSIONS: VersionRange;
    /// The first version with tagged fields and compact lengths; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;
}

/// A request and its response type.
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
