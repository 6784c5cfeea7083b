//! `UpdateFeatures`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct UpdateFeaturesRequest {
    pub timeout_ms: i32,
    pub feature_updates: Vec<FeatureUpdateKey>,
    /// In versions 1 and up.
    pub validate_only: bool,
}

impl Default for UpdateFeaturesRequest {
    fn default() -> Self {
        Self {
            timeout_ms: 60000,
            feature_updates: Vec::new(),
            validate_only: false,
        }
    }
}

impl Wire for UpdateFeaturesRequest {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            timeout_ms: d.i32()?,
            feature_updates: d.array(v, true)?,
            validate_only: if v >= 1 { d.bool()? } else { false },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.timeout_ms);
        e.array(&self.feature_updates, v, true);
        if v >= 1 {
            e.bool(self.validate_only);
        } else {
            e.unsupported("validate_only", v, self.validate_only);
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FeatureUpdateKey {
    pub feature: Str,
    pub max_version_level: i16,
    /// In versions 0.
    pub allow_downgrade: bool,
    /// In versions 1 and up.
    pub upgrade_type: i8,
}

impl Default for FeatureUpdateKey {
    fn default() -> Self {
        Self {
            feature: Str::default(),
            max_version_level: 0,
            allow_downgrade: false,
            upgrade_type: 1,
        }
    }
}

impl Wire for FeatureUpdateKey {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            feature: d.string(true)?,
            max_version_level: d.i16()?,
            allow_downgrade: if v <= 0 { d.bool()? } else { false },
            upgrade_type: if v >= 1 { d.i8()? } else { 1 },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.string(&self.feature, true);
        e.i16(self.max_version_level);
        if v <= 0 {
            e.bool(self.allow_downgrade);
        } else {
            e.unsupported("allow_downgrade", v, self.allow_downgrade);
        }
        if v >= 1 {
            e.i8(self.upgrade_type);
        } else {
            e.unsupported("upgrade_type", v, self.upgrade_type != 1);
        }
        e.tags(&[]);
    }
}

impl Message for UpdateFeaturesRequest {
    const NAME: &'static str = "UpdateFeaturesRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for UpdateFeaturesRequest {
    const KEY: ApiKey = ApiKey::UpdateFeatures;
    type Response = UpdateFeaturesResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct UpdateFeaturesResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    /// In versions 0 to 1.
    pub results: Vec<UpdatableFeatureResult>,
}

impl Default for UpdateFeaturesResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: Some(Str::default()),
            results: Vec::new(),
        }
    }
}

impl Wire for UpdateFeaturesResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            results: if v <= 1 { d.array(v, true)? } else { Vec::new() },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        if v <= 1 {
            e.array(&self.results, v, true);
        }
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct UpdatableFeatureResult {
    pub feature: Str,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for UpdatableFeatureResult {
    fn default() -> Self {
        Self {
            feature: Str::default(),
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for UpdatableFeatureResult {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            feature: d.string(true)?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.feature, true);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        e.tags(&[]);
    }
}

impl Message for UpdateFeaturesResponse {
    const NAME: &'static str = "UpdateFeaturesResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}
