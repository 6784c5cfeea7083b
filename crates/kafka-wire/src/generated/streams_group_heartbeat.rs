//! `StreamsGroupHeartbeat`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct StreamsGroupHeartbeatRequest {
    pub group_id: Str,
    pub member_id: Str,
    pub member_epoch: i32,
    pub endpoint_information_epoch: i32,
    pub instance_id: Option<Str>,
    pub rack_id: Option<Str>,
    pub rebalance_timeout_ms: i32,
    pub topology: Option<Topology>,
    pub active_tasks: Option<Vec<RequestTaskIds>>,
    pub standby_tasks: Option<Vec<RequestTaskIds>>,
    pub warmup_tasks: Option<Vec<RequestTaskIds>>,
    pub process_id: Option<Str>,
    pub user_endpoint: Option<RequestEndpoint>,
    pub client_tags: Option<Vec<KeyValue>>,
    pub task_offsets: Option<Vec<TaskOffset>>,
    pub task_end_offsets: Option<Vec<TaskOffset>>,
    pub shutdown_application: bool,
}

impl Default for StreamsGroupHeartbeatRequest {
    fn default() -> Self {
        Self {
            group_id: Str::default(),
            member_id: Str::default(),
            member_epoch: 0,
            endpoint_information_epoch: 0,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            topology: None,
            active_tasks: None,
            standby_tasks: None,
            warmup_tasks: None,
            process_id: None,
            user_endpoint: None,
            client_tags: None,
            task_offsets: None,
            task_end_offsets: None,
            shutdown_application: false,
        }
    }
}

impl Wire for StreamsGroupHeartbeatRequest {
    const BYTES_MIN: usize = 27;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            member_id: d.string(true)?,
            member_epoch: d.i32()?,
            endpoint_information_epoch: d.i32()?,
            instance_id: d.opt_string(true, true)?,
            rack_id: d.opt_string(true, true)?,
            rebalance_timeout_ms: d.i32()?,
            topology: d.opt_struct(v, true)?,
            active_tasks: d.opt_array(v, true, true)?,
            standby_tasks: d.opt_array(v, true, true)?,
            warmup_tasks: d.opt_array(v, true, true)?,
            process_id: d.opt_string(true, true)?,
            user_endpoint: d.opt_struct(v, true)?,
            client_tags: d.opt_array(v, true, true)?,
            task_offsets: d.opt_array(v, true, true)?,
            task_end_offsets: d.opt_array(v, true, true)?,
            shutdown_application: d.bool()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        e.string(&self.member_id, true);
        e.i32(self.member_epoch);
        e.i32(self.endpoint_information_epoch);
        e.opt_string(self.instance_id.as_ref(), true);
        e.opt_string(self.rack_id.as_ref(), true);
        e.i32(self.rebalance_timeout_ms);
        e.opt_struct(self.topology.as_ref(), v);
        e.opt_array(self.active_tasks.as_ref(), v, true);
        e.opt_array(self.standby_tasks.as_ref(), v, true);
        e.opt_array(self.warmup_tasks.as_ref(), v, true);
        e.opt_string(self.process_id.as_ref(), true);
        e.opt_struct(self.user_endpoint.as_ref(), v);
        e.opt_array(self.client_tags.as_ref(), v, true);
        e.opt_array(self.task_offsets.as_ref(), v, true);
        e.opt_array(self.task_end_offsets.as_ref(), v, true);
        e.bool(self.shutdown_application);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    pub epoch: i32,
    pub subtopologies: Vec<Subtopology>,
}

