//! `DeleteShareGroupOffsets`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteShareGroupOffsetsRequest {
    pub group_id: Str,
    pub topics: Vec<DeleteShareGroupOffsetsRequestTopic>,
}

impl Wire for DeleteShareGroupOffsetsRequest {
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
pub struct DeleteShareGroupOffsetsRequestTopic {
    pub topic_name: Str,
}

impl Wire for DeleteShareGroupOffsetsRequestTopic {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.topic_name, true);
        e.tags(&[]);
    }
}

impl Message for DeleteShareGroupOffsetsRequest {
    const NAME: &'static str = "DeleteShareGroupOffsetsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DeleteShareGroupOffsetsRequest {
    const KEY: ApiKey = ApiKey::DeleteShareGroupOffsets;
    type Response = DeleteShareGroupOffsetsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteShareGroupOffsetsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub responses: Vec<DeleteShareGroupOffsetsResponseTopic>,
}

impl Wire for DeleteShareGroupOffsetsResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            responses: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.array(&self.responses, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeleteShareGroupOffsetsResponseTopic {
    pub topic_name: Str,
    pub topic_id: Uuid,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Wire for DeleteShareGroupOffsetsResponseTopic {
    const BYTES_MIN: usize = 21;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            topic_name: d.string(true)?,
            topic_id: d.uuid()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.topic_name, true);
        e.uuid(self.topic_id);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for DeleteShareGroupOffsetsResponse {
    const NAME: &'static str = "DeleteShareGroupOffsetsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
