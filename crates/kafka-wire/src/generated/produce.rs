//! `Produce`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProduceRequest {
    pub transactional_id: Option<Str>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topic_data: Vec<TopicProduceData>,
}

impl Wire for ProduceRequest {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            transactional_id: d.opt_string(f, true)?,
            acks: d.i16()?,
            timeout_ms: d.i32()?,
            topic_data: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.opt_string(self.transactional_id.as_ref(), f);
        e.i16(self.acks);
        e.i32(self.timeout_ms);
        e.array(&self.topic_data, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicProduceData {
    /// In versions 3 to 12.
    pub name: Str,
    /// In versions 13 and up.
    pub topic_id: Uuid,
    pub partition_data: Vec<PartitionProduceData>,
}

impl Wire for TopicProduceData {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            name: if v <= 12 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 13 { d.uuid()? } else { Uuid::ZERO },
            partition_data: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        if v <= 12 {
            e.string(&self.name, f);
        }
        if v >= 13 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partition_data, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionProduceData {
    pub index: i32,
    pub records: Option<Bytes>,
}

impl Default for PartitionProduceData {
    fn default() -> Self {
        Self {
            index: 0,
            records: Some(Bytes::new()),
        }
    }
}

impl Wire for PartitionProduceData {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            index: d.i32()?,
            records: d.opt_bytes(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i32(self.index);
        e.opt_bytes(self.records.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ProduceRequest {
    const NAME: &'static str = "ProduceRequest";
    const VERSIONS: VersionRange = VersionRange::new(3, 13);
    const FLEXIBLE_FROM: i16 = 9;
}

impl Request for ProduceRequest {
    const KEY: ApiKey = ApiKey::Produce;
    type Response = ProduceResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProduceResponse {
    pub responses: Vec<TopicProduceResponse>,
    pub throttle_time_ms: i32,
    /// In versions 10 and up.
    pub node_endpoints: Vec<NodeEndpoint>,
}

impl Wire for ProduceResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let mut m = Self {
            responses: d.array(v, f)?,
            throttle_time_ms: d.i32()?,
            node_endpoints: Vec::new(),
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 if v >= 10 => m.node_endpoints = d.array(v, true)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.array(&self.responses, v, f);
        e.i32(self.throttle_time_ms);
        e.unsupported("node_endpoints", v, v < 10 && !self.node_endpoints.is_empty());
        if f {
            let has_node_endpoints = v >= 10 && !self.node_endpoints.is_empty();
            e.tags(&[has_node_endpoints]);
            e.tag(0, has_node_endpoints, |e| {
                e.array(&self.node_endpoints, v, true);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicProduceResponse {
    /// In versions 3 to 12.
    pub name: Str,
    /// In versions 13 and up.
    pub topic_id: Uuid,
    pub partition_responses: Vec<PartitionProduceResponse>,
}

impl Wire for TopicProduceResponse {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            name: if v <= 12 { d.string(f)? } else { Str::default() },
            topic_id: if v >= 13 { d.uuid()? } else { Uuid::ZERO },
            partition_responses: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        if v <= 12 {
            e.string(&self.name, f);
        }
        if v >= 13 {
            e.uuid(self.topic_id);
        }
        e.array(&self.partition_responses, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionProduceResponse {
    pub index: i32,
    pub error_code: i16,
    pub base_offset: i64,
    pub log_append_time_ms: i64,
    /// In versions 5 and up.
    pub log_start_offset: i64,
    /// In versions 8 and up.
    pub record_errors: Vec<BatchIndexAndErrorMessage>,
    /// In versions 8 and up.
    pub error_message: Option<Str>,
    /// In versions 10 and up.
    pub current_leader: LeaderIdAndEpoch,
}

impl Default for PartitionProduceResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: 0,
            base_offset: 0,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: LeaderIdAndEpoch::default(),
        }
    }
}

impl Wire for PartitionProduceResponse {
    const BYTES_MIN: usize = 22;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let mut m = Self {
            index: d.i32()?,
            error_code: d.i16()?,
            base_offset: d.i64()?,
            log_append_time_ms: d.i64()?,
            log_start_offset: if v >= 5 { d.i64()? } else { -1 },
            record_errors: if v >= 8 { d.array(v, f)? } else { Vec::new() },
            error_message: if v >= 8 { d.opt_string(f, true)? } else { None },
            current_leader: LeaderIdAndEpoch::default(),
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 if v >= 10 => m.current_leader = LeaderIdAndEpoch::decode(d, v)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i32(self.index);
        e.i16(self.error_code);
        e.i64(self.base_offset);
        e.i64(self.log_append_time_ms);
        if v >= 5 {
            e.i64(self.log_start_offset);
        }
        if v >= 8 {
            e.array(&self.record_errors, v, f);
        }
        if v >= 8 {
            e.opt_string(self.error_message.as_ref(), f);
        }
        e.unsupported(
            "current_leader",
            v,
            v < 10 && self.current_leader != LeaderIdAndEpoch::default(),
        );
        if f {
            let has_current_leader = v >= 10 && self.current_leader != LeaderIdAndEpoch::default();
            e.tags(&[has_current_leader]);
            e.tag(0, has_current_leader, |e| {
                self.current_leader.encode(e, v);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchIndexAndErrorMessage {
    pub batch_index: i32,
    pub batch_index_error_message: Option<Str>,
}

impl Wire for BatchIndexAndErrorMessage {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 9;
        let m = Self {
            batch_index: d.i32()?,
            batch_index_error_message: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 9;
        e.i32(self.batch_index);
        e.opt_string(self.batch_index_error_message.as_ref(), f);
        if f {
            e.tags(&[]);
        }
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

impl Message for ProduceResponse {
    const NAME: &'static str = "ProduceResponse";
    const VERSIONS: VersionRange = VersionRange::new(3, 13);
    const FLEXIBLE_FROM: i16 = 9;
}
