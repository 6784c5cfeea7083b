//! `OffsetDelete`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteRequest {
    pub group_id: Str,
    pub topics: Vec<OffsetDeleteRequestTopic>,
}

impl Wire for OffsetDeleteRequest {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            group_id: d.string(false)?,
            topics: d.array(v, false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, false);
        e.array(&self.topics, v, false);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteRequestTopic {
    pub name: Str,
    pub partitions: Vec<OffsetDeleteRequestPartition>,
}

impl Wire for OffsetDeleteRequestTopic {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            name: d.string(false)?,
            partitions: d.array(v, false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, false);
        e.array(&self.partitions, v, false);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteRequestPartition {
    pub partition_index: i32,
}

impl Wire for OffsetDeleteRequestPartition {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            partition_index: d.i32()?,
        })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
    }
}

impl Message for OffsetDeleteRequest {
    const NAME: &'static str = "OffsetDeleteRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}

impl Request for OffsetDeleteRequest {
    const KEY: ApiKey = ApiKey::OffsetDelete;
    type Response = OffsetDeleteResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteResponse {
    pub error_code: i16,
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetDeleteResponseTopic>,
}

impl Wire for OffsetDeleteResponse {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            error_code: d.i16()?,
            throttle_time_ms: d.i32()?,
            topics: d.array(v, false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, false);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteResponseTopic {
    pub name: Str,
    pub partitions: Vec<OffsetDeleteResponsePartition>,
}

impl Wire for OffsetDeleteResponseTopic {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            name: d.string(false)?,
            partitions: d.array(v, false)?,
        })
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, false);
        e.array(&self.partitions, v, false);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetDeleteResponsePartition {
    pub partition_index: i32,
    pub error_code: i16,
}

impl Wire for OffsetDeleteResponsePartition {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
        })
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
    }
}

impl Message for OffsetDeleteResponse {
    const NAME: &'static str = "OffsetDeleteResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = i16::MAX;
}
