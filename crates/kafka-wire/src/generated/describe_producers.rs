//! `DescribeProducers`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeProducersRequest {
    pub topics: Vec<TopicRequest>,
}

impl Wire for DescribeProducersRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicRequest {
    pub name: Str,
    pub partition_indexes: Vec<i32>,
}

impl Wire for TopicRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            partition_indexes: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, true);
        e.array(&self.partition_indexes, v, true);
        e.tags(&[]);
    }
}

impl Message for DescribeProducersRequest {
    const NAME: &'static str = "DescribeProducersRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeProducersRequest {
    const KEY: ApiKey = ApiKey::DescribeProducers;
    type Response = DescribeProducersResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeProducersResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<TopicResponse>,
}

impl Wire for DescribeProducersResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicResponse {
    pub name: Str,
    pub partitions: Vec<PartitionResponse>,
}

impl Wire for TopicResponse {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            partitions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.name, true);
        e.array(&self.partitions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionResponse {
    pub partition_index: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub active_producers: Vec<ProducerState>,
}

impl Wire for PartitionResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            active_producers: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition_index);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.array(&self.active_producers, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProducerState {
    pub producer_id: i64,
    pub producer_epoch: i32,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    pub current_txn_start_offset: i64,
}

impl Default for ProducerState {
    fn default() -> Self {
        Self {
            producer_id: 0,
            producer_epoch: 0,
            last_sequence: -1,
            last_timestamp: -1,
            coordinator_epoch: 0,
            current_txn_start_offset: -1,
        }
    }
}

impl Wire for ProducerState {
    const BYTES_MIN: usize = 37;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            producer_id: d.i64()?,
            producer_epoch: d.i32()?,
            last_sequence: d.i32()?,
            last_timestamp: d.i64()?,
            coordinator_epoch: d.i32()?,
            current_txn_start_offset: d.i64()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i64(self.producer_id);
        e.i32(self.producer_epoch);
        e.i32(self.last_sequence);
        e.i64(self.last_timestamp);
        e.i32(self.coordinator_epoch);
        e.i64(self.current_txn_start_offset);
        e.tags(&[]);
    }
}

impl Message for DescribeProducersResponse {
    const NAME: &'static str = "DescribeProducersResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
