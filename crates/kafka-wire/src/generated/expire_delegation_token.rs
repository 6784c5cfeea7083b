//! `ExpireDelegationToken`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpireDelegationTokenRequest {
    pub hmac: Bytes,
    pub expiry_time_period_ms: i64,
}

impl Wire for ExpireDelegationTokenRequest {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            hmac: d.bytes(f)?,
            expiry_time_period_ms: d.i64()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.bytes(&self.hmac, f);
        e.i64(self.expiry_time_period_ms);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ExpireDelegationTokenRequest {
    const NAME: &'static str = "ExpireDelegationTokenRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for ExpireDelegationTokenRequest {
    const KEY: ApiKey = ApiKey::ExpireDelegationToken;
    type Response = ExpireDelegationTokenResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpireDelegationTokenResponse {
    pub error_code: i16,
    pub expiry_timestamp_ms: i64,
    pub throttle_time_ms: i32,
}

impl Wire for ExpireDelegationTokenResponse {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            expiry_timestamp_ms: d.i64()?,
            throttle_time_ms: d.i32()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i16(self.error_code);
        e.i64(self.expiry_timestamp_ms);
        e.i32(self.throttle_time_ms);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ExpireDelegationTokenResponse {
    const NAME: &'static str = "ExpireDelegationTokenResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
