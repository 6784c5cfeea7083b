//! `ShareFetch`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ShareFetchRequest {
    pub group_id: Option<Str>,
    pub member_id: Option<Str>,
    pub share_session_epoch: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub max_records: i32,
    pub batch_size: i32,
    /// In versions 2 and up.
    pub share_acquire_mode: i8,
    /// In versions 2 and up.
    pub is_renew_ack: bool,
    pub topics: Vec<FetchTopic>,
    pub forgotten_topics_data: Vec<ForgottenTopic>,
}

impl Default for ShareFetchRequest {
    fn default() -> Self {
        Self {
            group_id: None,
            member_id: Some(Str::default()),
            share_session_epoch: 0,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            max_records: 0,
            batch_size: 0,
            share_acquire_mode: 0,
            is_renew_ack: false,
            topics: Vec::new(),
            forgotten_topics_data: Vec::new(),
        }
    }
}

impl Wire for ShareFetchRequest {
    const BYTES_MIN: usize = 29;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.opt_string(true, true)?,
            member_id: d.opt_string(true, true)?,
            share_session_epoch: d.i32()?,
            max_wait_ms: d.i32()?,
            min_bytes: d.i32()?,
            max_bytes: d.i32()?,
            max_records: d.i32()?,
            batch_size: d.i32()?,
            share_acquire_mode: if v >= 2 { d.i8()? } else { 0 },
            is_renew_ack: if v >= 2 { d.bool()? } else { false },
            topics: d.array(v, true)?,
            forgotten_topics_data: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.opt_string(self.group_id.as_ref(), true);
        e.opt_string(self.member_id.as_ref(), true);
        e.i32(self.share_session_epoch);
        e.i32(self.max_wait_ms);
        e.i32(self.min_bytes);
        e.i32(self.max_bytes);
        e.i32(self.max_records);
        e.i32(self.batch_size);
        if v >= 2 {
            e.i8(self.share_acquire_mode);
        }
        if v >= 2 {
            e.bool(self.is_renew_ack);
        } else {
            e.unsupported("is_renew_ack", v, self.is_renew_ack);
        }
        e.array(&self.topics, v, true);
        e.array(&self.forgotten_topics_data, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<FetchPartition>,
}

impl Wire for FetchTopic {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_id: d.uuid()?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.uuid(self.topic_id);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchPartition {
    pub partition_index: i32,
    pub acknowledgement_batches: Vec<AcknowledgementBatch>,
}

impl Wire for FetchPartition {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            acknowledgement_batches: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition_index);
        e.array(&self.acknowledgement_batches, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AcknowledgementBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub acknowledge_types: Vec<i8>,
}

impl Wire for AcknowledgementBatch {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            first_offset: d.i64()?,
            last_offset: d.i64()?,
            acknowledge_types: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i64(self.first_offset);
        e.i64(self.last_offset);
        e.array(&self.acknowledge_types, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForgottenTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

impl Wire for ForgottenTopic {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_id: d.uuid()?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.uuid(self.topic_id);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

impl Message for ShareFetchRequest {
    const NAME: &'static str = "ShareFetchRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for ShareFetchRequest {
    const KEY: ApiKey = ApiKey::ShareFetch;
    type Response = ShareFetchResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareFetchResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub acquisition_lock_timeout_ms: i32,
    pub responses: Vec<ShareFetchableTopicResponse>,
    pub node_endpoints: Vec<NodeEndpoint>,
}

impl Wire for ShareFetchResponse {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            acquisition_lock_timeout_ms: d.i32()?,
            responses: d.array(v, true)?,
            node_endpoints: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.i32(self.acquisition_lock_timeout_ms);
        e.array(&self.responses, v, true);
        e.array(&self.node_endpoints, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareFetchableTopicResponse {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

impl Wire for ShareFetchableTopicResponse {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_id: d.uuid()?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.uuid(self.topic_id);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub acknowledge_error_code: i16,
    pub acknowledge_error_message: Option<Str>,
    pub current_leader: LeaderIdAndEpoch,
    pub records: Records,
    pub acquired_records: Vec<AcquiredRecords>,
}

impl Wire for PartitionData {
    const BYTES_MIN: usize = 22;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            acknowledge_error_code: d.i16()?,
            acknowledge_error_message: d.opt_string(true, true)?,
            current_leader: LeaderIdAndEpoch::decode(d, v)?,
            records: d.records(true)?,
            acquired_records: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.i16(self.acknowledge_error_code);
        e.opt_string(self.acknowledge_error_message.as_ref(), true);
        self.current_leader.encode(e, v);
        e.records(&self.records, true);
        e.array(&self.acquired_records, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeaderIdAndEpoch {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

impl Wire for LeaderIdAndEpoch {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            leader_id: d.i32()?,
            leader_epoch: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.leader_id);
        e.i32(self.leader_epoch);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AcquiredRecords {
    pub first_offset: i64,
    pub last_offset: i64,
    pub delivery_count: i16,
}

impl Wire for AcquiredRecords {
    const BYTES_MIN: usize = 19;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            first_offset: d.i64()?,
            last_offset: d.i64()?,
            delivery_count: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i64(self.first_offset);
        e.i64(self.last_offset);
        e.i16(self.delivery_count);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: Str,
    pub port: i32,
    pub rack: Option<Str>,
}

impl Wire for NodeEndpoint {
    const BYTES_MIN: usize = 11;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            node_id: d.i32()?,
            host: d.string(true)?,
            port: d.i32()?,
            rack: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.node_id);
        e.string(&self.host, true);
        e.i32(self.port);
        e.opt_string(self.rack.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for ShareFetchResponse {
    const NAME: &'static str = "ShareFetchResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}
