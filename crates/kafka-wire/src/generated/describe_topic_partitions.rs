//! `DescribeTopicPartitions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeTopicPartitionsRequest {
    pub topics: Vec<TopicRequest>,
    pub response_partition_limit: i32,
    pub cursor: Option<RequestCursor>,
}

impl Default for DescribeTopicPartitionsRequest {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            response_partition_limit: 2000,
            cursor: None,
        }
    }
}

impl Wire for DescribeTopicPartitionsRequest {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topics: d.array(v, true)?,
            response_partition_limit: d.i32()?,
            cursor: d.opt_struct(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.topics, v, true);
        e.i32(self.response_partition_limit);
        e.opt_struct(self.cursor.as_ref(), v);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicRequest {
    pub name: Str,
}

impl Wire for TopicRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestCursor {
    pub topic_name: Str,
    pub partition_index: i32,
}

impl Wire for RequestCursor {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
            partition_index: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.topic_name, true);
        e.i32(self.partition_index);
        e.tags(&[]);
    }
}

impl Message for DescribeTopicPartitionsRequest {
    const NAME: &'static str = "DescribeTopicPartitionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeTopicPartitionsRequest {
    const KEY: ApiKey = ApiKey::DescribeTopicPartitions;
    type Response = DescribeTopicPartitionsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeTopicPartitionsResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<DescribeTopicPartitionsResponseTopic>,
    pub next_cursor: Option<ResponseCursor>,
}

impl Wire for DescribeTopicPartitionsResponse {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            topics: d.array(v, true)?,
            next_cursor: d.opt_struct(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, true);
        e.opt_struct(self.next_cursor.as_ref(), v);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeTopicPartitionsResponseTopic {
    pub error_code: i16,
    pub name: Option<Str>,
    pub topic_id: Uuid,
    pub is_internal: bool,
    pub partitions: Vec<DescribeTopicPartitionsResponsePartition>,
    pub topic_authorized_operations: i32,
}

impl Default for DescribeTopicPartitionsResponseTopic {
    fn default() -> Self {
        Self {
            error_code: 0,
            name: Some(Str::default()),
            topic_id: Uuid::ZERO,
            is_internal: false,
            partitions: Vec::new(),
            topic_authorized_operations: i32::MIN,
        }
    }
}

impl Wire for DescribeTopicPartitionsResponseTopic {
    const BYTES_MIN: usize = 26;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            error_code: d.i16()?,
            name: d.opt_string(true, true)?,
            topic_id: d.uuid()?,
            is_internal: d.bool()?,
            partitions: d.array(v, true)?,
            topic_authorized_operations: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        e.opt_string(self.name.as_ref(), true);
        e.uuid(self.topic_id);
        e.bool(self.is_internal);
        e.array(&self.partitions, v, true);
        e.i32(self.topic_authorized_operations);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeTopicPartitionsResponsePartition {
    pub error_code: i16,
    pub partition_index: i32,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replica_nodes: Vec<i32>,
    pub isr_nodes: Vec<i32>,
    pub eligible_leader_replicas: Option<Vec<i32>>,
    pub last_known_elr: Option<Vec<i32>>,
    pub offline_replicas: Vec<i32>,
}

impl Default for DescribeTopicPartitionsResponsePartition {
    fn default() -> Self {
        Self {
            error_code: 0,
            partition_index: 0,
            leader_id: 0,
            leader_epoch: -1,
            replica_nodes: Vec::new(),
            isr_nodes: Vec::new(),
            eligible_leader_replicas: None,
            last_known_elr: None,
            offline_replicas: Vec::new(),
        }
    }
}

impl Wire for DescribeTopicPartitionsResponsePartition {
    const BYTES_MIN: usize = 20;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            error_code: d.i16()?,
            partition_index: d.i32()?,
            leader_id: d.i32()?,
            leader_epoch: d.i32()?,
            replica_nodes: d.array(v, true)?,
            isr_nodes: d.array(v, true)?,
            eligible_leader_replicas: d.opt_array(v, true, true)?,
            last_known_elr: d.opt_array(v, true, true)?,
            offline_replicas: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        e.i32(self.partition_index);
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.array(&self.replica_nodes, v, true);
        e.array(&self.isr_nodes, v, true);
        e.opt_array(self.eligible_leader_replicas.as_ref(), v, true);
        e.opt_array(self.last_known_elr.as_ref(), v, true);
        e.array(&self.offline_replicas, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseCursor {
    pub topic_name: Str,
    pub partition_index: i32,
}

impl Wire for ResponseCursor {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
            partition_index: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.topic_name, true);
        e.i32(self.partition_index);
        e.tags(&[]);
    }
}

impl Message for DescribeTopicPartitionsResponse {
    const NAME: &'static str = "DescribeTopicPartitionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
