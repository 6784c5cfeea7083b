//! `CreateDelegationToken`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateDelegationTokenRequest {
    /// In versions 3 and up.
    pub owner_principal_type: Option<Str>,
    /// In versions 3 and up.
    pub owner_principal_name: Option<Str>,
    pub renewers: Vec<CreatableRenewers>,
    pub max_lifetime_ms: i64,
}

impl Default for CreateDelegationTokenRequest {
    fn default() -> Self {
        Self {
            owner_principal_type: Some(Str::default()),
            owner_principal_name: Some(Str::default()),
            renewers: Vec::new(),
            max_lifetime_ms: 0,
        }
    }
}

impl Wire for CreateDelegationTokenRequest {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            owner_principal_type: if v >= 3 {
                d.opt_string(f, true)?
            } else {
                Some(Str::default())
            },
            owner_principal_name: if v >= 3 {
                d.opt_string(f, true)?
            } else {
                Some(Str::default())
            },
            renewers: d.array(v, f)?,
            max_lifetime_ms: d.i64()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        if v >= 3 {
            e.opt_string(self.owner_principal_type.as_ref(), f);
        } else {
            e.unsupported(
                "owner_principal_type",
                v,
                self.owner_principal_type.as_ref().is_none_or(|it| !it.is_empty()),
            );
        }
        if v >= 3 {
            e.opt_string(self.owner_principal_name.as_ref(), f);
        } else {
            e.unsupported(
                "owner_principal_name",
                v,
                self.owner_principal_name.as_ref().is_none_or(|it| !it.is_empty()),
            );
        }
        e.array(&self.renewers, v, f);
        e.i64(self.max_lifetime_ms);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreatableRenewers {
    pub principal_type: Str,
    pub principal_name: Str,
}

impl Wire for CreatableRenewers {
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

impl Message for CreateDelegationTokenRequest {
    const NAME: &'static str = "CreateDelegationTokenRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for CreateDelegationTokenRequest {
    const KEY: ApiKey = ApiKey::CreateDelegationToken;
    type Response = CreateDelegationTokenResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateDelegationTokenResponse {
    pub error_code: i16,
    pub principal_type: Str,
    pub principal_name: Str,
    /// In versions 3 and up.
    pub token_requester_principal_type: Str,
    /// In versions 3 and up.
    pub token_requester_principal_name: Str,
    pub issue_timestamp_ms: i64,
    pub expiry_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub token_id: Str,
    pub hmac: Bytes,
    pub throttle_time_ms: i32,
}

impl Wire for CreateDelegationTokenResponse {
    const BYTES_MIN: usize = 35;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            principal_type: d.string(f)?,
            principal_name: d.string(f)?,
            token_requester_principal_type: if v >= 3 { d.string(f)? } else { Str::default() },
            token_requester_principal_name: if v >= 3 { d.string(f)? } else { Str::default() },
            issue_timestamp_ms: d.i64()?,
            expiry_timestamp_ms: d.i64()?,
            max_timestamp_ms: d.i64()?,
            token_id: d.string(f)?,
            hmac: d.bytes(f)?,
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
        e.i64(self.issue_timestamp_ms);
        e.i64(self.expiry_timestamp_ms);
        e.i64(self.max_timestamp_ms);
        e.string(&self.token_id, f);
        e.bytes(&self.hmac, f);
        e.i32(self.throttle_time_ms);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for CreateDelegationTokenResponse {
    const NAME: &'static str = "CreateDelegationTokenResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 3);
    const FLEXIBLE_FROM: i16 = 2;
}
