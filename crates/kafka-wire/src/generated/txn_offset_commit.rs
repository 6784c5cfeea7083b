//! `TxnOffsetCommit`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct TxnOffsetCommitRequest {
    pub transactional_id: Str,
    pub group_id: Str,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// In versions 3 and up.
    pub generation_id: i32,
    /// In versions 3 and up.
    pub member_id: Str,
    /// In versions 3 and up.
    pub group_instance_id: Option<Str>,
    pub topics: Vec<TxnOffsetCommitRequestTopic>,
}

impl Default for TxnOffsetCommitRequest {
    fn default() -> Self {
        Self {
            transactional_id: Str::default(),
            group_id: Str::default(),
            producer_id: 0,
            producer_epoch: 0,
            generation_id: -1,
            member_id: Str::default(),
            group_instance_id: None,
            topics: Vec::new(),
        }
    }
}

impl Wire for TxnOffsetCommitRequest {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            transactional_id: d.string(f)?,
            group_id: d.string(f)?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            generation_id: if v >= 3 { d.i32()? } else { -1 },
            member_id: if v >= 3 { d.string(f)? } else { Str::default() },
            group_instance_id: if v >= 3 { d.opt_string(f, true)? } else { None },
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.string(&self.transactional_id, f);
        e.string(&self.group_id, f);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        if v >= 3 {
            e.i32(self.generation_id);
        } else {
            e.unsupported("generation_id", v, self.generation_id != -1);
        }
        if v >= 3 {
            e.string(&self.member_id, f);
        } else {
            e.unsupported("member_id", v, !self.member_id.is_empty());
        }
        if v >= 3 {
            e.opt_string(self.group_instance_id.as_ref(), f);
        } else {
            e.unsupported("group_instance_id", v, self.group_instance_id.is_some());
        }
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnOffsetCommitRequestTopic {
    pub name: Str,
    pub partitions: Vec<TxnOffsetCommitRequestPartition>,
}

impl Wire for TxnOffsetCommitRequestTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
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
        let f = v >= 3;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TxnOffsetCommitRequestPartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    /// In versions 2 and up.
    pub committed_leader_epoch: i32,
    pub committed_metadata: Option<Str>,
}

impl Default for TxnOffsetCommitRequestPartition {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::default()),
        }
    }
}

impl Wire for TxnOffsetCommitRequestPartition {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            partition_index: d.i32()?,
            committed_offset: d.i64()?,
            committed_leader_epoch: if v >= 2 { d.i32()? } else { -1 },
            committed_metadata: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        if v >= 2 {
            e.i32(self.committed_leader_epoch);
        }
        e.opt_string(self.committed_metadata.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for TxnOffsetCommitRequest {
    const NAME: &'static str = "TxnOffsetCommitRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for TxnOffsetCommitRequest {
    const KEY: ApiKey = ApiKey::TxnOffsetCommit;
    type Response = TxnOffsetCommitResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnOffsetCommitResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<TxnOffsetCommitResponseTopic>,
}

impl Wire for TxnOffsetCommitResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
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
        let f = v >= 3;
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnOffsetCommitResponseTopic {
    pub name: Str,
    pub partitions: Vec<TxnOffsetCommitResponsePartition>,
}

impl Wire for TxnOffsetCommitResponseTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
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
        let f = v >= 3;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxnOffsetCommitResponsePartition {
    pub partition_index: i32,
    pub error_code: i16,
}

impl Wire for TxnOffsetCommitResponsePartition {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
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
        let f = v >= 3;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for TxnOffsetCommitResponse {
    const NAME: &'static str = "TxnOffsetCommitResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}
