//! `DeleteShareGroupState`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteShareGroupStateRequest {
    pub group_id: Str,
    pub topics: Vec<DeleteStateData>,
}

impl Wire for DeleteShareGroupStateRequest {
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
pub struct DeleteStateData {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionData>,
}

impl Wire for DeleteStateData {
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
}

impl Wire for PartitionData {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self { partition: d.i32()? };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition);
        e.tags(&[]);
    }
}

impl Message for DeleteShareGroupStateRequest {
    const NAME: &'static str = "DeleteShareGroupStateRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DeleteShareGroupStateRequest {
    const KEY: ApiKey = ApiKey::DeleteShareGroupState;
    type Response = DeleteShareGroupStateResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteShareGroupStateResponse {
    pub results: Vec<DeleteStateResult>,
}

impl Wire for DeleteShareGroupStateResponse {
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
pub struct DeleteStateResult {
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionResult>,
}

impl Wire for DeleteStateResult {
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
pub struct PartitionResult {
    pub partition: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Wire for PartitionResult {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            partition: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.partition);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for DeleteShareGroupStateResponse {
    const NAME: &'static str = "DeleteShareGroupStateResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
