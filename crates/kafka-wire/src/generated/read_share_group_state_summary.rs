//! `ReadShareGroupStateSummary`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadShareGroupStateSummaryRequest {
    pub group_id: Str,
    pub topics: Vec<ReadStateSummaryData>,
}

impl Wire for ReadShareGroupStateSummaryRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            group_id: d.string(true)?,
            topics: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.group_id, true);
        e.array(&self.topics, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadStateSummaryData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

impl Wire for ReadStateSummaryData {
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

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionData {
    pub partition: i32,
    pub leader_epoch: i32,
}

impl Wire for PartitionData {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition: d.i32()?,
            leader_epoch: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition);
        e.i32(self.leader_epoch);
        e.tags(&[]);
    }
}

impl Message for ReadShareGroupStateSummaryRequest {
    const NAME: &'static str = "ReadShareGroupStateSummaryRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for ReadShareGroupStateSummaryRequest {
    const KEY: ApiKey = ApiKey::ReadShareGroupStateSummary;
    type Response = ReadShareGroupStateSummaryResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadShareGroupStateSummaryResponse {
    pub results: Vec<ReadStateSummaryResult>,
}

impl Wire for ReadShareGroupStateSummaryResponse {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            results: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.results, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadStateSummaryResult {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionResult>,
}

impl Wire for ReadStateSummaryResult {
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

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionResult {
    pub partition: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    /// In versions 1 and up.
    pub delivery_complete_count: i32,
}

impl Default for PartitionResult {
    fn default() -> Self {
        Self {
            partition: 0,
            error_code: 0,
            error_message: None,
            state_epoch: 0,
            leader_epoch: 0,
            start_offset: 0,
            delivery_complete_count: -1,
        }
    }
}

impl Wire for PartitionResult {
    const BYTES_MIN: usize = 24;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            state_epoch: d.i32()?,
            leader_epoch: d.i32()?,
            start_offset: d.i64()?,
            delivery_complete_count: if v >= 1 { d.i32()? } else { -1 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.partition);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.i32(self.state_epoch);
        e.i32(self.leader_epoch);
        e.i64(self.start_offset);
        if v >= 1 {
            e.i32(self.delivery_complete_count);
        }
        e.tags(&[]);
    }
}

impl Message for ReadShareGroupStateSummaryResponse {
    const NAME: &'static str = "ReadShareGroupStateSummaryResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}
