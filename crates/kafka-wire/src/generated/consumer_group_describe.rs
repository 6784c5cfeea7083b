//! `ConsumerGroupDescribe`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConsumerGroupDescribeRequest {
    pub group_ids: Vec<Str>,
    pub include_authorized_operations: bool,
}

impl Wire for ConsumerGroupDescribeRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_ids: d.strings(true)?,
            include_authorized_operations: d.bool()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.strings(&self.group_ids, true);
        e.bool(self.include_authorized_operations);
        e.tags(&[]);
    }
}

impl Message for ConsumerGroupDescribeRequest {
    const NAME: &'static str = "ConsumerGroupDescribeRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for ConsumerGroupDescribeRequest {
    const KEY: ApiKey = ApiKey::ConsumerGroupDescribe;
    type Response = ConsumerGroupDescribeResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConsumerGroupDescribeResponse {
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribedGroup>,
}

impl Wire for ConsumerGroupDescribeResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            groups: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.array(&self.groups, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribedGroup {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub group_id: Str,
    pub group_state: Str,
    pub group_epoch: i32,
    pub assignment_epoch: i32,
    pub assignor_name: Str,
    pub members: Vec<Member>,
    pub authorized_operations: i32,
}

impl Default for DescribedGroup {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: None,
            group_id: Str::default(),
            group_state: Str::default(),
            group_epoch: 0,
            assignment_epoch: 0,
            assignor_name: Str::default(),
            members: Vec::new(),
            authorized_operations: i32::MIN,
        }
    }
}

impl Wire for DescribedGroup {
    const BYTES_MIN: usize = 20;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            group_id: d.string(true)?,
            group_state: d.string(true)?,
            group_epoch: d.i32()?,
            assignment_epoch: d.i32()?,
            assignor_name: d.string(true)?,
            members: d.array(v, true)?,
            authorized_operations: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.string(&self.group_id, true);
        e.string(&self.group_state, true);
        e.i32(self.group_epoch);
        e.i32(self.assignment_epoch);
        e.string(&self.assignor_name, true);
        e.array(&self.members, v, true);
        e.i32(self.authorized_operations);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub member_id: Str,
    pub instance_id: Option<Str>,
    pub rack_id: Option<Str>,
    pub member_epoch: i32,
    pub client_id: Str,
    pub client_host: Str,
    pub subscribed_topic_names: Vec<Str>,
    pub subscribed_topic_regex: Option<Str>,
    pub assignment: Assignment,
    pub target_assignment: Assignment,
    /// In versions 1 and up.
    pub member_type: i8,
}

impl Default for Member {
    fn default() -> Self {
        Self {
            member_id: Str::default(),
            instance_id: None,
            rack_id: None,
            member_epoch: 0,
            client_id: Str::default(),
            client_host: Str::default(),
            subscribed_topic_names: Vec::new(),
            subscribed_topic_regex: None,
            assignment: Assignment::default(),
            target_assignment: Assignment::default(),
            member_type: -1,
        }
    }
}

impl Wire for Member {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            member_id: d.string(true)?,
            instance_id: d.opt_string(true, true)?,
            rack_id: d.opt_string(true, true)?,
            member_epoch: d.i32()?,
            client_id: d.string(true)?,
            client_host: d.string(true)?,
            subscribed_topic_names: d.strings(true)?,
            subscribed_topic_regex: d.opt_string(true, true)?,
            assignment: Assignment::decode(d, v)?,
            target_assignment: Assignment::decode(d, v)?,
            member_type: if v >= 1 { d.i8()? } else { -1 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.member_id, true);
        e.opt_string(self.instance_id.as_ref(), true);
        e.opt_string(self.rack_id.as_ref(), true);
        e.i32(self.member_epoch);
        e.string(&self.client_id, true);
        e.string(&self.client_host, true);
        e.strings(&self.subscribed_topic_names, true);
        e.opt_string(self.subscribed_topic_regex.as_ref(), true);
        self.assignment.encode(e, v);
        self.target_assignment.encode(e, v);
        if v >= 1 {
            e.i8(self.member_type);
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub topic_name: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TopicPartitions {
    const BYTES_MIN: usize = 19;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_id: d.uuid()?,
            topic_name: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.uuid(self.topic_id);
        e.string(&self.topic_name, true);
        e.array(&self.partitions, v, true);
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

impl Message for ConsumerGroupDescribeResponse {
    const NAME: &'static str = "ConsumerGroupDescribeResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}
