//! `OffsetForLeaderEpoch`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetForLeaderEpochRequest {
    /// In versions 3 and up.
    pub replica_id: i32,
    pub topics: Vec<OffsetForLeaderTopic>,
}

impl Default for OffsetForLeaderEpochRequest {
    fn default() -> Self {
        Self {
            replica_id: -2,
            topics: Vec::new(),
        }
    }
}

impl Wire for OffsetForLeaderEpochRequest {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            replica_id: if v >= 3 { d.i32()? } else { -2 },
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        if v >= 3 {
            e.i32(self.replica_id);
        }
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetForLeaderTopic {
    pub topic: Str,
    pub partitions: Vec<OffsetForLeaderPartition>,
}

impl Wire for OffsetForLeaderTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            topic: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.topic, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetForLeaderPartition {
    pub partition: i32,
    pub current_leader_epoch: i32,
    pub leader_epoch: i32,
}

impl Default for OffsetForLeaderPartition {
    fn default() -> Self {
        Self {
            partition: 0,
            current_leader_epoch: -1,
            leader_epoch: 0,
        }
    }
}

impl Wire for OffsetForLeaderPartition {
    const BYTES_MIN: usize = 12;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            partition: d.i32()?,
            current_leader_epoch: d.i32()?,
            leader_epoch: d.i32()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.i32(self.partition);
        e.i32(self.current_leader_epoch);
        e.i32(self.leader_epoch);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for OffsetForLeaderEpochRequest {
    const NAME: &'static str = "OffsetForLeaderEpochRequest";
    const VERSIONS: VersionRange = VersionRange::new(2, 4);
    const FLEXIBLE_FROM: i16 = 4;
}

impl Request for OffsetForLeaderEpochRequest {
    const KEY: ApiKey = ApiKey::OffsetForLeaderEpoch;
    type Response = OffsetForLeaderEpochResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetForLeaderEpochResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetForLeaderTopicResult>,
}

impl Wire for OffsetForLeaderEpochResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
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
        let f = v >= 4;
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetForLeaderTopicResult {
    pub topic: Str,
    pub partitions: Vec<EpochEndOffset>,
}

impl Wire for OffsetForLeaderTopicResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            topic: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.string(&self.topic, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct EpochEndOffset {
    pub error_code: i16,
    pub partition: i32,
    pub leader_epoch: i32,
    pub end_offset: i64,
}

impl Default for EpochEndOffset {
    fn default() -> Self {
        Self {
            error_code: 0,
            partition: 0,
            leader_epoch: -1,
            end_offset: -1,
        }
    }
}

impl Wire for EpochEndOffset {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 4;
        let m = Self {
            error_code: d.i16()?,
            partition: d.i32()?,
            leader_epoch: d.i32()?,
            end_offset: d.i64()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 4;
        e.i16(self.error_code);
        e.i32(self.partition);
        e.i32(self.leader_epoch);
        e.i64(self.end_offset);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for OffsetForLeaderEpochResponse {
    const NAME: &'static str = "OffsetForLeaderEpochResponse";
    const VERSIONS: VersionRange = VersionRange::new(2, 4);
    const FLEXIBLE_FROM: i16 = 4;
}
