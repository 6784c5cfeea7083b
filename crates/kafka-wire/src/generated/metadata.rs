//! `Metadata`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataRequest {
    pub topics: Option<Vec<MetadataRequestTopic>>,
    /// In versions 4 and up.
    pub allow_auto_topic_creation: bool,
    /// In versions 8 to 10.
    pub include_cluster_authorized_operations: bool,
    /// In versions 8 and up.
    pub include_topic_authorized_operations: bool,
}

impl Default for MetadataRequest {
    fn default() -> Self {
        Self {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: true,
            include_cluster_authorized_operations: false,
            include_topic_authorized_operations: false,
        }
    }
}

impl Wire for MetadataRequest {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            topics: d.opt_array(v, f, v >= 1)?,
            allow_auto_topic_creation: if v >= 4 { d.bool()? } else { true },
            include_cluster_authorized_operations: if (8..=10).contains(&v) { d.bool()? } else { false },
            include_topic_authorized_operations: if v >= 8 { d.bool()? } else { false },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.not_null("topics", v, v < 1 && self.topics.is_none());
        e.opt_array(self.topics.as_ref(), v, f);
        if v >= 4 {
            e.bool(self.allow_auto_topic_creation);
        } else {
            e.unsupported("allow_auto_topic_creation", v, !self.allow_auto_topic_creation);
        }
        if (8..=10).contains(&v) {
            e.bool(self.include_cluster_authorized_operations);
        } else {
            e.unsupported(
                "include_cluster_authorized_operations",
                v,
                self.include_cluster_authorized_operations,
            );
        }
        if v >= 8 {
            e.bool(self.include_topic_authorized_operations);
        } else {
            e.unsupported(
                "include_topic_authorized_operations",
                v,
                self.include_topic_authorized_operations,
            );
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataRequestTopic {
    /// In versions 10 and up.
    pub topic_id: Uuid,
    pub name: Option<Str>,
}

impl Default for MetadataRequestTopic {
    fn default() -> Self {
        Self {
            topic_id: Uuid::ZERO,
            name: Some(Str::default()),
        }
    }
}

impl Wire for MetadataRequestTopic {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            name: d.opt_string(f, v >= 10)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        e.not_null("name", v, v < 10 && self.name.is_none());
        e.opt_string(self.name.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for MetadataRequest {
    const NAME: &'static str = "MetadataRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 13);
    const FLEXIBLE_FROM: i16 = 9;
}

impl Request for MetadataRequest {
    const KEY: ApiKey = ApiKey::Metadata;
    type Response = MetadataResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataResponse {
    /// In versions 3 and up.
    pub throttle_time_ms: i32,
    pub brokers: Vec<MetadataResponseBroker>,
    /// In versions 2 and up.
    pub cluster_id: Option<Str>,
    /// In versions 1 and up.
    pub controller_id: i32,
    pub topics: Vec<MetadataResponseTopic>,
    /// In versions 8 to 10.
    pub cluster_authorized_operations: i32,
    /// In versions 13 and up.
    pub error_code: i16,
}

impl Default for MetadataResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            brokers: Vec::new(),
            cluster_id: None,
            controller_id: -1,
            topics: Vec::new(),
            cluster_authorized_operations: i32::MIN,
            error_code: 0,
        }
    }
}

impl Wire for MetadataResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            throttle_time_ms: if v >= 3 { d.i32()? } else { 0 },
            brokers: d.array(v, f)?,
            cluster_id: if v >= 2 { d.opt_string(f, true)? } else { None },
            controller_id: if v >= 1 { d.i32()? } else { -1 },
            topics: d.array(v, f)?,
            cluster_authorized_operations: if (8..=10).contains(&v) { d.i32()? } else { i32::MIN },
            error_code: if v >= 13 { d.i16()? } else { 0 },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        if v >= 3 {
            e.i32(self.throttle_time_ms);
        }
        e.array(&self.brokers, v, f);
        if v >= 2 {
            e.opt_string(self.cluster_id.as_ref(), f);
        }
        if v >= 1 {
            e.i32(self.controller_id);
        }
        e.array(&self.topics, v, f);
        if (8..=10).contains(&v) {
            e.i32(self.cluster_authorized_operations);
        } else {
            e.unsupported(
                "cluster_authorized_operations",
                v,
                self.cluster_authorized_operations != i32::MIN,
            );
        }
        if v >= 13 {
            e.i16(self.error_code);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetadataResponseBroker {
    pub node_id: i32,
    pub host: Str,
    pub port: i32,
    /// In versions 1 and up.
    pub rack: Option<Str>,
}

impl Wire for MetadataResponseBroker {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            node_id: d.i32()?,
            host: d.string(f)?,
            port: d.i32()?,
            rack: if v >= 1 { d.opt_string(f, true)? } else { None },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i32(self.node_id);
        e.string(&self.host, f);
        e.i32(self.port);
        if v >= 1 {
            e.opt_string(self.rack.as_ref(), f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataResponseTopic {
    pub error_code: i16,
    pub name: Option<Str>,
    /// In versions 10 and up.
    pub topic_id: Uuid,
    /// In versions 1 and up.
    pub is_internal: bool,
    pub partitions: Vec<MetadataResponsePartition>,
    /// In versions 8 and up.
    pub topic_authorized_operations: i32,
}

impl Default for MetadataResponseTopic {
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

impl Wire for MetadataResponseTopic {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            error_code: d.i16()?,
            name: d.opt_string(f, v >= 12)?,
            topic_id: if v >= 10 { d.uuid()? } else { Uuid::ZERO },
            is_internal: if v >= 1 { d.bool()? } else { false },
            partitions: d.array(v, f)?,
            topic_authorized_operations: if v >= 8 { d.i32()? } else { i32::MIN },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i16(self.error_code);
        e.not_null("name", v, v < 12 && self.name.is_none());
        e.opt_string(self.name.as_ref(), f);
        if v >= 10 {
            e.uuid(self.topic_id);
        }
        if v >= 1 {
            e.bool(self.is_internal);
        }
        e.array(&self.partitions, v, f);
        if v >= 8 {
            e.i32(self.topic_authorized_operations);
        } else {
            e.unsupported(
                "topic_authorized_operations",
                v,
                self.topic_authorized_operations != i32::MIN,
            );
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetadataResponsePartition {
    pub error_code: i16,
    pub partition_index: i32,
    pub leader_id: i32,
    /// In versions 7 and up.
    pub leader_epoch: i32,
    pub replica_nodes: Vec<i32>,
    pub isr_nodes: Vec<i32>,
    /// In versions 5 and up.
    pub offline_replicas: Vec<i32>,
}

impl Default for MetadataResponsePartition {
    fn default() -> Self {
        Self {
            error_code: 0,
            partition_index: 0,
            leader_id: 0,
            leader_epoch: -1,
            replica_nodes: Vec::new(),
            isr_nodes: Vec::new(),
            offline_replicas: Vec::new(),
        }
    }
}

impl Wire for MetadataResponsePartition {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            error_code: d.i16()?,
            partition_index: d.i32()?,
            leader_id: d.i32()?,
            leader_epoch: if v >= 7 { d.i32()? } else { -1 },
            replica_nodes: d.array(v, f)?,
            isr_nodes: d.array(v, f)?,
            offline_replicas: if v >= 5 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i16(self.error_code);
        e.i32(self.partition_index);
        e.i32(self.leader_id);
        if v >= 7 {
            e.i32(self.leader_epoch);
        }
        e.array(&self.replica_nodes, v, f);
        e.array(&self.isr_nodes, v, f);
        if v >= 5 {
            e.array(&self.offline_replicas, v, f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for MetadataResponse {
    const NAME: &'static str = "MetadataResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 13);
    const FLEXIBLE_FROM: i16 = 9;
}
