//! `DescribeGroups`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeGroupsRequest {
    pub groups: Vec<Str>,
    /// In versions 3 and up.
    pub include_authorized_operations: bool,
}

impl Wire for DescribeGroupsRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            groups: d.strings(f)?,
            include_authorized_operations: if v >= 3 { d.bool()? } else { false },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.strings(&self.groups, f);
        if v >= 3 {
            e.bool(self.include_authorized_operations);
        } else {
            e.unsupported(
                "include_authorized_operations",
                v,
                self.include_authorized_operations,
            );
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeGroupsRequest {
    const NAME: &'static str = "DescribeGroupsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 6);
    const FLEXIBLE_FROM: i16 = 5;
}

impl Request for DescribeGroupsRequest {
    const KEY: ApiKey = ApiKey::DescribeGroups;
    type Response = DescribeGroupsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeGroupsResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribedGroup>,
}

impl Wire for DescribeGroupsResponse {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            groups: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        if v >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.array(&self.groups, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribedGroup {
    pub error_code: i16,
    /// In versions 6 and up.
    pub error_message: Option<Str>,
    pub group_id: Str,
    pub group_state: Str,
    pub protocol_type: Str,
    pub protocol_data: Str,
    pub members: Vec<DescribedGroupMember>,
    /// In versions 3 and up.
    pub authorized_operations: i32,
}

impl Default for DescribedGroup {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: None,
            group_id: Str::default(),
            group_state: Str::default(),
            protocol_type: Str::default(),
            protocol_data: Str::default(),
            members: Vec::new(),
            authorized_operations: i32::MIN,
        }
    }
}

impl Wire for DescribedGroup {
    const BYTES_MIN: usize = 12;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            error_code: d.i16()?,
            error_message: if v >= 6 { d.opt_string(f, true)? } else { None },
            group_id: d.string(f)?,
            group_state: d.string(f)?,
            protocol_type: d.string(f)?,
            protocol_data: d.string(f)?,
            members: d.array(v, f)?,
            authorized_operations: if v >= 3 { d.i32()? } else { i32::MIN },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.i16(self.error_code);
        if v >= 6 {
            e.opt_string(self.error_message.as_ref(), f);
        } else {
            e.unsupported("error_message", v, self.error_message.is_some());
        }
        e.string(&self.group_id, f);
        e.string(&self.group_state, f);
        e.string(&self.protocol_type, f);
        e.string(&self.protocol_data, f);
        e.array(&self.members, v, f);
        if v >= 3 {
            e.i32(self.authorized_operations);
        } else {
            e.unsupported("authorized_operations", v, self.authorized_operations != i32::MIN);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribedGroupMember {
    pub member_id: Str,
    /// In versions 4 and up.
    pub group_instance_id: Option<Str>,
    pub client_id: Str,
    pub client_host: Str,
    pub member_metadata: Bytes,
    pub member_assignment: Bytes,
}

impl Wire for DescribedGroupMember {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            member_id: d.string(f)?,
            group_instance_id: if v >= 4 { d.opt_string(f, true)? } else { None },
            client_id: d.string(f)?,
            client_host: d.string(f)?,
            member_metadata: d.bytes(f)?,
            member_assignment: d.bytes(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.string(&self.member_id, f);
        if v >= 4 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        }
        e.string(&self.client_id, f);
        e.string(&self.client_host, f);
        e.bytes(&self.member_metadata, f);
        e.bytes(&self.member_assignment, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeGroupsResponse {
    const NAME: &'static str = "DescribeGroupsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 6);
    const FLEXIBLE_FROM: i16 = 5;
}
