//! `DescribeAcls`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeAclsRequest {
    pub resource_type_filter: i8,
    pub resource_name_filter: Option<Str>,
    pub pattern_type_filter: i8,
    pub principal_filter: Option<Str>,
    pub host_filter: Option<Str>,
    pub operation: i8,
    pub permission_type: i8,
}

impl Default for DescribeAclsRequest {
    fn default() -> Self {
        Self {
            resource_type_filter: 0,
            resource_name_filter: Some(Str::default()),
            pattern_type_filter: 3,
            principal_filter: Some(Str::default()),
            host_filter: Some(Str::default()),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl Wire for DescribeAclsRequest {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            resource_type_filter: d.i8()?,
            resource_name_filter: d.opt_string(f, true)?,
            pattern_type_filter: d.i8()?,
            principal_filter: d.opt_string(f, true)?,
            host_filter: d.opt_string(f, true)?,
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
        e.i8(self.resource_type_filter);
        e.opt_string(self.resource_name_filter.as_ref(), f);
        e.i8(self.pattern_type_filter);
        e.opt_string(self.principal_filter.as_ref(), f);
        e.opt_string(self.host_filter.as_ref(), f);
        e.i8(self.operation);
        e.i8(self.permission_type);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeAclsRequest {
    const NAME: &'static str = "DescribeAclsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for DescribeAclsRequest {
    const KEY: ApiKey = ApiKey::DescribeAcls;
    type Response = DescribeAclsResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeAclsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub resources: Vec<DescribeAclsResource>,
}

impl Default for DescribeAclsResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            resources: Vec::new(),
        }
    }
}

impl Wire for DescribeAclsResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            resources: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.array(&self.resources, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeAclsResource {
    pub resource_type: i8,
    pub resource_name: Str,
    pub pattern_type: i8,
    pub acls: Vec<AclDescription>,
}

impl Default for DescribeAclsResource {
    fn default() -> Self {
        Self {
            resource_type: 0,
            resource_name: Str::default(),
            pattern_type: 3,
            acls: Vec::new(),
        }
    }
}

impl Wire for DescribeAclsResource {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
            pattern_type: d.i8()?,
            acls: d.array(v, f)?,
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
        e.i8(self.pattern_type);
        e.array(&self.acls, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AclDescription {
    pub principal: Str,
    pub host: Str,
    pub operation: i8,
    pub permission_type: i8,
}

impl Wire for AclDescription {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
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
        e.string(&self.principal, f);
        e.string(&self.host, f);
        e.i8(self.operation);
        e.i8(self.permission_type);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeAclsResponse {
    const NAME: &'static str = "DescribeAclsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
