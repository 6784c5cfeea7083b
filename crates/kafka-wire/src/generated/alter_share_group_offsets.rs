//! `AlterShareGroupOffsets`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsRequest {
    pub group_id: Str,
    pub topics: Vec<AlterShareGroupOffsetsRequestTopic>,
}

impl Wire for AlterShareGroupOffsetsRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsRequestTopic {
    pub topic_name: Str,
    pub partitions: Vec<AlterShareGroupOffsetsRequestPartition>,
}

impl Wire for AlterShareGroupOffsetsRequestTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.topic_name, true);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsRequestPartition {
    pub partition_index: i32,
    pub start_offset: i64,
}

impl Wire for AlterShareGroupOffsetsRequestPartition {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            start_offset: d.i64()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.i64(self.start_offset);
        e.tags(&[]);
    }
}

impl Message for AlterShareGroupOffsetsRequest {
    const NAME: &'static str = "AlterShareGroupOffsetsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for AlterShareGroupOffsetsRequest {
    const KEY: ApiKey = ApiKey::AlterShareGroupOffsets;
    type Response = AlterShareGroupOffsetsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub responses: Vec<AlterShareGroupOffsetsResponseTopic>,
}

impl Wire for AlterShareGroupOffsetsResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            responses: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.array(&self.responses, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsResponseTopic {
    pub topic_name: Str,
    pub topic_id: Uuid,
    pub partitions: Vec<AlterShareGroupOffsetsResponsePartition>,
}

impl Wire for AlterShareGroupOffsetsResponseTopic {
    const BYTES_MIN: usize = 19;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
            topic_id: d.uuid()?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.topic_name, true);
        e.uuid(self.topic_id);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterShareGroupOffsetsResponsePartition {
    pub partition_index: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Wire for AlterShareGroupOffsetsResponsePartition {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for AlterShareGroupOffsetsResponse {
    const NAME: &'static str = "AlterShareGroupOffsetsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
