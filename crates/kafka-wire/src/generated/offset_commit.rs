//! `OffsetCommit`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetCommitRequest {
    pub group_id: Str,
    pub generation_id_or_member_epoch: i32,
    pub member_id: Str,
    /// In versions 7 and up.
    pub group_instance_id: Option<Str>,
    /// In versions 2 to 4.
    pub retention_time_ms: i64,
    pub topics: Vec<OffsetCommitRequestTopic>,
}

impl Default for OffsetCommitRequest {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            generation_id_or_member_epoch: -1,
            member_id: Str::default(),
            group_instance_id: None,
            retention_time_ms: -1,
            topics: Vec::new(),
        }
    }
}

impl Wire for OffsetCommitRequest {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            group_id: d.string(f)?,
            generation_id_or_member_epoch: d.i32()?,
            member_id: d.string(f)?,
            group_instance_id: if v >= 7 { d.opt_string(f, true)? } else { None },
            retention_time_ms: if v <= 4 { d.i64()? } else { -1 },
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        e.string(&self.group_id, f);
        e.i32(self.generation_id_or_member_epoch);
        e.string(&self.member_id, f);
        if v >= 7 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        } else {
            e.unsupported("group_instance_id", v, self.group_instance_id.is_some());
        }
        if v <= 4 {
            e.i64(self.retention_time_ms);
        }
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetCommitRequestTopic {
    /// In versions 2 to 9.
    pub name: Str,
    /// In versions 10 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetCommitRequestPartition>,
}

impl Wire for OffsetCommitRequestTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            name: if v <= 9 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        if v <= 9 {
            e.string(&self.name, f);
        }
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetCommitRequestPartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    /// In versions 6 and up.
    pub committed_leader_epoch: i32,
    pub committed_metadata: Option<Str>,
}

impl Default for OffsetCommitRequestPartition {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::default()),
        }
    }
}

impl Wire for OffsetCommitRequestPartition {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            partition_index: d.i32()?,
            committed_offset: d.i64()?,
            committed_leader_epoch: if v >= 6 { d.i32()? } else { -1 },
            committed_metadata: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        if v >= 6 {
            e.i32(self.committed_leader_epoch);
        }
        e.opt_string(self.committed_metadata.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for OffsetCommitRequest {
    const NAME: &'static str = "OffsetCommitRequest";
    const VERSIONS: VersionRange = VersionRange::new(2, 10);
    const FLEXIBLE_FROM: i16 = 8;
}

impl Request for OffsetCommitRequest {
    const KEY: ApiKey = ApiKey::OffsetCommit;
    type Response = OffsetCommitResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetCommitResponse {
    /// In versions 3 and up.
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetCommitResponseTopic>,
}

impl Wire for OffsetCommitResponse {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            throttle_time_ms: if v >= 3 { d.i32()? } else { 0 },
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        if v >= 3 {
            e.i32(self.throttle_time_ms);
        }
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetCommitResponseTopic {
    /// In versions 2 to 9.
    pub name: Str,
    /// In versions 10 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetCommitResponsePartition>,
}

impl Wire for OffsetCommitResponseTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            name: if v <= 9 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        if v <= 9 {
            e.string(&self.name, f);
        }
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetCommitResponsePartition {
    pub partition_index: i32,
    pub error_code: i16,
}

impl Wire for OffsetCommitResponsePartition {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 8;
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 8;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for OffsetCommitResponse {
    const NAME: &'static str = "OffsetCommitResponse";
    const VERSIONS: VersionRange = VersionRange::new(2, 10);
    const FLEXIBLE_FROM: i16 = 8;
}
