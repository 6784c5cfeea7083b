//! `DeleteGroups`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteGroupsRequest {
    pub groups_names: Vec<Str>,
}

impl Wire for DeleteGroupsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            groups_names: d.strings(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.strings(&self.groups_names, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DeleteGroupsRequest {
    const NAME: &'static str = "DeleteGroupsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for DeleteGroupsRequest {
    const KEY: ApiKey = ApiKey::DeleteGroups;
    type Response = DeleteGroupsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteGroupsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<DeletableGroupResult>,
}

impl Wire for DeleteGroupsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            results: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        e.array(&self.results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeletableGroupResult {
    pub group_id: Str,
    pub error_code: i16,
}

impl Wire for DeletableGroupResult {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            group_id: d.string(f)?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.group_id, f);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DeleteGroupsResponse {
    const NAME: &'static str = "DeleteGroupsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
