//! `DescribeQuorum`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeQuorumRequest {
    pub topics: Vec<RequestTopicData>,
}

impl Wire for DescribeQuorumRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTopicData {
    pub topic_name: Str,
    pub partitions: Vec<RequestPartitionData>,
}

impl Wire for RequestTopicData {
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
pub struct RequestPartitionData {
    pub partition_index: i32,
}

impl Wire for RequestPartitionData {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition_index);
        e.tags(&[]);
    }
}

impl Message for DescribeQuorumRequest {
    const NAME: &'static str = "DescribeQuorumRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeQuorumRequest {
    const KEY: ApiKey = ApiKey::DescribeQuorum;
    type Response = DescribeQuorumResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeQuorumResponse {
    pub error_code: i16,
    /// In versions 2 and up.
    pub error_message: Option<Str>,
    pub topics: Vec<ResponseTopicData>,
    /// In versions 2 and up.
    pub nodes: Vec<Node>,
}

impl Default for DescribeQuorumResponse {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            topics: Vec::new(),
            nodes: Vec::new(),
        }
    }
}

impl Wire for DescribeQuorumResponse {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            error_code: d.i16()?,
            error_message: if v >= 2 {
                d.opt_string(true, true)?
            } else {
                Some(Str::default())
            },
            topics: d.array(v, true)?,
            nodes: if v >= 2 { d.array(v, true)? } else { Vec::new() },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        if v >= 2 {
            e.opt_string(self.error_message.as_ref(), true);
        }
        e.array(&self.topics, v, true);
        if v >= 2 {
            e.array(&self.nodes, v, true);
        } else {
            e.unsupported("nodes", v, !self.nodes.is_empty());
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseTopicData {
    pub topic_name: Str,
    pub partitions: Vec<ResponsePartitionData>,
}

impl Wire for ResponseTopicData {
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

#[derive(Debug, Clone, PartialEq)]
pub struct ResponsePartitionData {
    pub partition_index: i32,
    pub error_code: i16,
    /// In versions 2 and up.
    pub error_message: Option<Str>,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub high_watermark: i64,
    pub current_voters: Vec<ReplicaState>,
    pub observers: Vec<ReplicaState>,
}

impl Default for ResponsePartitionData {
    fn default() -> Self {
        Self {
            partition_index: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            leader_id: 0,
            leader_epoch: 0,
            high_watermark: 0,
            current_voters: Vec::new(),
            observers: Vec::new(),
        }
    }
}

impl Wire for ResponsePartitionData {
    const BYTES_MIN: usize = 25;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            error_message: if v >= 2 {
                d.opt_string(true, true)?
            } else {
                Some(Str::default())
            },
            leader_id: d.i32()?,
            leader_epoch: d.i32()?,
            high_watermark: d.i64()?,
            current_voters: d.array(v, true)?,
            observers: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        if v >= 2 {
            e.opt_string(self.error_message.as_ref(), true);
        }
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.i64(self.high_watermark);
        e.array(&self.current_voters, v, true);
        e.array(&self.observers, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    pub node_id: i32,
    pub listeners: Vec<Listener>,
}

impl Wire for Node {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            node_id: d.i32()?,
            listeners: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.node_id);
        e.array(&self.listeners, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listener {
    pub name: Str,
    pub host: Str,
    pub port: u16,
}

impl Wire for Listener {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            host: d.string(true)?,
            port: d.u16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.string(&self.host, true);
        e.u16(self.port);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaState {
    pub replica_id: i32,
    /// In versions 2 and up.
    pub replica_directory_id: Uuid,
    pub log_end_offset: i64,
    /// In versions 1 and up.
    pub last_fetch_timestamp: i64,
    /// In versions 1 and up.
    pub last_caught_up_timestamp: i64,
}

impl Default for ReplicaState {
    fn default() -> Self {
        Self {
            replica_id: 0,
            replica_directory_id: Uuid::ZERO,
            log_end_offset: 0,
            last_fetch_timestamp: -1,
            last_caught_up_timestamp: -1,
        }
    }
}

impl Wire for ReplicaState {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            replica_id: d.i32()?,
            replica_directory_id: if v >= 2 { d.uuid()? } else { Uuid::ZERO },
            log_end_offset: d.i64()?,
            last_fetch_timestamp: if v >= 1 { d.i64()? } else { -1 },
            last_caught_up_timestamp: if v >= 1 { d.i64()? } else { -1 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.replica_id);
        if v >= 2 {
            e.uuid(self.replica_directory_id);
        } else {
            e.unsupported("replica_directory_id", v, !self.replica_directory_id.is_zero());
        }
        e.i64(self.log_end_offset);
        if v >= 1 {
            e.i64(self.last_fetch_timestamp);
        }
        if v >= 1 {
            e.i64(self.last_caught_up_timestamp);
        }
        e.tags(&[]);
    }
}

impl Message for DescribeQuorumResponse {
    const NAME: &'static str = "DescribeQuorumResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}
