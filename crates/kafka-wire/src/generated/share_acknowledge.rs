//! `ShareAcknowledge`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ShareAcknowledgeRequest {
    pub group_id: Option<Str>,
    pub member_id: Option<Str>,
    pub share_session_epoch: i32,
    /// In versions 2 and up.
    pub is_renew_ack: bool,
    pub topics: Vec<AcknowledgeTopic>,
}

impl Default for ShareAcknowledgeRequest {
    fn default() -> Self {
        Self {
            group_id: None,
            member_id: Some(Str::default()),
            share_session_epoch: 0,
            is_renew_ack: false,
            topics: Vec::new(),
        }
    }
}

impl Wire for ShareAcknowledgeRequest {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.opt_string(true, true)?,
            member_id: d.opt_string(true, true)?,
            share_session_epoch: d.i32()?,
            is_renew_ack: if v >= 2 { d.bool()? } else { false },
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.opt_string(self.group_id.as_ref(), true);
        e.opt_string(self.member_id.as_ref(), true);
        e.i32(self.share_session_epoch);
        if v >= 2 {
            e.bool(self.is_renew_ack);
        } else {
            e.unsupported("is_renew_ack", v, self.is_renew_ack);
        }
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AcknowledgeTopic {
    pub topic_id: Uuid,
    pub partitions: Vec<AcknowledgePartition>,
}

impl Wire for AcknowledgeTopic {
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
pub struct AcknowledgePartition {
    pub partition_index: i32,
    pub acknowledgement_batches: Vec<AcknowledgementBatch>,
}

impl Wire for AcknowledgePartition {
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

impl Message for ShareAcknowledgeRequest {
    const NAME: &'static str = "ShareAcknowledgeRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for ShareAcknowledgeRequest {
    const KEY: ApiKey = ApiKey::ShareAcknowledge;
    type Response = ShareAcknowledgeResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareAcknowledgeResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    /// In versions 2 and up.
    pub acquisition_lock_timeout_ms: i32,
    pub responses: Vec<ShareAcknowledgeTopicResponse>,
    pub node_endpoints: Vec<NodeEndpoint>,
}

impl Wire for ShareAcknowledgeResponse {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            acquisition_lock_timeout_ms: if v >= 2 { d.i32()? } else { 0 },
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
        if v >= 2 {
            e.i32(self.acquisition_lock_timeout_ms);
        }
        e.array(&self.responses, v, true);
        e.array(&self.node_endpoints, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareAcknowledgeTopicResponse {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

impl Wire for ShareAcknowledgeTopicResponse {
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
    pub current_leader: LeaderIdAndEpoch,
}

impl Wire for PartitionData {
    const BYTES_MIN: usize = 17;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            current_leader: LeaderIdAndEpoch::decode(d, v)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        self.current_leader.encode(e, v);
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

impl Message for ShareAcknowledgeResponse {
    const NAME: &'static str = "ShareAcknowledgeResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 1;
}
