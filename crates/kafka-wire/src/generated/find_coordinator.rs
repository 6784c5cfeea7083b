//! `FindCoordinator`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FindCoordinatorRequest {
    /// In versions 0 to 3.
    pub key: Str,
    /// In versions 1 and up.
    pub key_type: i8,
    /// In versions 4 and up.
    pub coordinator_keys: Vec<Str>,
}

impl Wire for FindCoordinatorRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            key: if v <= 3 { d.string(f)? } else { Str::default() },
            key_type: if v >= 1 { d.i8()? } else { 0 },
            coordinator_keys: if v >= 4 { d.strings(f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v <= 3 {
            e.string(&self.key, f);
        } else {
            e.unsupported("key", v, !self.key.is_empty());
        }
        if v >= 1 {
            e.i8(self.key_type);
        } else {
            e.unsupported("key_type", v, self.key_type != 0);
        }
        if v >= 4 {
            e.strings(&self.coordinator_keys, f);
        } else {
            e.unsupported("coordinator_keys", v, !self.coordinator_keys.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for FindCoordinatorRequest {
    const NAME: &'static str = "FindCoordinatorRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 6);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for FindCoordinatorRequest {
    const KEY: ApiKey = ApiKey::FindCoordinator;
    type Response = FindCoordinatorResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct FindCoordinatorResponse {
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    /// In versions 0 to 3.
    pub error_code: i16,
    /// In versions 1 to 3.
    pub error_message: Option<Str>,
    /// In versions 0 to 3.
    pub node_id: i32,
    /// In versions 0 to 3.
    pub host: Str,
    /// In versions 0 to 3.
    pub port: i32,
    /// In versions 4 and up.
    pub coordinators: Vec<Coordinator>,
}

impl Default for FindCoordinatorResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            node_id: 0,
            host: Str::default(),
            port: 0,
            coordinators: Vec::new(),
        }
    }
}

impl Wire for FindCoordinatorResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            error_code: if v <= 3 { d.i16()? } else { 0 },
            error_message: if (1..=3).contains(&v) {
                d.opt_string(f, true)?
            } else {
                Some(Str::default())
            },
            node_id: if v <= 3 { d.i32()? } else { 0 },
            host: if v <= 3 { d.string(f)? } else { Str::default() },
            port: if v <= 3 { d.i32()? } else { 0 },
            coordinators: if v >= 4 { d.array(v, f)? } else { Vec::new() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v >= 1 {
            e.i32(self.throttle_time_ms);
        }
        if v <= 3 {
            e.i16(self.error_code);
        } else {
            e.unsupported("error_code", v, self.error_code != 0);
        }
        if (1..=3).contains(&v) {
            e.opt_string(self.error_message.as_ref(), f);
        }
        if v <= 3 {
            e.i32(self.node_id);
        } else {
            e.unsupported("node_id", v, self.node_id != 0);
        }
        if v <= 3 {
            e.string(&self.host, f);
        } else {
            e.unsupported("host", v, !self.host.is_empty());
        }
        if v <= 3 {
            e.i32(self.port);
        } else {
            e.unsupported("port", v, self.port != 0);
        }
        if v >= 4 {
            e.array(&self.coordinators, v, f);
        } else {
            e.unsupported("coordinators", v, !self.coordinators.is_empty());
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Coordinator {
    pub key: Str,
    pub node_id: i32,
    pub host: Str,
    pub port: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self {
            key: Str::default(),
            node_id: 0,
            host: Str::default(),
            port: 0,
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for Coordinator {
    const BYTES_MIN: usize = 14;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            key: d.string(true)?,
            node_id: d.i32()?,
            host: d.string(true)?,
            port: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.key, true);
        e.i32(self.node_id);
        e.string(&self.host, true);
        e.i32(self.port);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for FindCoordinatorResponse {
    const NAME: &'static str = "FindCoordinatorResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 6);
    const FLEXIBLE_FROM: i16 = 3;
}
