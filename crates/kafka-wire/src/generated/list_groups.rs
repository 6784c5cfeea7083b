//! `ListGroups`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListGroupsRequest {
    /// In versions 4 and up.
    pub states_filter: Vec<Str>,
    /// In versions 5 and up.
    pub types_filter: Vec<Str>,
}

impl Wire for ListGroupsRequest {
    const BYTES_MIN: usize = 0;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            states_filter: if v >= 4 { d.strings(f)? } else { Vec::new() },
            types_filter: if v >= 5 { d.strings(f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v >= 4 {
            e.strings(&self.states_filter, f);
        } else {
            e.unsupported("states_filter", v, !self.states_filter.is_empty());
        }
        if v >= 5 {
            e.strings(&self.types_filter, f);
        } else {
            e.unsupported("types_filter", v, !self.types_filter.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ListGroupsRequest {
    const NAME: &'static str = "ListGroupsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for ListGroupsRequest {
    const KEY: ApiKey = ApiKey::ListGroups;
    type Response = ListGroupsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListGroupsResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub groups: Vec<ListedGroup>,
}

impl Wire for ListGroupsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            error_code: d.i16()?,
            groups: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v >= 1 {
            e.i32(self.throttle_time_ms);
        }
        e.i16(self.error_code);
        e.array(&self.groups, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListedGroup {
    pub group_id: Str,
    pub protocol_type: Str,
    /// In versions 4 and up.
    pub group_state: Str,
    /// In versions 5 and up.
    pub group_type: Str,
}

impl Wire for ListedGroup {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            group_id: d.string(f)?,
            protocol_type: d.string(f)?,
            group_state: if v >= 4 { d.string(f)? } else { Str::default() },
            group_type: if v >= 5 { d.string(f)? } else { Str::default() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.string(&self.group_id, f);
        e.string(&self.protocol_type, f);
        if v >= 4 {
            e.string(&self.group_state, f);
        }
        if v >= 5 {
            e.string(&self.group_type, f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ListGroupsResponse {
    const NAME: &'static str = "ListGroupsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}
