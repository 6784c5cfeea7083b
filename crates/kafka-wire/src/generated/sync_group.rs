//! `SyncGroup`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncGroupRequest {
    pub group_id: Str,
    pub generation_id: i32,
    pub member_id: Str,
    /// In versions 3 and up.
    pub group_instance_id: Option<Str>,
    /// In versions 5 and up.
    pub protocol_type: Option<Str>,
    /// In versions 5 and up.
    pub protocol_name: Option<Str>,
    pub assignments: Vec<SyncGroupRequestAssignment>,
}

impl Wire for SyncGroupRequest {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            group_id: d.string(f)?,
            generation_id: d.i32()?,
            member_id: d.string(f)?,
            group_instance_id: if v >= 3 { d.opt_string(f, true)? } else { None },
            protocol_type: if v >= 5 { d.opt_string(f, true)? } else { None },
            protocol_name: if v >= 5 { d.opt_string(f, true)? } else { None },
            assignments: d.array(v, f)?,
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
        if v >= 5 {
            e.opt_string(self.protocol_type.as_ref(), f);
        }
        if v >= 5 {
            e.opt_string(self.protocol_name.as_ref(), f);
        }
        e.array(&self.assignments, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncGroupRequestAssignment {
    pub member_id: Str,
    pub assignment: Bytes,
}

impl Wire for SyncGroupRequestAssignment {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            member_id: d.string(f)?,
            assignment: d.bytes(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.member_id, f);
        e.bytes(&self.assignment, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for SyncGroupRequest {
    const NAME: &'static str = "SyncGroupRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for SyncGroupRequest {
    const KEY: ApiKey = ApiKey::SyncGroup;
    type Response = SyncGroupResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncGroupResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    pub error_code: i16,
    /// In versions 5 and up.
    pub protocol_type: Option<Str>,
    /// In versions 5 and up.
    pub protocol_name: Option<Str>,
    pub assignment: Bytes,
}

impl Wire for SyncGroupResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            error_code: d.i16()?,
            protocol_type: if v >= 5 { d.opt_string(f, true)? } else { None },
            protocol_name: if v >= 5 { d.opt_string(f, true)? } else { None },
            assignment: d.bytes(f)?,
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
        if v >= 5 {
            e.opt_string(self.protocol_type.as_ref(), f);
        }
        if v >= 5 {
            e.opt_string(self.protocol_name.as_ref(), f);
        }
        e.bytes(&self.assignment, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for SyncGroupResponse {
    const NAME: &'static str = "SyncGroupResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 4;
}
