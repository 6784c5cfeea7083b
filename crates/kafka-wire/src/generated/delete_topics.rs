//! `DeleteTopics`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteTopicsRequest {
    /// In versions 6 and up.
    pub topics: Vec<DeleteTopicState>,
    /// In versions 1 to 5.
    pub topic_names: Vec<Str>,
    pub timeout_ms: i32,
}

impl Wire for DeleteTopicsRequest {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            topics: if v >= 6 { d.array(v, f)? } else { Vec::new() },
            topic_names: if v <= 5 { d.strings(f)? } else { Vec::new() },
            timeout_ms: d.i32()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        if v >= 6 {
            e.array(&self.topics, v, f);
        } else {
            e.unsupported("topics", v, !self.topics.is_empty());
        }
        if v <= 5 {
            e.strings(&self.topic_names, f);
        }
        e.i32(self.timeout_ms);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteTopicState {
    pub name: Option<Str>,
    pub topic_id: Uuid,
}

impl Wire for DeleteTopicState {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.opt_string(true, true)?,
            topic_id: d.uuid()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.opt_string(self.name.as_ref(), true);
        e.uuid(self.topic_id);
        e.tags(&[]);
    }
}

impl Message for DeleteTopicsRequest {
    const NAME: &'static str = "DeleteTopicsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 6);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for DeleteTopicsRequest {
    const KEY: ApiKey = ApiKey::DeleteTopics;
    type Response = DeleteTopicsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteTopicsResponse {
    pub throttle_time_ms: i32,
    pub responses: Vec<DeletableTopicResult>,
}

impl Wire for DeleteTopicsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
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
        let f = v >= 4;
        e.i32(self.throttle_time_ms);
        e.array(&self.responses, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeletableTopicResult {
    pub name: Option<Str>,
    /// In versions 6 and up.
    pub topic_id: Uuid,
    pub error_code: i16,
    /// In versions 5 and up.
    pub error_message: Option<Str>,
}

impl Default for DeletableTopicResult {
    fn default() -> Self {
        Self {
            name: Some(Str::default()),
            topic_id: Uuid::ZERO,
            error_code: 0,
            error_message: None,
        }
    }
}

impl Wire for DeletableTopicResult {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            name: d.opt_string(f, v >= 6)?,
            topic_id: if v >= 6 { d.uuid()? } else { Uuid::ZERO },
            error_code: d.i16()?,
            error_message: if v >= 5 { d.opt_string(f, true)? } else { None },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.not_null("name", v, v < 6 && self.name.is_none());
        e.opt_string(self.name.as_ref(), f);
        if v >= 6 {
            e.uuid(self.topic_id);
        }
        e.i16(self.error_code);
        if v >= 5 {
            e.opt_string(self.error_message.as_ref(), f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DeleteTopicsResponse {
    const NAME: &'static str = "DeleteTopicsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 6);
    const FLEXIBLE_FROM: i16 = 4;
}
