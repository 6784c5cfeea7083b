//! `ListConfigResources`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListConfigResourcesRequest {
    /// In versions 1 and up.
    pub resource_types: Vec<i8>,
}

impl Wire for ListConfigResourcesRequest {
    const BYTES_MIN: usize = 1;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            resource_types: if v >= 1 { d.array(v, true)? } else { Vec::new() },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        if v >= 1 {
            e.array(&self.resource_types, v, true);
        } else {
            e.unsupported("resource_types", v, !self.resource_types.is_empty());
        }
        e.tags(&[]);
    }
}

impl Message for ListConfigResourcesRequest {
    const NAME: &'static str = "ListConfigResourcesRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for ListConfigResourcesRequest {
    const KEY: ApiKey = ApiKey::ListConfigResources;
    type Response = ListConfigResourcesResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListConfigResourcesResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub config_resources: Vec<ConfigResource>,
}

impl Wire for ListConfigResourcesResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            config_resources: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.array(&self.config_resources, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConfigResource {
    pub resource_name: Str,
    /// In versions 1 and up.
    pub resource_type: i8,
}

impl Default for ConfigResource {
    fn default() -> Self {
        Self {
            resource_name: Str::default(),
            resource_type: 16,
        }
    }
}

impl Wire for ConfigResource {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            resource_name: d.string(true)?,
            resource_type: if v >= 1 { d.i8()? } else { 16 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.resource_name, true);
        if v >= 1 {
            e.i8(self.resource_type);
        }
        e.tags(&[]);
    }
}

impl Message for ListConfigResourcesResponse {
    const NAME: &'static str = "ListConfigResourcesResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}
