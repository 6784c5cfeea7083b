//! `ApiVersions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ApiVersionsRequest {
    /// In versions 3 and up.
    pub client_software_name: Str,
    /// In versions 3 and up.
    pub client_software_version: Str,
}

impl Wire for ApiVersionsRequest {
    const BYTES_MIN: usize = 0;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            client_software_name: if v >= 3 { d.string(f)? } else { Str::default() },
            client_software_version: if v >= 3 { d.string(f)? } else { Str::default() },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        if v >= 3 {
            e.string(&self.client_software_name, f);
        }
        if v >= 3 {
            e.string(&self.client_software_version, f);
        }
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ApiVersionsRequest {
    const NAME: &'static str = "ApiVersionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 3;
}

impl Request for ApiVersionsRequest {
    const KEY: ApiKey = ApiKey::ApiVersions;
    type Response = ApiVersionsResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ApiVersionsResponse {
    pub error_code: i16,
    pub api_keys: Vec<ApiVersion>,
    /// In versions 1 and up.
    pub throttle_time_ms: i32,
    /// In versions 3 and up.
    pub supported_features: Vec<SupportedFeatureKey>,
    /// In versions 3 and up.
    pub finalized_features_epoch: i64,
    /// In versions 3 and up.
    pub finalized_features: Vec<FinalizedFeatureKey>,
    /// In versions 3 and up.
    pub zk_migration_ready: bool,
}

impl Default for ApiVersionsResponse {
    fn default() -> Self {
        Self {
            error_code: 0,
            api_keys: Vec::new(),
            throttle_time_ms: 0,
            supported_features: Vec::new(),
            finalized_features_epoch: -1,
            finalized_features: Vec::new(),
            zk_migration_ready: false,
        }
    }
}

impl Wire for ApiVersionsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let mut m = Self {
            error_code: d.i16()?,
            api_keys: d.array(v, f)?,
            throttle_time_ms: if v >= 1 { d.i32()? } else { 0 },
            supported_features: Vec::new(),
            finalized_features_epoch: -1,
            finalized_features: Vec::new(),
            zk_migration_ready: false,
        };
        if f {
            d.tags(&mut |d, tag| {
                match tag {
                    0 => m.supported_features = d.array(v, true)?,
                    1 => m.finalized_features_epoch = d.i64()?,
                    2 => m.finalized_features = d.array(v, true)?,
                    3 => m.zk_migration_ready = d.bool()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i16(self.error_code);
        e.array(&self.api_keys, v, f);
        if v >= 1 {
            e.i32(self.throttle_time_ms);
        }
        if f {
            let has_supported_features = !self.supported_features.is_empty();
            let has_finalized_features_epoch = self.finalized_features_epoch != -1;
            let has_finalized_features = !self.finalized_features.is_empty();
            let has_zk_migration_ready = self.zk_migration_ready;
            e.tags(&[
                has_supported_features,
                has_finalized_features_epoch,
                has_finalized_features,
                has_zk_migration_ready,
            ]);
            e.tag(0, has_supported_features, |e| {
                e.array(&self.supported_features, v, true);
            });
            e.tag(1, has_finalized_features_epoch, |e| {
                e.i64(self.finalized_features_epoch);
            });
            e.tag(2, has_finalized_features, |e| {
                e.array(&self.finalized_features, v, true);
            });
            e.tag(3, has_zk_migration_ready, |e| {
                e.bool(self.zk_migration_ready);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ApiVersion {
    pub api_key: i16,
    pub min_version: i16,
    pub max_version: i16,
}

impl Wire for ApiVersion {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 3;
        let m = Self {
            api_key: d.i16()?,
            min_version: d.i16()?,
            max_version: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 3;
        e.i16(self.api_key);
        e.i16(self.min_version);
        e.i16(self.max_version);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SupportedFeatureKey {
    pub name: Str,
    pub min_version: i16,
    pub max_version: i16,
}

impl Wire for SupportedFeatureKey {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            min_version: d.i16()?,
            max_version: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.i16(self.min_version);
        e.i16(self.max_version);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct FinalizedFeatureKey {
    pub name: Str,
    pub max_version_level: i16,
    pub min_version_level: i16,
}

impl Wire for FinalizedFeatureKey {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            name: d.string(true)?,
            max_version_level: d.i16()?,
            min_version_level: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.name, true);
        e.i16(self.max_version_level);
        e.i16(self.min_version_level);
        e.tags(&[]);
    }
}

impl Message for ApiVersionsResponse {
    const NAME: &'static str = "ApiVersionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 4);
    const FLEXIBLE_FROM: i16 = 3;
}
