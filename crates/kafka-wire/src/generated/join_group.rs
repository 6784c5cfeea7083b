//! `JoinGroup`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct JoinGroupRequest {
    pub group_id: Str,
    pub session_timeout_ms: i32,
    /// In versions 1 and up.
    pub rebalance_timeout_ms: i32,
    pub member_id: Str,
    /// In versions 5 and up.
    pub group_instance_id: Option<Str>,
    pub protocol_type: Str,
    pub protocols: Vec<JoinGroupRequestProtocol>,
    /// In versions 8 and up.
    pub reason: Option<Str>,
}

impl Default for JoinGroupRequest {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: -1,
            member_id: Str::default(),
            group_instance_id: None,
            protocol_type: Str::default(),
            protocols: Vec::new(),
            reason: None,
        }
    }
}

impl Wire for JoinGroupRequest {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            group_id: d.string(f)?,
            session_timeout_ms: d.i32()?,
            rebalance_timeout_ms: if v >= 1 { d.i32()? } else { -1 },
            member_id: d.string(f)?,
            group_instance_id: if v >= 5 { d.opt_string(f, true)? } else { None },
            protocol_type: d.string(f)?,
            protocols: d.array(v, f)?,
            reason: if v >= 8 { d.opt_string(f, true)? } else { None },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.group_id, f);
        e.i32(self.session_timeout_ms);
        if v >= 1 {
            e.i32(self.rebalance_timeout_ms);
        }
        e.string(&self.member_id, f);
        if v >= 5 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        } else {
            e.unsupported("group_instance_id", v, self.group_instance_id.is_some());
        }
        e.string(&self.protocol_type, f);
        e.array(&self.protocols, v, f);
        if v >= 8 {
            e.opt_string(self.reason.as_ref(), f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct JoinGroupRequestProtocol {
    pub name: Str,
    pub metadata: Bytes,
}

impl Wire for JoinGroupRequestProtocol {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            name: d.string(f)?,
            metadata: d.bytes(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.name, f);
        e.bytes(&self.metadata, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for JoinGroupRequest {
    const NAME: &'static str = "JoinGroupRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 9);
    const FLEXIBLE_FROM: i16 = 6;
}

impl Request for JoinGroupRequest {
    const KEY: ApiKey = ApiKey::JoinGroup;
    type Response = JoinGroupResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct JoinGroupResponse {
    /// In versions 2 and up.
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub generation_id: i32,
    /// In versions 7 and up.
    pub protocol_type: Option<Str>,
    pub protocol_name: Option<Str>,
    pub leader: Str,
    /// In versions 9 and up.
    pub skip_assignment: bool,
    pub member_id: Str,
    pub members: Vec<JoinGroupResponseMember>,
}

impl Default for JoinGroupResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            generation_id: -1,
            protocol_type: None,
            protocol_name: Some(Str::default()),
            leader: Str::default(),
            skip_assignment: false,
            member_id: Str::default(),
            members: Vec::new(),
        }
    }
}

impl Wire for JoinGroupResponse {
    const BYTES_MIN: usize = 15;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            throttle_time_ms: if v >= 2 { d.i32()? } else { 0 },
            error_code: d.i16()?,
            generation_id: d.i32()?,
            protocol_type: if v >= 7 { d.opt_string(f, true)? } else { None },
            protocol_name: d.opt_string(f, v >= 7)?,
            leader: d.string(f)?,
            skip_assignment: if v >= 9 { d.bool()? } else { false },
            member_id: d.string(f)?,
            members: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        if v >= 2 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        e.i32(self.generation_id);
        if v >= 7 {
            e.opt_string(self.protocol_type.as_ref(), f);
        }
        e.not_null("protocol_name", v, v < 7 && self.protocol_name.is_none());
        e.opt_string(self.protocol_name.as_ref(), f);
        e.string(&self.leader, f);
        if v >= 9 {
            e.bool(self.skip_assignment);
        } else {
            e.unsupported("skip_assignment", v, self.skip_assignment);
        }
        e.string(&self.member_id, f);
        e.array(&self.members, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct JoinGroupResponseMember {
    pub member_id: Str,
    /// In versions 5 and up.
    pub group_instance_id: Option<Str>,
    pub metadata: Bytes,
}

impl Wire for JoinGroupResponseMember {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            member_id: d.string(f)?,
            group_instance_id: if v >= 5 { d.opt_string(f, true)? } else { None },
            metadata: d.bytes(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.member_id, f);
        if v >= 5 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        }
        e.bytes(&self.metadata, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for JoinGroupResponse {
    const NAME: &'static str = "JoinGroupResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 9);
    const FLEXIBLE_FROM: i16 = 6;
}
