//! `AlterUserScramCredentials`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterUserScramCredentialsRequest {
    pub deletions: Vec<ScramCredentialDeletion>,
    pub upsertions: Vec<ScramCredentialUpsertion>,
}

impl Wire for AlterUserScramCredentialsRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            deletions: d.array(v, true)?,
            upsertions: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.array(&self.deletions, v, true);
        e.array(&self.upsertions, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScramCredentialDeletion {
    pub name: Str,
    pub mechanism: i8,
}

impl Wire for ScramCredentialDeletion {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            mechanism: d.i8()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.i8(self.mechanism);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScramCredentialUpsertion {
    pub name: Str,
    pub mechanism: i8,
    pub iterations: i32,
    pub salt: Bytes,
    pub salted_password: Bytes,
}

impl Wire for ScramCredentialUpsertion {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            mechanism: d.i8()?,
            iterations: d.i32()?,
            salt: d.bytes(true)?,
            salted_password: d.bytes(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.i8(self.mechanism);
        e.i32(self.iterations);
        e.bytes(&self.salt, true);
        e.bytes(&self.salted_password, true);
        e.tags(&[]);
    }
}

impl Message for AlterUserScramCredentialsRequest {
    const NAME: &'static str = "AlterUserScramCredentialsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for AlterUserScramCredentialsRequest {
    const KEY: ApiKey = ApiKey::AlterUserScramCredentials;
    type Response = AlterUserScramCredentialsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterUserScramCredentialsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AlterUserScramCredentialsResult>,
}

impl Wire for AlterUserScramCredentialsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            results: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.array(&self.results, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterUserScramCredentialsResult {
    pub user: Str,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for AlterUserScramCredentialsResult {
    fn default() -> Self {
        Self {
            user: Str::default(),
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for AlterUserScramCredentialsResult {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            user: d.string(true)?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.user, true);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for AlterUserScramCredentialsResponse {
    const NAME: &'static str = "AlterUserScramCredentialsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
