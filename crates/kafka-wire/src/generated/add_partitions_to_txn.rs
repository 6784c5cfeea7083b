//! `AddPartitionsToTxn`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnRequest {
    /// In versions 4 and up.
    pub transactions: Vec<AddPartitionsToTxnTransaction>,
    /// In versions 0 to 3.
    pub v3_and_below_transactional_id: Str,
    /// In versions 0 to 3.
    pub v3_and_below_producer_id: i64,
    /// In versions 0 to 3.
    pub v3_and_below_producer_epoch: i16,
    /// In versions 0 to 3.
    pub v3_and_below_topics: Vec<AddPartitionsToTxnTopic>,
}

impl Wire for AddPartitionsToTxnRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            transactions: if v >= 4 { d.array(v, f)? } else { Vec::new() },
            v3_and_below_transactional_id: if v <= 3 { d.string(f)? } else { Str::default() },
            v3_and_below_producer_id: if v <= 3 { d.i64()? } else { 0 },
            v3_and_below_producer_epoch: if v <= 3 { d.i16()? } else { 0 },
            v3_and_below_topics: if v <= 3 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v >= 4 {
            e.array(&self.transactions, v, f);
        } else {
            e.unsupported("transactions", v, !self.transactions.is_empty());
        }
        if v <= 3 {
            e.string(&self.v3_and_below_transactional_id, f);
        } else {
            e.unsupported(
                "v3_and_below_transactional_id",
                v,
                !self.v3_and_below_transactional_id.is_empty(),
            );
        }
        if v <= 3 {
            e.i64(self.v3_and_below_producer_id);
        } else {
            e.unsupported("v3_and_below_producer_id", v, self.v3_and_below_producer_id != 0);
        }
        if v <= 3 {
            e.i16(self.v3_and_below_producer_epoch);
        } else {
            e.unsupported(
                "v3_and_below_producer_epoch",
                v,
                self.v3_and_below_producer_epoch != 0,
            );
        }
        if v <= 3 {
            e.array(&self.v3_and_below_topics, v, f);
        } else {
            e.unsupported("v3_and_below_topics", v, !self.v3_and_below_topics.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnTransaction {
    pub transactional_id: Str,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub verify_only: bool,
    pub topics: Vec<AddPartitionsToTxnTopic>,
}

impl Wire for AddPartitionsToTxnTransaction {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            transactional_id: d.string(true)?,
            producer_id: d.i64()?,
            producer_epoch: d.i16()?,
            verify_only: d.bool()?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.transactional_id, true);
        e.i64(self.producer_id);
        e.i16(self.producer_epoch);
        e.bool(self.verify_only);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnTopic {
    pub name: Str,
    pub partitions: Vec<i32>,
}

impl Wire for AddPartitionsToTxnTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            name: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AddPartitionsToTxnRequest {
    const NAME: &'static str = "AddPartitionsToTxnRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for AddPartitionsToTxnRequest {
    const KEY: ApiKey = ApiKey::AddPartitionsToTxn;
    type Response = AddPartitionsToTxnResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnResponse {
    pub throttle_time_ms: i32,
    /// In versions 4 and up.
    pub error_code: i16,
    /// In versions 4 and up.
    pub results_by_transaction: Vec<AddPartitionsToTxnResult>,
    /// In versions 0 to 3.
    pub results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult>,
}

impl Wire for AddPartitionsToTxnResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: if v >= 4 { d.i16()? } else { 0 },
            results_by_transaction: if v >= 4 { d.array(v, f)? } else { Vec::new() },
            results_by_topic_v3_and_below: if v <= 3 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i32(self.throttle_time_ms);
        if v >= 4 {
            e.i16(self.error_code);
        }
        if v >= 4 {
            e.array(&self.results_by_transaction, v, f);
        } else {
            e.unsupported(
                "results_by_transaction",
                v,
                !self.results_by_transaction.is_empty(),
            );
        }
        if v <= 3 {
            e.array(&self.results_by_topic_v3_and_below, v, f);
        } else {
            e.unsupported(
                "results_by_topic_v3_and_below",
                v,
                !self.results_by_topic_v3_and_below.is_empty(),
            );
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnResult {
    pub transactional_id: Str,
    pub topic_results: Vec<AddPartitionsToTxnTopicResult>,
}

impl Wire for AddPartitionsToTxnResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            transactional_id: d.string(true)?,
            topic_results: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.transactional_id, true);
        e.array(&self.topic_results, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnTopicResult {
    pub name: Str,
    pub results_by_partition: Vec<AddPartitionsToTxnPartitionResult>,
}

impl Wire for AddPartitionsToTxnTopicResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            name: d.string(f)?,
            results_by_partition: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.string(&self.name, f);
        e.array(&self.results_by_partition, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AddPartitionsToTxnPartitionResult {
    pub partition_index: i32,
    pub partition_error_code: i16,
}

impl Wire for AddPartitionsToTxnPartitionResult {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            partition_index: d.i32()?,
            partition_error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i32(self.partition_index);
        e.i16(self.partition_error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AddPartitionsToTxnResponse {
    const NAME: &'static str = "AddPartitionsToTxnResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 5);
    const FLEXIBLE_FROM: i16 = 3;
}
