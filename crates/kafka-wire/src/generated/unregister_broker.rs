//! `UnregisterBroker`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnregisterBrokerRequest {
    pub broker_id: i32,
}

impl Wire for UnregisterBrokerRequest {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self { broker_id: d.i32()? };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.broker_id);
        e.tags(&[]);
    }
}

impl Message for UnregisterBrokerRequest {
    const NAME: &'static str = "UnregisterBrokerRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for UnregisterBrokerRequest {
    const KEY: ApiKey = ApiKey::UnregisterBroker;
    type Response = UnregisterBrokerResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnregisterBrokerResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for UnregisterBrokerResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for UnregisterBrokerResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for UnregisterBrokerResponse {
    const NAME: &'static str = "UnregisterBrokerResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
