//! The headers in front of requests and responses.
//!
//! They are written by hand, not generated: the header's layout depends on API and version, and the client id
//! keeps its two-byte length in flexible versions too (KIP-482), so that a broker can read the header of a
//! request that is newer than itself.

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::errors::DecodeError;
use crate::generated::api_key::ApiKey;
use crate::str::Str;

/// Header of a request: API, version, client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api: ApiKey,
    /// The version that the sender chose, which may be one that does not exist.
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads the header of a request of any version. Fails with [`DecodeError::UnknownApi`] if no API has the
    /// key; Kafka closes the connection then.
    pub fn decode(d: &mut Decoder) -> Result<Self, DecodeError> {
        let key = d.i16()?;
        let version = d.i16()?;
        let api = ApiKey::try_from(key)?;
        let correlation_id = d.i32()?;
        let client_id = d.opt_string(false, true)?;
        if api.is_flexible(version) {
            d.no_tags()?;
        }
        Ok(Self {
            api,
            version,
            correlation_id,
            client_id,
        })
    }

    pub fn encode(&self, e: &mut Encoder) {
        e.i16(self.api.code());
        e.i16(self.version);
        e.i32(self.correlation_id);
        e.opt_string(self.client_id.as_ref(), false);
        if self.api.is_flexible(self.version) {
            e.tags(&[]);
        }
    }
}

/// Header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    pub correlation_id: i32,
}

impl ResponseHeader {
    pub fn decode(d: &mut Decoder, api: ApiKey, version: i16) -> Result<Self, DecodeError> {
        let correlation_id = d.i32()?;
        if api.response_header_version(version) > 0 {
            d.no_tags()?;
        }
        Ok(Self { correlation_id })
    }

    pub fn encode(self, e: &mut Encoder, api: ApiKey, version: i16) {
        e.i32(self.correlation_id);
        if api.response_header_version(version) > 0 {
            e.tags(&[]);
        }
    }
}
