//! `OffsetFetch`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFetchRequest {
    /// In versions 1 to 7.
    pub group_id: Str,
    /// In versions 1 to 7.
    pub topics: Option<Vec<OffsetFetchRequestTopic>>,
    /// In versions 8 and up.
    pub groups: Vec<OffsetFetchRequestGroup>,
    /// In versions 7 and up.
    pub require_stable: bool,
}

impl Default for OffsetFetchRequest {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            topics: Some(Vec::new()),
            groups: Vec::new(),
            require_stable: false,
        }
    }
}

impl Wire for OffsetFetchRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            group_id: if v <= 7 { d.string(f)? } else { Str::default() },
            topics: if v <= 7 {
                d.opt_array(v, f, v >= 2)?
            } else {
                Some(Vec::new())
            },
            groups: if v >= 8 { d.array(v, f)? } else { Vec::new() },
            require_stable: if v >= 7 { d.bool()? } else { false },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        if v <= 7 {
            e.string(&self.group_id, f);
        } else {
            e.unsupported("group_id", v, !self.group_id.is_empty());
        }
        if v <= 7 {
            e.not_null("topics", v, v < 2 && self.topics.is_none());
            e.opt_array(self.topics.as_ref(), v, f);
        } else {
            e.unsupported("topics", v, self.topics.as_ref().is_none_or(|it| !it.is_empty()));
        }
        if v >= 8 {
            e.array(&self.groups, v, f);
        } else {
            e.unsupported("groups", v, !self.groups.is_empty());
        }
        if v >= 7 {
            e.bool(self.require_stable);
        } else {
            e.unsupported("require_stable", v, self.require_stable);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchRequestTopic {
    pub name: Str,
    pub partition_indexes: Vec<i32>,
}

impl Wire for OffsetFetchRequestTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            name: d.string(f)?,
            partition_indexes: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.string(&self.name, f);
        e.array(&self.partition_indexes, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFetchRequestGroup {
    pub group_id: Str,
    /// In versions 9 and up.
    pub member_id: Option<Str>,
    /// In versions 9 and up.
    pub member_epoch: i32,
    pub topics: Option<Vec<OffsetFetchRequestTopics>>,
}

impl Default for OffsetFetchRequestGroup {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            member_id: None,
            member_epoch: -1,
            topics: Some(Vec::new()),
        }
    }
}

impl Wire for OffsetFetchRequestGroup {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            member_id: if v >= 9 { d.opt_string(true, true)? } else { None },
            member_epoch: if v >= 9 { d.i32()? } else { -1 },
            topics: d.opt_array(v, true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        if v >= 9 {
            e.opt_string(self.member_id.as_ref(), true);
        }
        if v >= 9 {
            e.i32(self.member_epoch);
        }
        e.opt_array(self.topics.as_ref(), v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchRequestTopics {
    /// In versions 8 to 9.
    pub name: Str,
    /// In versions 10 and up.
    pub topic_id: Uuid,
    pub partition_indexes: Vec<i32>,
}

impl Wire for OffsetFetchRequestTopics {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: if v <= 9 { d.string(true)? } else { Str::default() },
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            partition_indexes: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        if v <= 9 {
            e.string(&self.name, true);
        }
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partition_indexes, v, true);
        e.tags(&[]);
    }
}

impl Message for OffsetFetchRequest {
    const NAME: &'static str = "OffsetFetchRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 10);
    const FLEXIBLE_FROM: i16 = 6;
}

impl Request for OffsetFetchRequest {
    const KEY: ApiKey = ApiKey::OffsetFetch;
    type Response = OffsetFetchResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchResponse {
    /// In versions 3 and up.
    pub throttle_time_ms: i32,
    /// In versions 1 to 7.
    pub topics: Vec<OffsetFetchResponseTopic>,
    /// In versions 2 to 7.
    pub error_code: i16,
    /// In versions 8 and up.
    pub groups: Vec<OffsetFetchResponseGroup>,
}

impl Wire for OffsetFetchResponse {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            throttle_time_ms: if v >= 3 { d.i32()? } else { 0 },
            topics: if v <= 7 { d.array(v, f)? } else { Vec::new() },
            error_code: if (2..=7).contains(&v) { d.i16()? } else { 0 },
            groups: if v >= 8 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        if v >= 3 {
            e.i32(self.throttle_time_ms);
        }
        if v <= 7 {
            e.array(&self.topics, v, f);
        } else {
            e.unsupported("topics", v, !self.topics.is_empty());
        }
        if (2..=7).contains(&v) {
            e.i16(self.error_code);
        }
        if v >= 8 {
            e.array(&self.groups, v, f);
        } else {
            e.unsupported("groups", v, !self.groups.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchResponseTopic {
    pub name: Str,
    pub partitions: Vec<OffsetFetchResponsePartition>,
}

impl Wire for OffsetFetchResponseTopic {
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
pub struct OffsetFetchResponsePartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    /// In versions 5 to 7.
    pub committed_leader_epoch: i32,
    pub metadata: Option<Str>,
    pub error_code: i16,
}

impl Default for OffsetFetchResponsePartition {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            metadata: Some(Str::default()),
            error_code: 0,
        }
    }
}

impl Wire for OffsetFetchResponsePartition {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 6;
        let m = Self {
            partition_index: d.i32()?,
            committed_offset: d.i64()?,
            committed_leader_epoch: if v >= 5 { d.i32()? } else { -1 },
            metadata: d.opt_string(f, true)?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 6;
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        if v >= 5 {
            e.i32(self.committed_leader_epoch);
        }
        e.opt_string(self.metadata.as_ref(), f);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchResponseGroup {
    pub group_id: Str,
    pub topics: Vec<OffsetFetchResponseTopics>,
    pub error_code: i16,
}

impl Wire for OffsetFetchResponseGroup {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            topics: d.array(v, true)?,
            error_code: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        e.array(&self.topics, v, true);
        e.i16(self.error_code);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffsetFetchResponseTopics {
    /// In versions 8 to 9.
    pub name: Str,
    /// In versions 10 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetFetchResponsePartitions>,
}

impl Wire for OffsetFetchResponseTopics {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: if v <= 9 { d.string(true)? } else { Str::default() },
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        if v <= 9 {
            e.string(&self.name, true);
        }
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFetchResponsePartitions {
    pub partition_index: i32,
    pub committed_offset: i64,
    pub committed_leader_epoch: i32,
    pub metadata: Option<Str>,
    pub error_code: i16,
}

impl Default for OffsetFetchResponsePartitions {
    fn default() -> Self {
        Self {
            partition_index: 0,
            committed_offset: 0,
            committed_leader_epoch: -1,
            metadata: Some(Str::default()),
            error_code: 0,
        }
    }
}

impl Wire for OffsetFetchResponsePartitions {
    const BYTES_MIN: usize = 20;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            committed_offset: d.i64()?,
            committed_leader_epoch: d.i32()?,
            metadata: d.opt_string(true, true)?,
            error_code: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.i64(self.committed_offset);
        e.i32(self.committed_leader_epoch);
        e.opt_string(self.metadata.as_ref(), true);
        e.i16(self.error_code);
        e.tags(&[]);
    }
}

impl Message for OffsetFetchResponse {
    const NAME: &'static str = "OffsetFetchResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 10);
    const FLEXIBLE_FROM: i16 = 6;
}
