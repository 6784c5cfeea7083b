//! `ShareGroupHeartbeat`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareGroupHeartbeatRequest {
    pub group_id: Str,
    pub member_id: Str,
    pub member_epoch: i32,
    pub rack_id: Option<Str>,
    pub subscribed_topic_names: Option<Vec<Str>>,
}

impl Wire for ShareGroupHeartbeatRequest {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            member_id: d.string(true)?,
            member_epoch: d.i32()?,
            rack_id: d.opt_string(true, true)?,
            subscribed_topic_names: d.opt_strings(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.group_id, true);
        e.string(&self.member_id, true);
        e.i32(self.member_epoch);
        e.opt_string(self.rack_id.as_ref(), true);
        e.opt_strings(self.subscribed_topic_names.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for ShareGroupHeartbeatRequest {
    const NAME: &'static str = "ShareGroupHeartbeatRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 1);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for ShareGroupHeartbeatRequest {
    const KEY: ApiKey = ApiKey::ShareGroupHeartbeat;
    type Response = ShareGroupHeartbeatResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareGroupHeartbeatResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub member_id: Option<Str>,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment: Option<Assignment>,
}

impl Wire for ShareGroupHeartbeatResponse {
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
    pub topic_partitions: Vec<TopicPartitions>,
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
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

impl Wire for TopicPartitions {
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

impl Message for ShareGroupHeartbeatResponse {
    const NAME: &'static str = "ShareGroupHeartbeatResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 1);
    const FLEXIBLE_FROM: i16 = 1;
}
