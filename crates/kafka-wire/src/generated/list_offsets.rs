//! `ListOffsets`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListOffsetsRequest {
    pub replica_id: i32,
    /// In versions 2 and up.
    pub isolation_level: i8,
    pub topics: Vec<ListOffsetsTopic>,
    /// In versions 10 and up.
    pub timeout_ms: i32,
}

impl Wire for ListOffsetsRequest {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            replica_id: d.i32()?,
            isolation_level: if v >= 2 { d.i8()? } else { 0 },
            topics: d.array(v, f)?,
            timeout_ms: if v >= 10 { d.i32()? } else { 0 },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.i32(self.replica_id);
        if v >= 2 {
            e.i8(self.isolation_level);
        } else {
            e.unsupported("isolation_level", v, self.isolation_level != 0);
        }
        e.array(&self.topics, v, f);
        if v >= 10 {
            e.i32(self.timeout_ms);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListOffsetsTopic {
    pub name: Str,
    pub partitions: Vec<ListOffsetsPartition>,
}

impl Wire for ListOffsetsTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            name: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListOffsetsPartition {
    pub partition_index: i32,
    /// In versions 4 and up.
    pub current_leader_epoch: i32,
    pub timestamp: i64,
}

impl Default for ListOffsetsPartition {
    fn default() -> Self {
        Self {
            partition_index: 0,
            current_leader_epoch: -1,
            timestamp: 0,
        }
    }
}

impl Wire for ListOffsetsPartition {
    const BYTES_MIN: usize = 12;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            partition_index: d.i32()?,
            current_leader_epoch: if v >= 4 { d.i32()? } else { -1 },
            timestamp: d.i64()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.i32(self.partition_index);
        if v >= 4 {
            e.i32(self.current_leader_epoch);
        }
        e.i64(self.timestamp);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ListOffsetsRequest {
    const NAME: &'static str = "ListOffsetsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 11);
    const FLEXIBLE_FROM: i16 = 6;
}

impl Request for ListOffsetsRequest {
    const KEY: ApiKey = ApiKey::ListOffsets;
    type Response = ListOffsetsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListOffsetsResponse {
    /// In versions 2 and up.
    pub throttle_time_ms: i32,
    pub topics: Vec<ListOffsetsTopicResponse>,
}

impl Wire for ListOffsetsResponse {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            throttle_time_ms: if v >= 2 { d.i32()? } else { 0 },
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        if v >= 2 {
            e.i32(self.throttle_time_ms);
        }
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListOffsetsTopicResponse {
    pub name: Str,
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

impl Wire for ListOffsetsTopicResponse {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            name: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListOffsetsPartitionResponse {
    pub partition_index: i32,
    pub error_code: i16,
    pub timestamp: i64,
    pub offset: i64,
    /// In versions 4 and up.
    pub leader_epoch: i32,
}

impl Default for ListOffsetsPartitionResponse {
    fn default() -> Self {
        Self {
            partition_index: 0,
            error_code: 0,
            timestamp: -1,
            offset: -1,
            leader_epoch: -1,
        }
    }
}

impl Wire for ListOffsetsPartitionResponse {
    const BYTES_MIN: usize = 22;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            timestamp: d.i64()?,
            offset: d.i64()?,
            leader_epoch: if v >= 4 { d.i32()? } else { -1 },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.i64(self.timestamp);
        e.i64(self.offset);
        if v >= 4 {
            e.i32(self.leader_epoch);
        } else {
            e.unsupported("leader_epoch", v, self.leader_epoch != -1);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ListOffsetsResponse {
    const NAME: &'static str = "ListOffsetsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 11);
    const FLEXIBLE_FROM: i16 = 6;
}
