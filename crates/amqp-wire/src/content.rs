//! Content headers: the length of a body, and the properties of its message.
//!
//! ```text
//! 0       2        4           12      14
//! +-------+--------+-----------+-------+----------------------------+
//! | class | weight | body size | flags | properties set in flags   |
//! +-------+--------+-----------+-------+----------------------------+
//! ```
//!
//! Properties are kept as received (including the flags) and go back out unchanged. They are checked once
//! when they are read; single properties are looked up in the bytes.

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use crate::decode::{DecodeError, Decoder};
use crate::encode::Encoder;
use crate::methods::BASIC;
use crate::table::Table;

/// A content header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentHeader {
    pub body_size: u64,
    pub properties: Properties,
}

/// Flags and properties of a message, as received: at least two bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties(Bytes);

macro_rules! properties {
    ($($bit:literal $name:ident $field:ident: $type:ident;)*) => {
        /// Properties of a message, as separate fields.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct PropertiesBuilder {
            $( pub $field: Option<properties!(@type $type)>, )*
        }

        $( const $name: u16 = 1 << $bit; )*

        impl Properties {
            /// Reads all properties.
            #[must_use]
            pub fn read(&self) -> PropertiesBuilder {
                let mut found = PropertiesBuilder::default();
                let mut d = Decoder::new(self.0.clone());
                let Ok(flags) = d.u16() else { return found };
                $( if flags & $name != 0 {
                    found.$field = properties!(@read d $type).ok();
                } )*
                found
            }
        }

        impl PropertiesBuilder {
            #[must_use]
            pub fn finish(&self) -> Properties {
                let mut out = BytesMut::with_capacity(64);
                let mut flags = 0;
                $( if self.$field.is_some() { flags |= $name; } )*
                out.put_u16(flags);
                let mut e = Encoder::new(&mut out);
                $( if let Some(value) = &self.$field { properties!(@write e value $type); } )*
                drop(e);
                Properties(out.freeze())
            }
        }

        fn check(d: &mut Decoder, flags: u16) -> Result<(), DecodeError> {
            $( if flags & $name != 0 { properties!(@read d $type)?; } )*
            Ok(())
        }
    };
    (@type short) => { ByteString };
    (@type table) => { Table };
    (@type octet) => { u8 };
    (@type long) => { u64 };
    (@read $d:ident short) => { $d.short_string() };
    (@read $d:ident table) => { $d.table() };
    (@read $d:ident octet) => { $d.u8() };
    (@read $d:ident long) => { $d.u64() };
    (@write $e:ident $value:ident short) => { $e.short_string($value) };
    (@write $e:ident $value:ident table) => { $e.table($value) };
    (@write $e:ident $value:ident octet) => { $e.u8(*$value) };
    (@write $e:ident $value:ident long) => { $e.u64(*$value) };
}

properties! {
    15 CONTENT_TYPE content_type: short;
    14 CONTENT_ENCODING content_encoding: short;
    13 HEADERS headers: table;
    12 DELIVERY_MODE delivery_mode: octet;
    11 PRIORITY priority: octet;
    10 CORRELATION_ID correlation_id: short;
    9 REPLY_TO reply_to: short;
    8 EXPIRATION expiration: short;
    7 MESSAGE_ID message_id: short;
    6 TIMESTAMP timestamp: long;
    5 TYPE kind: short;
    4 USER_ID user_id: short;
    3 APP_ID app_id: short;
    2 CLUSTER_ID cluster_id: short;
}

/// Bit 0: another word of flags follows. Bit 1 has no meaning.
const BEYOND: u16 = 0b11;

impl ContentHeader {
    /// # Errors
    /// Fails if the payload is not a content header of the class `basic`.
    pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(payload);
        let class = d.u16()?;
        if class != BASIC {
            return Err(DecodeError::UnknownContent(class));
        }
        let _weight = d.u16()?;
        let body_size = d.u64()?;
        let rest = d.remaining();
        let properties = Properties::decode(d.bytes(rest)?)?;
        Ok(Self {
            body_size,
            properties,
        })
    }

    pub fn encode(&self, e: &mut Encoder<'_>) {
        e.u16(BASIC);
        e.u16(0);
        e.u64(self.body_size);
        e.raw(self.properties.as_bytes());
    }
}

impl Properties {
    /// No properties.
    pub const NONE: Self = Self(Bytes::from_static(&[0, 0]));

    /// # Errors
    /// Fails if the bytes are not valid flags and properties.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes.clone());
        let flags = d.u16()?;
        if flags & BEYOND != 0 {
            return Err(DecodeError::UnknownProperty);
        }
        check(&mut d, flags)?;
        d.finish()?;
        Ok(Self(bytes))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    fn flags(&self) -> u16 {
        match self.0.first_chunk::<2>() {
            Some(flags) => u16::from_be_bytes(*flags),
            None => 0,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flags() == 0
    }

    /// Returns true if there is no property except, perhaps, a delivery mode.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.flags() & !DELIVERY_MODE == 0
    }

    /// Returns true if the publisher asks for a reply.
    #[must_use]
    pub fn has_reply_to(&self) -> bool {
        self.flags() & REPLY_TO != 0
    }

    /// Returns the delivery mode if it is the only property.
    #[must_use]
    pub fn plain_delivery_mode(&self) -> Option<u8> {
        if self.flags() == DELIVERY_MODE {
            self.0.get(2).copied()
        } else {
            None
        }
    }
}

impl Default for Properties {
    fn default() -> Self {
        Self::NONE
    }
}
