//! `AddRaftVoter`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct AddRaftVoterRequest {
    pub cluster_id: Option<Str>,
    pub timeout_ms: i32,
    pub voter_id: i32,
    pub voter_directory_id: Uuid,
    pub listeners: Vec<Listener>,
    /// In versions 1 and up.
    pub ack_when_committed: bool,
}

impl Default for AddRaftVoterRequest {
    fn default() -> Self {
        Self {
            cluster_id: Some(Str::default()),
            timeout_ms: 0,
            voter_id: 0,
            voter_directory_id: Uuid::ZERO,
            listeners: Vec::new(),
            ack_when_committed: true,
        }
    }
}

impl Wire for AddRaftVoterRequest {
    const BYTES_MIN: usize = 27;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            cluster_id: d.opt_string(true, true)?,
            timeout_ms: d.i32()?,
            voter_id: d.i32()?,
            voter_directory_id: d.uuid()?,
            listeners: d.array(v, true)?,
            ack_when_committed: if v >= 1 { d.bool()? } else { true },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.opt_string(self.cluster_id.as_ref(), true);
        e.i32(self.timeout_ms);
        e.i32(self.voter_id);
        e.uuid(self.voter_directory_id);
        e.array(&self.listeners, v, true);
        if v >= 1 {
            e.bool(self.ack_when_committed);
        } else {
            e.unsupported("ack_when_committed", v, !self.ack_when_committed);
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listener {
    pub name: Str,
    pub host: Str,
    pub port: u16,
}

impl Wire for Listener {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            host: d.string(true)?,
            port: d.u16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.string(&self.host, true);
        e.u16(self.port);
        e.tags(&[]);
    }
}

impl Message for AddRaftVoterRequest {
    const NAME: &'static str = "AddRaftVoterRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for AddRaftVoterRequest {
    const KEY: ApiKey = ApiKey::AddRaftVoter;
    type Response = AddRaftVoterResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddRaftVoterResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for AddRaftVoterResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for AddRaftVoterResponse {
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

impl Message for AddRaftVoterResponse {
    const NAME: &'static str = "AddRaftVoterResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 0;
}
