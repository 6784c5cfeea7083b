//! `AlterReplicaLogDirs`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDirsRequest {
    pub dirs: Vec<AlterReplicaLogDir>,
}

impl Wire for AlterReplicaLogDirsRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self { dirs: d.array(v, f)? };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.array(&self.dirs, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDir {
    pub path: Str,
    pub topics: Vec<AlterReplicaLogDirTopic>,
}

impl Wire for AlterReplicaLogDir {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            path: d.string(f)?,
            topics: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.path, f);
        e.array(&self.topics, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDirTopic {
    pub name: Str,
    pub partitions: Vec<i32>,
}

impl Wire for AlterReplicaLogDirTopic {
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

impl Message for AlterReplicaLogDirsRequest {
    const NAME: &'static str = "AlterReplicaLogDirsRequest";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for AlterReplicaLogDirsRequest {
    const KEY: ApiKey = ApiKey::AlterReplicaLogDirs;
    type Response = AlterReplicaLogDirsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDirsResponse {
    pub throttle_time_ms: i32,
    pub results: Vec<AlterReplicaLogDirTopicResult>,
}

impl Wire for AlterReplicaLogDirsResponse {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
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
        e.array(&self.results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDirTopicResult {
    pub topic_name: Str,
    pub partitions: Vec<AlterReplicaLogDirPartitionResult>,
}

impl Wire for AlterReplicaLogDirTopicResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            topic_name: d.string(f)?,
            partitions: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.topic_name, f);
        e.array(&self.partitions, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlterReplicaLogDirPartitionResult {
    pub partition_index: i32,
    pub error_code: i16,
}

impl Wire for AlterReplicaLogDirPartitionResult {
    const BYTES_MIN: usize = 6;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            partition_index: d.i32()?,
            error_code: d.i16()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.partition_index);
        e.i16(self.error_code);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for AlterReplicaLogDirsResponse {
    const NAME: &'static str = "AlterReplicaLogDirsResponse";
    const VERSIONS: VersionRange = VersionRange::new(1, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
