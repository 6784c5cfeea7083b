//! `SaslHandshake`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SaslHandshakeRequest {
    pub mechanism: Str,
}

impl Wire for SaslHandshakeRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            mechanism: d.string(false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.mechanism, false);
    }
}

impl Message for SaslHandshakeRequest {
    const NAME: &'static str = "SaslHandshakeRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}

impl Request for SaslHandshakeRequest {
    const KEY: ApiKey = ApiKey::SaslHandshake;
    type Response = SaslHandshakeResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SaslHandshakeResponse {
    pub error_code: i16,
    pub mechanisms: Vec<Str>,
}

impl Wire for SaslHandshakeResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            error_code: d.i16()?,
            mechanisms: d.strings(false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i16(self.error_code);
        e.strings(&self.mechanisms, false);
    }
}

impl Message for SaslHandshakeResponse {
    const NAME: &'static str = "SaslHandshakeResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
