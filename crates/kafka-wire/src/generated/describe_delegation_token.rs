//! `DescribeDelegationToken`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeDelegationTokenRequest {
    pub owners: Option<Vec<DescribeDelegationTokenOwner>>,
}

impl Default for DescribeDelegationTokenRequest {
    fn default() -> Self {
        Self {
            owners: Some(Vec::new()),
        }
    }
}

impl Wire for DescribeDelegationTokenRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            owners: d.opt_array(v, f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.opt_array(self.owners.as_ref(), v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeDelegationTokenOwner {
    pub principal_type: Str,
    pub principal_name: Str,
}

impl Wire for DescribeDelegationTokenOwner {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            principal_type: d.string(f)?,
            principal_name: d.string(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.principal_type, f);
        e.string(&self.principal_name, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeDelegationTokenRequest {
    const NAME: &'static str = "DescribeDelegationTokenRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for DescribeDelegationTokenRequest {
    const KEY: ApiKey = ApiKey::DescribeDelegationToken;
    type Response = DescribeDelegationTokenResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeDelegationTokenResponse {
    pub error_code: i16,
    pub tokens: Vec<DescribedDelegationToken>,
    pub throttle_time_ms: i32,
}

impl Wire for DescribeDelegationTokenResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            tokens: d.array(v, f)?,
            throttle_time_ms: d.i32()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i16(self.error_code);
        e.array(&self.tokens, v, f);
        e.i32(self.throttle_time_ms);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribedDelegationToken {
    pub principal_type: Str,
    pub principal_name: Str,
    /// In versions 3 and up.
    pub token_requester_principal_type: Str,
    /// In versions 3 and up.
    pub token_requester_principal_name: Str,
    pub issue_timestamp: i64,
    pub expiry_timestamp: i64,
    pub max_timestamp: i64,
    pub token_id: Str,
    pub hmac: Bytes,
    pub renewers: Vec<DescribedDelegationTokenRenewer>,
}

impl Wire for DescribedDelegationToken {
    const BYTES_MIN: usize = 30;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            principal_type: d.string(f)?,
            principal_name: d.string(f)?,
            token_requester_principal_type: if v >= 3 { d.string(f)? } else { Str::default() },
            token_requester_principal_name: if v >= 3 { d.string(f)? } else { Str::default() },
            issue_timestamp: d.i64()?,
            expiry_timestamp: d.i64()?,
            max_timestamp: d.i64()?,
            token_id: d.string(f)?,
            hmac: d.bytes(f)?,
            renewers: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.principal_type, f);
        e.string(&self.principal_name, f);
        if v >= 3 {
            e.string(&self.token_requester_principal_type, f);
        } else {
            e.unsupported(
                "token_requester_principal_type",
                v,
                !self.token_requester_principal_type.is_empty(),
            );
        }
        if v >= 3 {
            e.string(&self.token_requester_principal_name, f);
        } else {
            e.unsupported(
                "token_requester_principal_name",
                v,
                !self.token_requester_principal_name.is_empty(),
            );
        }
        e.i64(self.issue_timestamp);
        e.i64(self.expiry_timestamp);
        e.i64(self.max_timestamp);
        e.string(&self.token_id, f);
        e.bytes(&self.hmac, f);
        e.array(&self.renewers, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribedDelegationTokenRenewer {
    pub principal_type: Str,
    pub principal_name: Str,
}

impl Wire for DescribedDelegationTokenRenewer {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            principal_type: d.string(f)?,
            principal_name: d.string(f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.principal_type, f);
        e.string(&self.principal_name, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeDelegationTokenResponse {
    const NAME: &'static str = "DescribeDelegationTokenResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
