//! Embedded data of the classic consumer protocol. `JoinGroup` and `SyncGroup` carry it as opaque bytes
//! between group members: a version and a [`ConsumerProtocolSubscription`] or [`ConsumerProtocolAssignment`].
//!
//! As in Kafka, data of a newer version is read as the newest known version, and the bytes behind it are
//! ignored (KIP-429).

use bytes::Bytes;

use crate::decode::{DecodeLimits, Decoder};
use crate::encode::Encoder;
use crate::errors::{DecodeError, EncodeError};
use crate::wire::Message;

pub use crate::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};

/// Reads versioned data. Returns the version that was used, too.
pub fn read<M: Message>(data: Bytes, limits: DecodeLimits) -> Result<(i16, M), DecodeError> {
    let mut d = Decoder::new(data, limits);
    let version = d.i16()?;
    if version < M::VERSIONS.min {
        return Err(DecodeError::UnsupportedData { version });
    }
    let version = version.min(M::VERSIONS.max);
    Ok((version, M::decode(&mut d, version)?))
}

/// Writes versioned data.
pub fn write<M: Message>(version: i16, message: &M) -> Result<Bytes, EncodeError> {
    if !M::VERSIONS.contains(version) {
        return Err(EncodeError::Version {
            message: M::NAME,
            version,
        });
    }
    let mut e = Encoder::bare();
    e.i16(version);
    message.encode(&mut e, version);
    Ok(e.finish()?.into_bytes())
}
