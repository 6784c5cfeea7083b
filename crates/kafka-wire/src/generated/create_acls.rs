//! `CreateAcls`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateAclsRequest {
    pub creations: Vec<AclCreation>,
}

impl Wire for CreateAclsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            creations: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.array(&self.creations, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct AclCreation {
    pub resource_type: i8,
    pub resource_name: Str,
    pub resource_pattern_type: i8,
    pub principal: Str,
    pub host: Str,
    pub operation: i8,
    pub permission_type: i8,
}

impl Default for AclCreation {
    fn default() -> Self {
        Self {
            resource_type: 0,
            resource_name: Str::default(),
            resource_pattern_type: 3,
            principal: Str::default(),
            host: Str::default(),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl Wire for AclCreation {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
            resource_pattern_type: d.i8()?,
            principal: d.string(f)?,
            host: d.string(f)?,
            operation: d.i8()?,
            permission_type: d.i8()?,
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
        e.i8(self.resource_pattern_type);
        e.string(&self.principal, f);
        e.string(&self.host, f);
        e.i8(self.operation);
        e.i8(self.permission_type);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreateAclsRequest {
    const NAME: &'static str = "CreateAclsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for CreateAclsRequest {
    const KEY: ApiKey = ApiKey::CreateAcls;
    type Response = CreateAclsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateAclsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AclCreationResult>,
}

impl Wire for CreateAclsResponse {
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

#[derive(Debug, Clone, PartialEq)]
pub struct AclCreationResult {
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for AclCreationResult {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for AclCreationResult {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
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
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreateAclsResponse {
    const NAME: &'static str = "CreateAclsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
