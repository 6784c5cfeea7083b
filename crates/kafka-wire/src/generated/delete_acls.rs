//! `DeleteAcls`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteAclsRequest {
    pub filters: Vec<DeleteAclsFilter>,
}

impl Wire for DeleteAclsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            filters: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.array(&self.filters, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeleteAclsFilter {
    pub resource_type_filter: i8,
    pub resource_name_filter: Option<Str>,
    pub pattern_type_filter: i8,
    pub principal_filter: Option<Str>,
    pub host_filter: Option<Str>,
    pub operation: i8,
    pub permission_type: i8,
}

impl Default for DeleteAclsFilter {
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

impl Wire for DeleteAclsFilter {
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

impl Message for DeleteAclsRequest {
    const NAME: &'static str = "DeleteAclsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for DeleteAclsRequest {
    const KEY: ApiKey = ApiKey::DeleteAcls;
    type Response = DeleteAclsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteAclsResponse {
    pub throttle_time_ms: i32,
    pub filter_results: Vec<DeleteAclsFilterResult>,
}

impl Wire for DeleteAclsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            filter_results: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        e.array(&self.filter_results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeleteAclsFilterResult {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub matching_acls: Vec<DeleteAclsMatchingAcl>,
}

impl Default for DeleteAclsFilterResult {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            matching_acls: Vec::new(),
        }
    }
}

impl Wire for DeleteAclsFilterResult {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            matching_acls: d.array(v, f)?,
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
        e.array(&self.matching_acls, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeleteAclsMatchingAcl {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub resource_type: i8,
    pub resource_name: Str,
    pub pattern_type: i8,
    pub principal: Str,
    pub host: Str,
    pub operation: i8,
    pub permission_type: i8,
}

impl Default for DeleteAclsMatchingAcl {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            resource_type: 0,
            resource_name: Str::default(),
            pattern_type: 3,
            principal: Str::default(),
            host: Str::default(),
            operation: 0,
            permission_type: 0,
        }
    }
}

impl Wire for DeleteAclsMatchingAcl {
    const BYTES_MIN: usize = 11;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
            pattern_type: d.i8()?,
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
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.i8(self.resource_type);
        e.string(&self.resource_name, f);
        e.i8(self.pattern_type);
        e.string(&self.principal, f);
        e.string(&self.host, f);
        e.i8(self.operation);
        e.i8(self.permission_type);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DeleteAclsResponse {
    const NAME: &'static str = "DeleteAclsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
