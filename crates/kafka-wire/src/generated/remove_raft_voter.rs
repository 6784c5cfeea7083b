//! `RemoveRaftVoter`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct RemoveRaftVoterRequest {
    pub cluster_id: Option<Str>,
    pub voter_id: i32,
    pub voter_directory_id: Uuid,
}

impl Default for RemoveRaftVoterRequest {
    fn default() -> Self {
        Self {
            cluster_id: Some(Str::default()),
            voter_id: 0,
            voter_directory_id: Uuid::ZERO,
        }
    }
}

impl Wire for RemoveRaftVoterRequest {
    const BYTES_MIN: usize = 22;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            cluster_id: d.opt_string(true, true)?,
            voter_id: d.i32()?,
            voter_directory_id: d.uuid()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.opt_string(self.cluster_id.as_ref(), true);
        e.i32(self.voter_id);
        e.uuid(self.voter_directory_id);
        e.tags(&[]);
    }
}

impl Message for RemoveRaftVoterRequest {
    const NAME: &'static str = "RemoveRaftVoterRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for RemoveRaftVoterRequest {
    const KEY: ApiKey = ApiKey::RemoveRaftVoter;
    type Response = RemoveRaftVoterResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct RemoveRaftVoterResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for RemoveRaftVoterResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for RemoveRaftVoterResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for RemoveRaftVoterResponse {
    const NAME: &'static str = "RemoveRaftVoterResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
