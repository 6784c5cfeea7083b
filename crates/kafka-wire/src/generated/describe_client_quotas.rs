//! `DescribeClientQuotas`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeClientQuotasRequest {
    pub components: Vec<ComponentData>,
    pub strict: bool,
}

impl Wire for DescribeClientQuotasRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            components: d.array(v, f)?,
            strict: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.array(&self.components, v, f);
        e.bool(self.strict);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ComponentData {
    pub entity_type: Str,
    pub match_type: i8,
    pub match_: Option<Str>,
}

impl Default for ComponentData {
    fn default() -> Self {
        Self {
            entity_type: Str::default(),
            match_type: 0,
            match_: Some(Str::default()),
        }
    }
}

impl Wire for ComponentData {
    const BYTES_MIN: usize = 4;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entity_type: d.string(f)?,
            match_type: d.i8()?,
            match_: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.string(&self.entity_type, f);
        e.i8(self.match_type);
        e.opt_string(self.match_.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeClientQuotasRequest {
    const NAME: &'static str = "DescribeClientQuotasRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 1;
}

impl Request for DescribeClientQuotasRequest {
    const KEY: ApiKey = ApiKey::DescribeClientQuotas;
    type Response = DescribeClientQuotasResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeClientQuotasResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    pub entries: Option<Vec<EntryData>>,
}

impl Default for DescribeClientQuotasResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            entries: Some(Vec::new()),
        }
    }
}

impl Wire for DescribeClientQuotasResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
            entries: d.opt_array(v, f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        e.opt_array(self.entries.as_ref(), v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct EntryData {
    pub entity: Vec<EntityData>,
    pub values: Vec<ValueData>,
}

impl Wire for EntryData {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            entity: d.array(v, f)?,
            values: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 1;
        e.array(&self.entity, v, f);
        e.array(&self.values, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct EntityData {
    pub entity_type: Str,
    pub entity_name: Option<Str>,
}

impl Default for EntityData {
    fn default() -> Self {
        Self {
            entity_type: Str::default(),
            entity_name: Some(Str::default()),
        }
    }
}

impl Wire for EntityData {
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
pub struct ValueData {
    pub key: Str,
    pub value: f64,
}

impl Wire for ValueData {
    const BYTES_MIN: usize = 10;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 1;
        let m = Self {
            key: d.string(f)?,
            value: d.f64()?,
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
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeClientQuotasResponse {
    const NAME: &'static str = "DescribeClientQuotasResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 1);
    const FLEXIBLE_FROM: i16 = 1;
}
