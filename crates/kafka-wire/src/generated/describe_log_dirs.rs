//! `DescribeLogDirs`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeLogDirsRequest {
    pub topics: Option<Vec<DescribableLogDirTopic>>,
}

impl Default for DescribeLogDirsRequest {
    fn default() -> Self {
        Self {
            topics: Some(Vec::new()),
        }
    }
}

impl Wire for DescribeLogDirsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            topics: d.opt_array(v, f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.opt_array(self.topics.as_ref(), v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribableLogDirTopic {
    pub topic: Str,
    pub partitions: Vec<i32>,
}

impl Wire for DescribableLogDirTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            topic: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.topic, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeLogDirsRequest {
    const NAME: &'static str = "DescribeLogDirsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 5);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for DescribeLogDirsRequest {
    const KEY: ApiKey = ApiKey::DescribeLogDirs;
    type Response = DescribeLogDirsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeLogDirsResponse {
    pub throttle_time_ms: i32,
    /// In versions 3 and up.
    pub error_code: i16,
    pub results: Vec<DescribeLogDirsResult>,
}

impl Wire for DescribeLogDirsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: if v >= 3 { d.i16()? } else { 0 },
            results: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        if v >= 3 {
            e.i16(self.error_code);
        }
        e.array(&self.results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeLogDirsResult {
    pub error_code: i16,
    pub log_dir: Str,
    pub topics: Vec<DescribeLogDirsTopic>,
    /// In versions 4 and up.
    pub total_bytes: i64,
    /// In versions 4 and up.
    pub usable_bytes: i64,
    /// In versions 5 and up.
    pub is_cordoned: bool,
}

impl Default for DescribeLogDirsResult {
    fn default() -> Self {
        Self {
            error_code: 0,
            log_dir: Str::default(),
            topics: Vec::new(),
            total_bytes: -1,
            usable_bytes: -1,
            is_cordoned: false,
        }
    }
}

impl Wire for DescribeLogDirsResult {
    const BYTES_MIN: usize = 5;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            error_code: d.i16()?,
            log_dir: d.string(f)?,
            topics: d.array(v, f)?,
            total_bytes: if v >= 4 { d.i64()? } else { -1 },
            usable_bytes: if v >= 4 { d.i64()? } else { -1 },
            is_cordoned: if v >= 5 { d.bool()? } else { false },
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i16(self.error_code);
        e.string(&self.log_dir, f);
        e.array(&self.topics, v, f);
        if v >= 4 {
            e.i64(self.total_bytes);
        }
        if v >= 4 {
            e.i64(self.usable_bytes);
        }
        if v >= 5 {
            e.bool(self.is_cordoned);
        }
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeLogDirsTopic {
    pub name: Str,
    pub partitions: Vec<DescribeLogDirsPartition>,
}

impl Wire for DescribeLogDirsTopic {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            name: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeLogDirsPartition {
    pub partition_index: i32,
    pub partition_size: i64,
    pub offset_lag: i64,
    pub is_future_key: bool,
}

impl Wire for DescribeLogDirsPartition {
    const BYTES_MIN: usize = 21;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            partition_index: d.i32()?,
            partition_size: d.i64()?,
            offset_lag: d.i64()?,
            is_future_key: d.bool()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.partition_index);
        e.i64(self.partition_size);
        e.i64(self.offset_lag);
        e.bool(self.is_future_key);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for DescribeLogDirsResponse {
    const NAME: &'static str = "DescribeLogDirsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 5);
    const FLEXIBLE_FROM: i16 = 2;
}
