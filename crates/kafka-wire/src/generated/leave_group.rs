//! `LeaveGroup`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeaveGroupRequest {
    pub group_id: Str,
    /// In versions 0 to 2.
    pub member_id: Str,
    /// In versions 3 and up.
    pub members: Vec<MemberIdentity>,
}

impl Wire for LeaveGroupRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            group_id: d.string(f)?,
            member_id: if v <= 2 { d.string(f)? } else { Str::default() },
            members: if v >= 3 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.group_id, f);
        if v <= 2 {
            e.string(&self.member_id, f);
        } else {
            e.unsupported("member_id", v, !self.member_id.is_empty());
        }
        if v >= 3 {
            e.array(&self.members, v, f);
        } else {
            e.unsupported("members", v, !self.members.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemberIdentity {
    pub member_id: Str,
    pub group_instance_id: Option<Str>,
    /// In versions 5 and up.
    pub reason: Option<Str>,
}

impl Wire for MemberIdentity {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            member_id: d.string(f)?,
            group_instance_id: d.opt_string(f, true)?,
            reason: if v >= 5 { d.opt_string(f, true)? } else { None },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.member_id, f);
        e.opt_string(self.group_instance_id.as_ref(), f);
        if v >= 5 {
            e.opt_string(self.reason.as_ref(), f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for LeaveGroupRequest {
    const NAME: &'static str = "LeaveGroupRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for LeaveGroupRequest {
    const KEY: ApiKey = ApiKey::LeaveGroup;
    type Response = LeaveGroupResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeaveGroupResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    pub error_code: i16,
    /// In versions 3 and up.
    pub members: Vec<MemberResponse>,
}

impl Wire for LeaveGroupResponse {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            error_code: d.i16()?,
            members: if v >= 3 { d.array(v, f)? } else { Vec::new() },
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
        if v >= 3 {
            e.array(&self.members, v, f);
        } else {
            e.unsupported("members", v, !self.members.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MemberResponse {
    pub member_id: Str,
    pub group_instance_id: Option<Str>,
    pub error_code: i16,
}

impl Default for MemberResponse {
    fn default() -> Self {
        Self {
            member_id: Str::default(),
            group_instance_id: Some(Str::default()),
            error_code: 0,
        }
    }
}

impl Wire for MemberResponse {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            member_id: d.string(f)?,
            group_instance_id: d.opt_string(f, true)?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.member_id, f);
        e.opt_string(self.group_instance_id.as_ref(), f);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for LeaveGroupResponse {
    const NAME: &'static str = "LeaveGroupResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 4;
}
