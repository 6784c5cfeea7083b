//! `Heartbeat`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeartbeatRequest {
    pub group_id: Str,
    pub generation_id: i32,
    pub member_id: Str,
    /// In versions 3 and up.
    pub group_instance_id: Option<Str>,
}

impl Wire for HeartbeatRequest {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            group_id: d.string(f)?,
            generation_id: d.i32()?,
            member_id: d.string(f)?,
            group_instance_id: if v >= 3 { d.opt_string(f, true)? } else { None },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.group_id, f);
        e.i32(self.generation_id);
        e.string(&self.member_id, f);
        if v >= 3 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        } else {
            e.unsupported("group_instance_id", v, self.group_instance_id.is_some());
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for HeartbeatRequest {
    const NAME: &'static str = "HeartbeatRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for HeartbeatRequest {
    const KEY: ApiKey = ApiKey::Heartbeat;
    type Response = HeartbeatResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeartbeatResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    pub error_code: i16,
}

impl Wire for HeartbeatResponse {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        if v >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for HeartbeatResponse {
    const NAME: &'static str = "HeartbeatResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 4;
}
