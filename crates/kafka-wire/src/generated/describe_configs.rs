//! `DescribeConfigs`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeConfigsRequest {
    pub resources: Vec<DescribeConfigsResource>,
    pub include_synonyms: bool,
    /// In versions 3 and up.
    pub include_documentation: bool,
}

impl Wire for DescribeConfigsRequest {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            resources: d.array(v, f)?,
            include_synonyms: d.bool()?,
            include_documentation: if v >= 3 { d.bool()? } else { false },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.array(&self.resources, v, f);
        e.bool(self.include_synonyms);
        if v >= 3 {
            e.bool(self.include_documentation);
        } else {
            e.unsupported("include_documentation", v, self.include_documentation);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeConfigsResource {
    pub resource_type: i8,
    pub resource_name: Str,
    pub configuration_keys: Option<Vec<Str>>,
}

impl Default for DescribeConfigsResource {
    fn default() -> Self {
        Self {
            resource_type: 0,
            resource_name: Str::default(),
            configuration_keys: Some(Vec::new()),
        }
    }
}

impl Wire for DescribeConfigsResource {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            resource_type: d.i8()?,
            resource_name: d.string(f)?,
            configuration_keys: d.opt_strings(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.i8(self.resource_type);
        e.string(&self.resource_name, f);
        e.opt_strings(self.configuration_keys.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeConfigsRequest {
    const NAME: &'static str = "DescribeConfigsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 4);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for DescribeConfigsRequest {
    const KEY: ApiKey = ApiKey::DescribeConfigs;
    type Response = DescribeConfigsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeConfigsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<DescribeConfigsResult>,
}

impl Wire for DescribeConfigsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
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
        let f = v >= 4;
        e.i32(self.throttle_time_ms);
        e.array(&self.results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeConfigsResult {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub resource_type: i8,
    pub resource_name: Str,
    pub configs: Vec<DescribeConfigsResourceResult>,
}

impl Default for DescribeConfigsResult {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            resource_type: 0,
            resource_name: Str::default(),
            configs: Vec::new(),
        }
    }
}

impl Wire for DescribeConfigsResult {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
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
        let f = v >= 4;
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.i8(self.resource_type);
        e.string(&self.resource_name, f);
        e.array(&self.configs, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeConfigsResourceResult {
    pub name: Str,
    pub value: Option<Str>,
    pub read_only: bool,
    pub config_source: i8,
    pub is_sensitive: bool,
    pub synonyms: Vec<DescribeConfigsSynonym>,
    /// In versions 3 and up.
    pub config_type: i8,
    /// In versions 3 and up.
    pub documentation: Option<Str>,
}

impl Default for DescribeConfigsResourceResult {
    fn default() -> Self {
        Self {
            name: Str::default(),
            value: Some(Str::default()),
            read_only: false,
            config_source: -1,
            is_sensitive: false,
            synonyms: Vec::new(),
            config_type: 0,
            documentation: Some(Str::default()),
        }
    }
}

impl Wire for DescribeConfigsResourceResult {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            name: d.string(f)?,
            value: d.opt_string(f, true)?,
            read_only: d.bool()?,
            config_source: d.i8()?,
            is_sensitive: d.bool()?,
            synonyms: d.array(v, f)?,
            config_type: if v >= 3 { d.i8()? } else { 0 },
            documentation: if v >= 3 {
                d.opt_string(f, true)?
            } else {
                Some(Str::default())
            },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.name, f);
        e.opt_string(self.value.as_ref(), f);
        e.bool(self.read_only);
        e.i8(self.config_source);
        e.bool(self.is_sensitive);
        e.array(&self.synonyms, v, f);
        if v >= 3 {
            e.i8(self.config_type);
        }
        if v >= 3 {
            e.opt_string(self.documentation.as_ref(), f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeConfigsSynonym {
    pub name: Str,
    pub value: Option<Str>,
    pub source: i8,
}

impl Default for DescribeConfigsSynonym {
    fn default() -> Self {
        Self {
            name: Str::default(),
            value: Some(Str::default()),
            source: 0,
        }
    }
}

impl Wire for DescribeConfigsSynonym {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            name: d.string(f)?,
            value: d.opt_string(f, true)?,
            source: d.i8()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.name, f);
        e.opt_string(self.value.as_ref(), f);
        e.i8(self.source);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeConfigsResponse {
    const NAME: &'static str = "DescribeConfigsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 4);
    const FLEXIBLE_FROM: i16 = 4;
}
