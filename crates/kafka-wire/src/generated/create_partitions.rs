//! `CreatePartitions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatePartitionsRequest {
    pub topics: Vec<CreatePartitionsTopic>,
    pub timeout_ms: i32,
    pub validate_only: bool,
}

impl Wire for CreatePartitionsRequest {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
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
        let f = v >= 2;
        e.array(&self.topics, v, f);
        e.i32(self.timeout_ms);
        e.bool(self.validate_only);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreatePartitionsTopic {
    pub name: Str,
    pub count: i32,
    pub assignments: Option<Vec<CreatePartitionsAssignment>>,
}

impl Default for CreatePartitionsTopic {
    fn default() -> Self {
        Self {
            name: Str::default(),
            count: 0,
            assignments: Some(Vec::new()),
        }
    }
}

impl Wire for CreatePartitionsTopic {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            name: d.string(f)?,
            count: d.i32()?,
            assignments: d.opt_array(v, f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.name, f);
        e.i32(self.count);
        e.opt_array(self.assignments.as_ref(), v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatePartitionsAssignment {
    pub broker_ids: Vec<i32>,
}

impl Wire for CreatePartitionsAssignment {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            broker_ids: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.array(&self.broker_ids, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreatePartitionsRequest {
    const NAME: &'static str = "CreatePartitionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for CreatePartitionsRequest {
    const KEY: ApiKey = ApiKey::CreatePartitions;
    type Response = CreatePartitionsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatePartitionsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<CreatePartitionsTopicResult>,
}

impl Wire for CreatePartitionsResponse {
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
pub struct CreatePartitionsTopicResult {
    pub name: Str,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Wire for CreatePartitionsTopicResult {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            name: d.string(f)?,
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
        e.string(&self.name, f);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreatePartitionsResponse {
    const NAME: &'static str = "CreatePartitionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
