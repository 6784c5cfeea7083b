//! `CreateTopics`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateTopicsRequest {
    pub topics: Vec<CreatableTopic>,
    pub timeout_ms: i32,
    pub validate_only: bool,
}

impl Default for CreateTopicsRequest {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            timeout_ms: 60000,
            validate_only: false,
        }
    }
}

impl Wire for CreateTopicsRequest {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            topics: d.array(v, f)?,
            timeout_ms: d.i32()?,
            validate_only: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.array(&self.topics, v, f);
        e.i32(self.timeout_ms);
        e.bool(self.validate_only);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatableTopic {
    pub name: Str,
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub assignments: Vec<CreatableReplicaAssignment>,
    pub configs: Vec<CreatableTopicConfig>,
}

impl Wire for CreatableTopic {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            name: d.string(f)?,
            num_partitions: d.i32()?,
            replication_factor: d.i16()?,
            assignments: d.array(v, f)?,
            configs: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.string(&self.name, f);
        e.i32(self.num_partitions);
        e.i16(self.replication_factor);
        e.array(&self.assignments, v, f);
        e.array(&self.configs, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatableReplicaAssignment {
    pub partition_index: i32,
    pub broker_ids: Vec<i32>,
}

impl Wire for CreatableReplicaAssignment {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            partition_index: d.i32()?,
            broker_ids: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.i32(self.partition_index);
        e.array(&self.broker_ids, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreatableTopicConfig {
    pub name: Str,
    pub value: Option<Str>,
}

impl Default for CreatableTopicConfig {
    fn default() -> Self {
        Self {
            name: Str::default(),
            value: Some(Str::default()),
        }
    }
}

impl Wire for CreatableTopicConfig {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
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
        let f = v >= 5;
        e.string(&self.name, f);
        e.opt_string(self.value.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreateTopicsRequest {
    const NAME: &'static str = "CreateTopicsRequest";
    const VERSIONS: VersionRange = VersionRange::new(2, 7);
    const FLEXIBLE_FROM: i16 = 5;
}

impl Request for CreateTopicsRequest {
    const KEY: ApiKey = ApiKey::CreateTopics;
    type Response = CreateTopicsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateTopicsResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<CreatableTopicResult>,
}

impl Wire for CreateTopicsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let m = Self {
            throttle_time_ms: d.i32()?,
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreatableTopicResult {
    pub name: Str,
    /// In versions 7 and up.
    pub topic_id: Uuid,
    pub error_code: i16,
    pub error_message: Option<Str>,
    /// In versions 5 and up.
    pub topic_config_error_code: i16,
    /// In versions 5 and up.
    pub num_partitions: i32,
    /// In versions 5 and up.
    pub replication_factor: i16,
    /// In versions 5 and up.
    pub configs: Option<Vec<CreatableTopicConfigs>>,
}

impl Default for CreatableTopicResult {
    fn default() -> Self {
        Self {
            name: Str::default(),
            topic_id: Uuid::ZERO,
            error_code: 0,
            error_message: Some(Str::default()),
            topic_config_error_code: 0,
            num_partitions: -1,
            replication_factor: -1,
            configs: Some(Vec::new()),
        }
    }
}

impl Wire for CreatableTopicResult {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 5;
        let mut m = Self {
            name: d.string(f)?,
            topic_id: if v >= 7 { d.uuid()? } else { Uuid::ZERO },
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            topic_config_error_code: 0,
            num_partitions: if v >= 5 { d.i32()? } else { -1 },
            replication_factor: if v >= 5 { d.i16()? } else { -1 },
            configs: if v >= 5 {
                d.opt_array(v, f, true)?
            } else {
                Some(Vec::new())
            },
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 => m.topic_config_error_code = d.i16()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 5;
        e.string(&self.name, f);
        if v >= 7 {
            e.uuid(self.topic_id);
        }
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        if v >= 5 {
            e.i32(self.num_partitions);
        }
        if v >= 5 {
            e.i16(self.replication_factor);
        }
        if v >= 5 {
            e.opt_array(self.configs.as_ref(), v, f);
        }
        if f {
            let has_topic_config_error_code = self.topic_config_error_code != 0;
            e.tags(&[has_topic_config_error_code]);
            e.tag(0, has_topic_config_error_code, |e| {
                e.i16(self.topic_config_error_code);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreatableTopicConfigs {
    pub name: Str,
    pub value: Option<Str>,
    pub read_only: bool,
    pub config_source: i8,
    pub is_sensitive: bool,
}

impl Default for CreatableTopicConfigs {
    fn default() -> Self {
        Self {
            name: Str::default(),
            value: Some(Str::default()),
            read_only: false,
            config_source: -1,
            is_sensitive: false,
        }
    }
}

impl Wire for CreatableTopicConfigs {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            value: d.opt_string(true, true)?,
            read_only: d.bool()?,
            config_source: d.i8()?,
            is_sensitive: d.bool()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.opt_string(self.value.as_ref(), true);
        e.bool(self.read_only);
        e.i8(self.config_source);
        e.bool(self.is_sensitive);
        e.tags(&[]);
    }
}

impl Message for CreateTopicsResponse {
    const NAME: &'static str = "CreateTopicsResponse";
    const VERSIONS: VersionRange = VersionRange::new(2, 7);
    const FLEXIBLE_FROM: i16 = 5;
}
