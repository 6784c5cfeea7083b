//! `AlterClientQuotas`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterClientQuotasRequest {
    pub entries: Vec<RequestEntryData>,
    pub validate_only: bool,
}

impl Wire for AlterClientQuotasRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entries: d.array(v, f)?,
            validate_only: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.array(&self.entries, v, f);
        e.bool(self.validate_only);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestEntryData {
    pub entity: Vec<RequestEntityData>,
    pub ops: Vec<OpData>,
}

impl Wire for RequestEntryData {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entity: d.array(v, f)?,
            ops: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.array(&self.entity, v, f);
        e.array(&self.ops, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RequestEntityData {
    pub entity_type: Str,
    pub entity_name: Option<Str>,
}

impl Default for RequestEntityData {
    fn default() -> Self {
        Self {
            entity_type: Str::default(),
            entity_name: Some(Str::default()),
        }
    }
}

impl Wire for RequestEntityData {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entity_type: d.string(f)?,
            entity_name: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.string(&self.entity_type, f);
        e.opt_string(self.entity_name.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpData {
    pub key: Str,
    pub value: f64,
    pub remove: bool,
}

impl Wire for OpData {
    const BYTES_MIN: usize = 11;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            key: d.string(f)?,
            value: d.f64()?,
            remove: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.string(&self.key, f);
        e.f64(self.value);
        e.bool(self.remove);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AlterClientQuotasRequest {
    const NAME: &'static str = "AlterClientQuotasRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for AlterClientQuotasRequest {
    const KEY: ApiKey = ApiKey::AlterClientQuotas;
    type Response = AlterClientQuotasResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterClientQuotasResponse {
    pub throttle_time_ms: i32,
    pub entries: Vec<ResponseEntryData>,
}

impl Wire for AlterClientQuotasResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            throttle_time_ms: d.i32()?,
            entries: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.i32(self.throttle_time_ms);
        e.array(&self.entries, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResponseEntryData {
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub entity: Vec<ResponseEntityData>,
}

impl Default for ResponseEntryData {
    fn default() -> Self {
        Self {
            error_code: 0,
            error_message: Some(Str::default()),
            entity: Vec::new(),
        }
    }
}

impl Wire for ResponseEntryData {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            entity: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.array(&self.entity, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResponseEntityData {
    pub entity_type: Str,
    pub entity_name: Option<Str>,
}

impl Default for ResponseEntityData {
    fn default() -> Self {
        Self {
            entity_type: Str::default(),
            entity_name: Some(Str::default()),
        }
    }
}

impl Wire for ResponseEntityData {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entity_type: d.string(f)?,
            entity_name: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.string(&self.entity_type, f);
        e.opt_string(self.entity_name.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AlterClientQuotasResponse {
    const NAME: &'static str = "AlterClientQuotasResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 1;
}
