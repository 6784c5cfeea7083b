//! `AddOffsetsToTxn`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddOffsetsToTxnRequest {
    pub transactional_id: Str,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub group_id: Str,
}

impl Wire for AddOffsetsToTxnRequest {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            transactional_id: d.string(f)?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            group_id: d.string(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.string(&self.transactional_id, f);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        e.string(&self.group_id, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AddOffsetsToTxnRequest {
    const NAME: &'static str = "AddOffsetsToTxnRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for AddOffsetsToTxnRequest {
    const KEY: ApiKey = ApiKey::AddOffsetsToTxn;
    type Response = AddOffsetsToTxnResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddOffsetsToTxnResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
}

impl Wire for AddOffsetsToTxnResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AddOffsetsToTxnResponse {
    const NAME: &'static str = "AddOffsetsToTxnResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 3;
}
