//! `DescribeUserScramCredentials`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeUserScramCredentialsRequest {
    pub users: Option<Vec<UserName>>,
}

impl Default for DescribeUserScramCredentialsRequest {
    fn default() -> Self {
        Self {
            users: Some(Vec::new()),
        }
    }
}

impl Wire for DescribeUserScramCredentialsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            users: d.opt_array(v, true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.opt_array(self.users.as_ref(), v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserName {
    pub name: Str,
}

impl Wire for UserName {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.tags(&[]);
    }
}

impl Message for DescribeUserScramCredentialsRequest {
    const NAME: &'static str = "DescribeUserScramCredentialsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeUserScramCredentialsRequest {
    const KEY: ApiKey = ApiKey::DescribeUserScramCredentials;
    type Response = DescribeUserScramCredentialsResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeUserScramCredentialsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub results: Vec<DescribeUserScramCredentialsResult>,
}

impl Default for DescribeUserScramCredentialsResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            results: Vec::new(),
        }
    }
}

impl Wire for DescribeUserScramCredentialsResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            results: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.array(&self.results, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeUserScramCredentialsResult {
    pub user: Str,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub credential_infos: Vec<CredentialInfo>,
}

impl Default for DescribeUserScramCredentialsResult {
    fn default() -> Self {
        Self {
            user: Str::default(),
            error_code: 0,
            error_message: Some(Str::default()),
            credential_infos: Vec::new(),
        }
    }
}

impl Wire for DescribeUserScramCredentialsResult {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            user: d.string(true)?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            credential_infos: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.user, true);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.array(&self.credential_infos, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CredentialInfo {
    pub mechanism: i8,
    pub iterations: i32,
}

impl Wire for CredentialInfo {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            mechanism: d.i8()?,
            iterations: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i8(self.mechanism);
        e.i32(self.iterations);
        e.tags(&[]);
    }
}

impl Message for DescribeUserScramCredentialsResponse {
    const NAME: &'static str = "DescribeUserScramCredentialsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
