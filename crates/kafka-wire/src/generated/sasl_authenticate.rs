//! `SaslAuthenticate`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SaslAuthenticateRequest {
    pub auth_bytes: Bytes,
}

impl Wire for SaslAuthenticateRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            auth_bytes: d.bytes(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.bytes(&self.auth_bytes, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for SaslAuthenticateRequest {
    const NAME: &'static str = "SaslAuthenticateRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for SaslAuthenticateRequest {
    const KEY: ApiKey = ApiKey::SaslAuthenticate;
    type Response = SaslAuthenticateResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct SaslAuthenticateResponse {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub auth_bytes: Bytes,
    /// In versions 1 and up.
    pub session_lifetime_ms: i64,
}

impl Default for SaslAuthenticateResponse {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            auth_bytes: Bytes::new(),
            session_lifetime_ms: 0,
        }
    }
}

impl Wire for SaslAuthenticateResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            auth_bytes: d.bytes(f)?,
            session_lifetime_ms: if v >= 1 { d.i64()? } else { 0 },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.bytes(&self.auth_bytes, f);
        if v >= 1 {
            e.i64(self.session_lifetime_ms);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for SaslAuthenticateResponse {
    const NAME: &'static str = "SaslAuthenticateResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
