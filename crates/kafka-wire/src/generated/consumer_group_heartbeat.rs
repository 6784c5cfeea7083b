//! `ConsumerGroupHeartbeat`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerGroupHeartbeatRequest {
    pub group_id: Str,
    pub member_id: Str,
    pub member_epoch: i32,
    pub instance_id: Option<Str>,
    pub rack_id: Option<Str>,
    pub rebalance_timeout_ms: i32,
    pub subscribed_topic_names: Option<Vec<Str>>,
    /// In versions 1 and up.
    pub subscribed_topic_regex: Option<Str>,
    pub server_assignor: Option<Str>,
    pub topic_partitions: Option<Vec<RequestTopicPartitions>>,
}

impl Default for ConsumerGroupHeartbeatRequest {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            member_id: Str::default(),
            member_epoch: 0,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            subscribed_topic_names: None,
            subscribed_topic_regex: None,
            server_assignor: None,
            topic_partitions: None,
        }
    }
}

impl Wire for ConsumerGroupHeartbeatRequest {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            member_id: d.string(true)?,
            member_epoch: d.i32()?,
            instance_id: d.opt_string(true, true)?,
            rack_id: d.opt_string(true, true)?,
            rebalance_timeout_ms: d.i32()?,
            subscribed_topic_names: d.opt_strings(true, true)?,
            subscribed_topic_regex: if v >= 1 { d.opt_string(true, true)? } else { None },
            server_assignor: d.opt_string(true, true)?,
            topic_partitions: d.opt_array(v, true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        e.string(&self.member_id, true);
        e.i32(self.member_epoch);
        e.opt_string(self.instance_id.as_ref(), true);
        e.opt_string(self.rack_id.as_ref(), true);
        e.i32(self.rebalance_timeout_ms);
        e.opt_strings(self.subscribed_topic_names.as_ref(), true);
        if v >= 1 {
            e.opt_string(self.subscribed_topic_regex.as_ref(), true);
        } else {
            e.unsupported("subscribed_topic_regex", v, self.subscribed_topic_regex.is_some());
        }
        e.opt_string(self.server_assignor.as_ref(), true);
        e.opt_array(self.topic_partitions.as_ref(), v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

impl Wire for RequestTopicPartitions {
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

impl Message for ConsumerGroupHeartbeatRequest {
    const NAME: &'static str = "ConsumerGroupHeartbeatRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for ConsumerGroupHeartbeatRequest {
    const KEY: ApiKey = ApiKey::ConsumerGroupHeartbeat;
    type Response = ConsumerGroupHeartbeatResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConsumerGroupHeartbeatResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub member_id: Option<Str>,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment: Option<Assignment>,
}

impl Wire for ConsumerGroupHeartbeatResponse {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            member_id: d.opt_string(true, true)?,
            member_epoch: d.i32()?,
            heartbeat_interval_ms: d.i32()?,
            assignment: d.opt_struct(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.opt_string(self.member_id.as_ref(), true);
        e.i32(self.member_epoch);
        e.i32(self.heartbeat_interval_ms);
        e.opt_struct(self.assignment.as_ref(), v);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assignment {
    pub topic_partitions: Vec<ResponseTopicPartitions>,
}

impl Wire for Assignment {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.topic_partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseTopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

impl Wire for ResponseTopicPartitions {
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

impl Message for ConsumerGroupHeartbeatResponse {
    const NAME: &'static str = "ConsumerGroupHeartbeatResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}