impl Wire for Topology {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            epoch: d.i32()?,
            subtopologies: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.epoch);
        e.array(&self.subtopologies, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subtopology {
    pub subtopology_id: Str,
    pub source_topics: Vec<Str>,
    pub source_topic_regex: Vec<Str>,
    pub state_changelog_topics: Vec<TopicInfo>,
    pub repartition_sink_topics: Vec<Str>,
    pub repartition_source_topics: Vec<TopicInfo>,
    pub copartition_groups: Vec<CopartitionGroup>,
}

impl Wire for Subtopology {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            subtopology_id: d.string(true)?,
            source_topics: d.strings(true)?,
            source_topic_regex: d.strings(true)?,
            state_changelog_topics: d.array(v, true)?,
            repartition_sink_topics: d.strings(true)?,
            repartition_source_topics: d.array(v, true)?,
            copartition_groups: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.subtopology_id, true);
        e.strings(&self.source_topics, true);
        e.strings(&self.source_topic_regex, true);
        e.array(&self.state_changelog_topics, v, true);
        e.strings(&self.repartition_sink_topics, true);
        e.array(&self.repartition_source_topics, v, true);
        e.array(&self.copartition_groups, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopartitionGroup {
    pub source_topics: Vec<i16>,
    pub source_topic_regex: Vec<i16>,
    pub repartition_source_topics: Vec<i16>,
}

impl Wire for CopartitionGroup {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            source_topics: d.array(v, true)?,
            source_topic_regex: d.array(v, true)?,
            repartition_source_topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.source_topics, v, true);
        e.array(&self.source_topic_regex, v, true);
        e.array(&self.repartition_source_topics, v, true);
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

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestEndpoint {
    pub host: Str,
    pub port: u16,
}

impl Wire for RequestEndpoint {
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
pub struct RequestTaskIds {
    pub subtopology_id: Str,
    pub partitions: Vec<i32>,
}

impl Wire for RequestTaskIds {
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

impl Message for StreamsGroupHeartbeatRequest {
    const NAME: &'static str = "StreamsGroupHeartbeatRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for StreamsGroupHeartbeatRequest {
    const KEY: ApiKey = ApiKey::StreamsGroupHeartbeat;
    type Response = StreamsGroupHeartbeatResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct StreamsGroupHeartbeatResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub member_id: Str,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    pub acceptable_recovery_lag: i32,
    pub task_offset_interval_ms: i32,
    pub status: Option<Vec<Status>>,
    pub active_tasks: Option<Vec<ResponseTaskIds>>,
    pub standby_tasks: Option<Vec<ResponseTaskIds>>,
    pub warmup_tasks: Option<Vec<ResponseTaskIds>>,
    pub endpoint_information_epoch: i32,
    pub partitions_by_user_endpoint: Option<Vec<EndpointToPartitions>>,
}

impl Default for StreamsGroupHeartbeatResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: None,
            member_id: Str::default(),
            member_epoch: 0,
            heartbeat_interval_ms: 0,
            acceptable_recovery_lag: 0,
            task_offset_interval_ms: 0,
            status: Some(Vec::new()),
            active_tasks: None,
            standby_tasks: None,
            warmup_tasks: None,
            endpoint_information_epoch: 0,
            partitions_by_user_endpoint: None,
        }
    }
}

impl Wire for StreamsGroupHeartbeatResponse {
    const BYTES_MIN: usize = 34;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            member_id: d.string(true)?,
            member_epoch: d.i32()?,
            heartbeat_interval_ms: d.i32()?,
            acceptable_recovery_lag: d.i32()?,
            task_offset_interval_ms: d.i32()?,
            status: d.opt_array(v, true, true)?,
            active_tasks: d.opt_array(v, true, true)?,
            standby_tasks: d.opt_array(v, true, true)?,
            warmup_tasks: d.opt_array(v, true, true)?,
            endpoint_information_epoch: d.i32()?,
            partitions_by_user_endpoint: d.opt_array(v, true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.string(&self.member_id, true);
        e.i32(self.member_epoch);
        e.i32(self.heartbeat_interval_ms);
        e.i32(self.acceptable_recovery_lag);
        e.i32(self.task_offset_interval_ms);
        e.opt_array(self.status.as_ref(), v, true);
        e.opt_array(self.active_tasks.as_ref(), v, true);
        e.opt_array(self.standby_tasks.as_ref(), v, true);
        e.opt_array(self.warmup_tasks.as_ref(), v, true);
        e.i32(self.endpoint_information_epoch);
        e.opt_array(self.partitions_by_user_endpoint.as_ref(), v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointToPartitions {
    pub user_endpoint: ResponseEndpoint,
    pub active_partitions: Vec<TopicPartition>,
    pub standby_partitions: Vec<TopicPartition>,
}

impl Wire for EndpointToPartitions {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            user_endpoint: ResponseEndpoint::decode(d, v)?,
            active_partitions: d.array(v, true)?,
            standby_partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        self.user_endpoint.encode(e, v);
        e.array(&self.active_partitions, v, true);
        e.array(&self.standby_partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub status_code: i8,
    pub status_detail: Str,
}

impl Wire for Status {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            status_code: d.i8()?,
            status_detail: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i8(self.status_code);
        e.string(&self.status_detail, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicPartition {
    pub topic: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TopicPartition {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.topic, true);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseTaskIds {
    pub subtopology_id: Str,
    pub partitions: Vec<i32>,
}

impl Wire for ResponseTaskIds {
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
pub struct ResponseEndpoint {
    pub host: Str,
    pub port: u16,
}

impl Wire for ResponseEndpoint {
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

impl Message for StreamsGroupHeartbeatResponse {
    const NAME: &'static str = "StreamsGroupHeartbeatResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
