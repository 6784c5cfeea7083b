//! `AlterConfigs`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterConfigsRequest {
    pub resources: Vec<AlterConfigsResource>,
    pub validate_only: bool,
}

impl Wire for AlterConfigsRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            resources: d.array(v, f)?,
            validate_only: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.array(&self.resources, v, f);
        e.bool(self.validate_only);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterConfigsResource {
    pub resource_type: i8,
    pub resource_name: Str,
    pub configs: Vec<AlterableConfig>,
}

impl Wire for AlterConfigsResource {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
            configs: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i8(self.resource_type);
        e.string(&self.resource_name, f);
        e.array(&self.configs, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterableConfig {
    pub name: Str,
    pub value: Option<Str>,
}

impl Default for AlterableConfig {
    fn default() -> Self {
        Self {
            name: Str::default(),
            value: Some(Str::default()),
        }
    }
}

impl Wire for AlterableConfig {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            name: d.string(f)?,
            value: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.name, f);
        e.opt_string(self.value.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AlterConfigsRequest {
    const NAME: &'static str = "AlterConfigsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for AlterConfigsRequest {
    const KEY: ApiKey = ApiKey::AlterConfigs;
    type Response = AlterConfigsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterConfigsResponse {
    pub throttle_time_ms: i32,
    pub responses: Vec<AlterConfigsResourceResponse>,
}

impl Wire for AlterConfigsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            responses: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        e.array(&self.responses, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterConfigsResourceResponse {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub resource_type: i8,
    pub resource_name: Str,
}

impl Default for AlterConfigsResourceResponse {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            resource_type: 0,
            resource_name: Str::default(),
        }
    }
}

impl Wire for AlterConfigsResourceResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.i8(self.resource_type);
        e.string(&self.resource_name, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AlterConfigsResponse {
    const NAME: &'static str = "AlterConfigsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
