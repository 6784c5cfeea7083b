//! `Fetch`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct FetchRequest {
    /// In versions 12 and up.
    pub cluster_id: Option<Str>,
    /// In versions 4 to 14.
    pub replica_id: i32,
    /// In versions 15 and up.
    pub replica_state: ReplicaState,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation_level: i8,
    /// In versions 7 and up.
    pub session_id: i32,
    /// In versions 7 and up.
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    /// In versions 7 and up.
    pub forgotten_topics_data: Vec<ForgottenTopic>,
    /// In versions 11 and up.
    pub rack_id: Str,
}

impl Default for FetchRequest {
    fn default() -> Self {
        Self {
            cluster_id: None,
            replica_id: -1,
            replica_state: ReplicaState::default(),
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            isolation_level: 0,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten_topics_data: Vec::new(),
            rack_id: Str::default(),
        }
    }
}

impl Wire for FetchRequest {
    const BYTES_MIN: usize = 21;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let mut m = Self {
            cluster_id: None,
            replica_id: if v <= 14 { d.i32()? } else { -1 },
            replica_state: ReplicaState::default(),
            max_wait_ms: d.i32()?,
            min_bytes: d.i32()?,
            max_bytes: d.i32()?,
            isolation_level: d.i8()?,
            session_id: if v >= 7 { d.i32()? } else { 0 },
            session_epoch: if v >= 7 { d.i32()? } else { -1 },
            topics: d.array(v, f)?,
            forgotten_topics_data: if v >= 7 { d.array(v, f)? } else { Vec::new() },
            rack_id: if v >= 11 { d.string(f)? } else { Str::default() },
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 => m.cluster_id = d.opt_string(true, true)?,
                    1 if v >= 15 => m.replica_state = ReplicaState::decode(d, v)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        if v <= 14 {
            e.i32(self.replica_id);
        } else {
            e.unsupported("replica_id", v, self.replica_id != -1);
        }
        e.unsupported(
            "replica_state",
            v,
            v < 15 && self.replica_state != ReplicaState::default(),
        );
        e.i32(self.max_wait_ms);
        e.i32(self.min_bytes);
        e.i32(self.max_bytes);
        e.i8(self.isolation_level);
        if v >= 7 {
            e.i32(self.session_id);
        }
        if v >= 7 {
            e.i32(self.session_epoch);
        }
        e.array(&self.topics, v, f);
        if v >= 7 {
            e.array(&self.forgotten_topics_data, v, f);
        } else {
            e.unsupported("forgotten_topics_data", v, !self.forgotten_topics_data.is_empty());
        }
        if v >= 11 {
            e.string(&self.rack_id, f);
        }
        if f {
            let has_cluster_id = self.cluster_id.is_some();
            let has_replica_state = v >= 15 && self.replica_state != ReplicaState::default();
            e.tags(&[has_cluster_id, has_replica_state]);
            e.tag(0, has_cluster_id, |e| {
                e.opt_string(self.cluster_id.as_ref(), true);
            });
            e.tag(1, has_replica_state, |e| {
                self.replica_state.encode(e, v);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaState {
    pub replica_id: i32,
    pub replica_epoch: i64,
}

impl Default for ReplicaState {
    fn default() -> Self {
        Self {
            replica_id: -1,
            replica_epoch: -1,
        }
    }
}

impl Wire for ReplicaState {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            replica_id: d.i32()?,
            replica_epoch: d.i64()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.replica_id);
        e.i64(self.replica_epoch);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchTopic {
    /// In versions 4 to 12.
    pub topic: Str,
    /// In versions 13 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<FetchPartition>,
}

impl Wire for FetchTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let m = Self {
            topic: if v <= 12 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 13 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        if v <= 12 {
            e.string(&self.topic, f);
        }
        if v >= 13 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FetchPartition {
    pub partition: i32,
    /// In versions 9 and up.
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    /// In versions 12 and up.
    pub last_fetched_epoch: i32,
    /// In versions 5 and up.
    pub log_start_offset: i64,
    pub partition_max_bytes: i32,
    /// In versions 17 and up.
    pub replica_directory_id: Uuid,
    /// In versions 18 and up.
    pub high_watermark: i64,
}

impl Default for FetchPartition {
    fn default() -> Self {
        Self {
            partition: 0,
            current_leader_epoch: -1,
            fetch_offset: 0,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            partition_max_bytes: 0,
            replica_directory_id: Uuid::ZERO,
            high_watermark: i64::MAX,
        }
    }
}

impl Wire for FetchPartition {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let mut m = Self {
            partition: d.i32()?,
            current_leader_epoch: if v >= 9 { d.i32()? } else { -1 },
            fetch_offset: d.i64()?,
            last_fetched_epoch: if v >= 12 { d.i32()? } else { -1 },
            log_start_offset: if v >= 5 { d.i64()? } else { -1 },
            partition_max_bytes: d.i32()?,
            replica_directory_id: Uuid::ZERO,
            high_watermark: i64::MAX,
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 if v >= 17 => m.replica_directory_id = d.uuid()?,
                    1 if v >= 18 => m.high_watermark = d.i64()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        e.i32(self.partition);
        if v >= 9 {
            e.i32(self.current_leader_epoch);
        }
        e.i64(self.fetch_offset);
        if v >= 12 {
            e.i32(self.last_fetched_epoch);
        } else {
            e.unsupported("last_fetched_epoch", v, self.last_fetched_epoch != -1);
        }
        if v >= 5 {
            e.i64(self.log_start_offset);
        }
        e.i32(self.partition_max_bytes);
        if f {
            let has_replica_directory_id = v >= 17 && !self.replica_directory_id.is_zero();
            let has_high_watermark = v >= 18 && self.high_watermark != i64::MAX;
            e.tags(&[has_replica_directory_id, has_high_watermark]);
            e.tag(0, has_replica_directory_id, |e| {
                e.uuid(self.replica_directory_id);
            });
            e.tag(1, has_high_watermark, |e| {
                e.i64(self.high_watermark);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForgottenTopic {
    /// In versions 7 to 12.
    pub topic: Str,
    /// In versions 13 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

impl Wire for ForgottenTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let m = Self {
            topic: if v <= 12 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 13 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        if v <= 12 {
            e.string(&self.topic, f);
        }
        if v >= 13 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for FetchRequest {
    const NAME: &'static str = "FetchRequest";
    const VERSIONS: VersionRange = VersionRange::new(4, 18);
    const FLEXIBLE_FROM: i16 = 12;
}

impl Request for FetchRequest {
    const KEY: ApiKey = ApiKey::Fetch;
    type Response = FetchResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchResponse {
    pub throttle_time_ms: i32,
    /// In versions 7 and up.
    pub error_code: i16,
    /// In versions 7 and up.
    pub session_id: i32,
    pub responses: Vec<FetchableTopicResponse>,
    /// In versions 16 and up.
    pub node_endpoints: Vec<NodeEndpoint>,
}

impl Wire for FetchResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let mut m = Self {
            throttle_time_ms: d.i32()?,
            error_code: if v >= 7 { d.i16()? } else { 0 },
            session_id: if v >= 7 { d.i32()? } else { 0 },
            responses: d.array(v, f)?,
            node_endpoints: Vec::new(),
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 if v >= 16 => m.node_endpoints = d.array(v, true)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        e.i32(self.throttle_time_ms);
        if v >= 7 {
            e.i16(self.error_code);
        }
        if v >= 7 {
            e.i32(self.session_id);
        } else {
            e.unsupported("session_id", v, self.session_id != 0);
        }
        e.array(&self.responses, v, f);
        e.unsupported("node_endpoints", v, v < 16 && !self.node_endpoints.is_empty());
        if f {
            let has_node_endpoints = v >= 16 && !self.node_endpoints.is_empty();
            e.tags(&[has_node_endpoints]);
            e.tag(0, has_node_endpoints, |e| {
                e.array(&self.node_endpoints, v, true);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FetchableTopicResponse {
    /// In versions 4 to 12.
    pub topic: Str,
    /// In versions 13 and up.
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

impl Wire for FetchableTopicResponse {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let m = Self {
            topic: if v <= 12 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 13 { d.uuid()? } else { Uuid::ZERO },
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        if v <= 12 {
            e.string(&self.topic, f);
        }
        if v >= 13 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionData {
    pub partition_index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// In versions 5 and up.
    pub log_start_offset: i64,
    /// In versions 12 and up.
    pub diverging_epoch: EpochEndOffset,
    /// In versions 12 and up.
    pub current_leader: LeaderIdAndEpoch,
    /// In versions 12 and up.
    pub snapshot_id: SnapshotId,
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// In versions 11 and up.
    pub preferred_read_replica: i32,
    pub records: Option<Records>,
}

impl Default for PartitionData {
    fn default() -> Self {
        Self {
            partition_index: 0,
            error_code: 0,
            high_watermark: 0,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: EpochEndOffset::default(),
            current_leader: LeaderIdAndEpoch::default(),
            snapshot_id: SnapshotId::default(),
            aborted_transactions: Some(Vec::new()),
            preferred_read_replica: -1,
            records: Some(Records::new()),
        }
    }
}

impl Wire for PartitionData {
    const BYTES_MIN: usize = 30;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let mut m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            high_watermark: d.i64()?,
            last_stable_offset: d.i64()?,
            log_start_offset: if v >= 5 { d.i64()? } else { -1 },
            diverging_epoch: EpochEndOffset::default(),
            current_leader: LeaderIdAndEpoch::default(),
            snapshot_id: SnapshotId::default(),
            aborted_transactions: d.opt_array(v, f, true)?,
            preferred_read_replica: if v >= 11 { d.i32()? } else { -1 },
            records: d.opt_records(f, true)?,
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 => m.diverging_epoch = EpochEndOffset::decode(d, v)?,
                    1 => m.current_leader = LeaderIdAndEpoch::decode(d, v)?,
                    2 => m.snapshot_id = SnapshotId::decode(d, v)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.i64(self.high_watermark);
        e.i64(self.last_stable_offset);
        if v >= 5 {
            e.i64(self.log_start_offset);
        }
        e.unsupported(
            "diverging_epoch",
            v,
            v < 12 && self.diverging_epoch != EpochEndOffset::default(),
        );
        e.unsupported(
            "current_leader",
            v,
            v < 12 && self.current_leader != LeaderIdAndEpoch::default(),
        );
        e.unsupported(
            "snapshot_id",
            v,
            v < 12 && self.snapshot_id != SnapshotId::default(),
        );
        e.opt_array(self.aborted_transactions.as_ref(), v, f);
        if v >= 11 {
            e.i32(self.preferred_read_replica);
        } else {
            e.unsupported("preferred_read_replica", v, self.preferred_read_replica != -1);
        }
        e.opt_records(self.records.as_ref(), f);
        if f {
            let has_diverging_epoch = self.diverging_epoch != EpochEndOffset::default();
            let has_current_leader = self.current_leader != LeaderIdAndEpoch::default();
            let has_snapshot_id = self.snapshot_id != SnapshotId::default();
            e.tags(&[has_diverging_epoch, has_current_leader, has_snapshot_id]);
            e.tag(0, has_diverging_epoch, |e| {
                self.diverging_epoch.encode(e, v);
            });
            e.tag(1, has_current_leader, |e| {
                self.current_leader.encode(e, v);
            });
            e.tag(2, has_snapshot_id, |e| {
                self.snapshot_id.encode(e, v);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct EpochEndOffset {
    pub epoch: i32,
    pub end_offset: i64,
}

impl Default for EpochEndOffset {
    fn default() -> Self {
        Self {
            epoch: -1,
            end_offset: -1,
        }
    }
}

impl Wire for EpochEndOffset {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            epoch: d.i32()?,
            end_offset: d.i64()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.epoch);
        e.i64(self.end_offset);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaderIdAndEpoch {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

impl Default for LeaderIdAndEpoch {
    fn default() -> Self {
        Self {
            leader_id: -1,
            leader_epoch: -1,
        }
    }
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

#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotId {
    pub end_offset: i64,
    pub epoch: i32,
}

impl Default for SnapshotId {
    fn default() -> Self {
        Self {
            end_offset: -1,
            epoch: -1,
        }
    }
}

impl Wire for SnapshotId {
    const BYTES_MIN: usize = 13;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            end_offset: d.i64()?,
            epoch: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i64(self.end_offset);
        e.i32(self.epoch);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

impl Wire for AbortedTransaction {
    const BYTES_MIN: usize = 16;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 12;
        let m = Self {
            producer_id: d.i64()?,
            first_offset: d.i64()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 12;
        e.i64(self.producer_id);
        e.i64(self.first_offset);
        if f {
            e.tags(&[]);
        }
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

impl Message for FetchResponse {
    const NAME: &'static str = "FetchResponse";
    const VERSIONS: VersionRange = VersionRange::new(4, 18);
    const FLEXIBLE_FROM: i16 = 12;
}
