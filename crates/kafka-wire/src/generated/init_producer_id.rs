//! `InitProducerId`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct InitProducerIdRequest {
    pub transactional_id: Option<Str>,
    pub transaction_timeout_ms: i32,
    /// In versions 3 and up.
    pub producer_id: i64,
    /// In versions 3 and up.
    pub producer_epoch: i16,
}

impl Default for InitProducerIdRequest {
    fn default() -> Self {
        Self {
            transactional_id: Some(Str::default()),
            transaction_timeout_ms: 0,
            producer_id: -1,
            producer_epoch: -1,
        }
    }
}

impl Wire for InitProducerIdRequest {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            transactional_id: d.opt_string(f, true)?,
            transaction_timeout_ms: d.i32()?,
            producer_id: if v >= 3 { d.i64()? } else { -1 },
            producer_epoch: if v >= 3 { d.i16()? } else { -1 },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.opt_string(self.transactional_id.as_ref(), f);
        e.i32(self.transaction_timeout_ms);
        if v >= 3 {
            e.i64(self.producer_id);
        } else {
            e.unsupported("producer_id", v, self.producer_id != -1);
        }
        if v >= 3 {
            e.i16(self.producer_epoch);
        } else {
            e.unsupported("producer_epoch", v, self.producer_epoch != -1);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for InitProducerIdRequest {
    const NAME: &'static str = "InitProducerIdRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for InitProducerIdRequest {
    const KEY: ApiKey = ApiKey::InitProducerId;
    type Response = InitProducerIdResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct InitProducerIdResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub producer_id: i64,
    pub producer_epoch: i16,
}

impl Default for InitProducerIdResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            producer_id: -1,
            producer_epoch: 0,
        }
    }
}

impl Wire for InitProducerIdResponse {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for InitProducerIdResponse {
    const NAME: &'static str = "InitProducerIdResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 2;
}
