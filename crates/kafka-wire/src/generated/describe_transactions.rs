//! `DescribeTransactions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeTransactionsRequest {
    pub transactional_ids: Vec<Str>,
}

impl Wire for DescribeTransactionsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            transactional_ids: d.strings(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.strings(&self.transactional_ids, true);
        e.tags(&[]);
    }
}

impl Message for DescribeTransactionsRequest {
    const NAME: &'static str = "DescribeTransactionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeTransactionsRequest {
    const KEY: ApiKey = ApiKey::DescribeTransactions;
    type Response = DescribeTransactionsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeTransactionsResponse {
    pub throttle_time_ms: i32,
    pub transaction_states: Vec<TransactionState>,
}

impl Wire for DescribeTransactionsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            transaction_states: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.array(&self.transaction_states, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TransactionState {
    pub error_code: i16,
    pub transactional_id: Str,
    pub transaction_state: Str,
    pub transaction_timeout_ms: i32,
    pub transaction_start_time_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub topics: Vec<TopicData>,
}

impl Wire for TransactionState {
    const BYTES_MIN: usize = 28;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            error_code: d.i16()?,
            transactional_id: d.string(true)?,
            transaction_state: d.string(true)?,
            transaction_timeout_ms: d.i32()?,
            transaction_start_time_ms: d.i64()?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i16(self.error_code);
        e.string(&self.transactional_id, true);
        e.string(&self.transaction_state, true);
        e.i32(self.transaction_timeout_ms);
        e.i64(self.transaction_start_time_ms);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicData {
    pub topic: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TopicData {
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

impl Message for DescribeTransactionsResponse {
    const NAME: &'static str = "DescribeTransactionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
