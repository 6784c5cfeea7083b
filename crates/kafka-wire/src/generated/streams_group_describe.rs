//! `StreamsGroupDescribe`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamsGroupDescribeRequest {
    pub group_ids: Vec<Str>,
    pub include_authorized_operations: bool,
}

impl Wire for StreamsGroupDescribeRequest {
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

impl Message for StreamsGroupDescribeRequest {
    const NAME: &'static str = "StreamsGroupDescribeRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for StreamsGroupDescribeRequest {
    const KEY: ApiKey = ApiKey::StreamsGroupDescribe;
    type Response = StreamsGroupDescribeResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamsGroupDescribeResponse {
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribedGroup>,
}

impl Wire for StreamsGroupDescribeResponse {
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
    pub topology: Option<Topology>,
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
            topology: None,
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
            topology: d.opt_struct(v, true)?,
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
        e.opt_struct(self.topology.as_ref(), v);
        e.array(&self.members, v, true);
        e.i32(self.authorized_operations);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    pub epoch: i32,
    pub subtopologies: Option<Vec<Subtopology>>,
}

impl Wire for Topology {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            epoch: d.i32()?,
            subtopologies: d.opt_array(v, true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.epoch);
        e.opt_array(self.subtopologies.as_ref(), v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subtopology {
    pub subtopology_id: Str,
    pub source_topics: Vec<Str>,
    pub repartition_sink_topics: Vec<Str>,
    pub state_changelog_topics: Vec<TopicInfo>,
    pub repartition_source_topics: Vec<TopicInfo>,
}

impl Wire for Subtopology {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            subtopology_id: d.string(true)?,
            source_topics: d.strings(true)?,
            repartition_sink_topics: d.strings(true)?,
            state_changelog_topics: d.array(v, true)?,
            repartition_source_topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.subtopology_id, true);
        e.strings(&self.source_topics, true);
        e.strings(&self.repartition_sink_topics, true);
        e.array(&self.state_changelog_topics, v, true);
        e.array(&self.repartition_source_topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Member {
    pub member_id: Str,
    pub member_epoch: i32,
    pub instance_id: Option<Str>,
    pub rack_id: Option<Str>,
    pub client_id: Str,
    pub client_host: Str,
    pub topology_epoch: i32,
    pub process_id: Str,
    pub user_endpoint: Option<Endpoint>,
    pub client_tags: Vec<KeyValue>,
    pub task_offsets: Vec<TaskOffset>,
    pub task_end_offsets: Vec<TaskOffset>,
    pub assignment: Assignment,
    pub target_assignment: Assignment,
    pub is_classic: bool,
}

impl Wire for Member {
    const BYTES_MIN: usize = 28;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            member_id: d.string(true)?,
            member_epoch: d.i32()?,
            instance_id: d.opt_string(true, true)?,
            rack_id: d.opt_string(true, true)?,
            client_id: d.string(true)?,
            client_host: d.string(true)?,
            topology_epoch: d.i32()?,
            process_id: d.string(true)?,
            user_endpoint: d.opt_struct(v, true)?,
            client_tags: d.array(v, true)?,
            task_offsets: d.array(v, true)?,
            task_end_offsets: d.array(v, true)?,
            assignment: Assignment::decode(d, v)?,
            target_assignment: Assignment::decode(d, v)?,
            is_classic: d.bool()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.member_id, true);
        e.i32(self.member_epoch);
        e.opt_string(self.instance_id.as_ref(), true);
        e.opt_string(self.rack_id.as_ref(), true);
        e.string(&self.client_id, true);
        e.string(&self.client_host, true);
        e.i32(self.topology_epoch);
        e.string(&self.process_id, true);
        e.opt_struct(self.user_endpoint.as_ref(), v);
        e.array(&self.client_tags, v, true);
        e.array(&self.task_offsets, v, true);
        e.array(&self.task_end_offsets, v, true);
        self.assignment.encode(e, v);
        self.target_assignment.encode(e, v);
        e.bool(self.is_classic);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Endpoint {
    pub host: Str,
    pub port: u16,
}

impl Wire for Endpoint {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            host: d.string(true)?,
            port: d.u16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.host, true);
        e.u16(self.port);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskOffset {
    pub subtopology_id: Str,
    pub partition: i32,
    pub offset: i64,
}

impl Wire for TaskOffset {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            subtopology_id: d.string(true)?,
            partition: d.i32()?,
            offset: d.i64()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.subtopology_id, true);
        e.i32(self.partition);
        e.i64(self.offset);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assignment {
    pub active_tasks: Vec<TaskIds>,
    pub standby_tasks: Vec<TaskIds>,
    pub warmup_tasks: Vec<TaskIds>,
}

impl Wire for Assignment {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            active_tasks: d.array(v, true)?,
            standby_tasks: d.array(v, true)?,
            warmup_tasks: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.active_tasks, v, true);
        e.array(&self.standby_tasks, v, true);
        e.array(&self.warmup_tasks, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskIds {
    pub subtopology_id: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TaskIds {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            subtopology_id: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.subtopology_id, true);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyValue {
    pub key: Str,
    pub value: Str,
}

impl Wire for KeyValue {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            key: d.string(true)?,
            value: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.key, true);
        e.string(&self.value, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicInfo {
    pub name: Str,
    pub partitions: i32,
    pub replication_factor: i16,
    pub topic_configs: Vec<KeyValue>,
}

impl Wire for TopicInfo {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            partitions: d.i32()?,
            replication_factor: d.i16()?,
            topic_configs: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, true);
        e.i32(self.partitions);
        e.i16(self.replication_factor);
        e.array(&self.topic_configs, v, true);
        e.tags(&[]);
    }
}

impl Message for StreamsGroupDescribeResponse {
    const NAME: &'static str = "StreamsGroupDescribeResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
