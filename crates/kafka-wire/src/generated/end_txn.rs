//! `EndTxn`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndTxnRequest {
    pub transactional_id: Str,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub committed: bool,
}

impl Wire for EndTxnRequest {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            transactional_id: d.string(f)?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            committed: d.bool()?,
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
        e.bool(self.committed);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for EndTxnRequest {
    const NAME: &'static str = "EndTxnRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for EndTxnRequest {
    const KEY: ApiKey = ApiKey::EndTxn;
    type Response = EndTxnResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct EndTxnResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    /// In versions 5 and up.
    pub producer_id: i64,
    /// In versions 5 and up.
    pub producer_epoch: i16,
}

impl Default for EndTxnResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            producer_id: -1,
            producer_epoch: -1,
        }
    }
}

impl Wire for EndTxnResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            producer_id: if v >= 5 { d.i64()? } else { -1 },
            producer_epoch: if v >= 5 { d.i16()? } else { -1 },
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
        if v >= 5 {
            e.i64(self.producer_id);
        }
        if v >= 5 {
            e.i16(self.producer_epoch);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for EndTxnResponse {
    const NAME: &'static str = "EndTxnResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}
