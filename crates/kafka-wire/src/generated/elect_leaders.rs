//! `ElectLeaders`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ElectLeadersRequest {
    /// In versions 1 and up.
    pub election_type: i8,
    pub topic_partitions: Option<Vec<TopicPartitions>>,
    pub timeout_ms: i32,
}

impl Default for ElectLeadersRequest {
    fn default() -> Self {
        Self {
            election_type: 0,
            topic_partitions: Some(Vec::new()),
            timeout_ms: 60000,
        }
    }
}

impl Wire for ElectLeadersRequest {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            election_type: if v >= 1 { d.i8()? } else { 0 },
            topic_partitions: d.opt_array(v, f, true)?,
            timeout_ms: d.i32()?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        if v >= 1 {
            e.i8(self.election_type);
        } else {
            e.unsupported("election_type", v, self.election_type != 0);
        }
        e.opt_array(self.topic_partitions.as_ref(), v, f);
        e.i32(self.timeout_ms);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopicPartitions {
    pub topic: Str,
    pub partitions: Vec<i32>,
}

impl Wire for TopicPartitions {
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

impl Message for ElectLeadersRequest {
    const NAME: &'static str = "ElectLeadersRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}

impl Request for ElectLeadersRequest {
    const KEY: ApiKey = ApiKey::ElectLeaders;
    type Response = ElectLeadersResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ElectLeadersResponse {
    pub throttle_time_ms: i32,
    /// In versions 1 and up.
    pub error_code: i16,
    pub replica_election_results: Vec<ReplicaElectionResult>,
}

impl Wire for ElectLeadersResponse {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: if v >= 1 { d.i16()? } else { 0 },
            replica_election_results: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.throttle_time_ms);
        if v >= 1 {
            e.i16(self.error_code);
        } else {
            e.unsupported("error_code", v, self.error_code != 0);
        }
        e.array(&self.replica_election_results, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplicaElectionResult {
    pub topic: Str,
    pub partition_result: Vec<PartitionResult>,
}

impl Wire for ReplicaElectionResult {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            topic: d.string(f)?,
            partition_result: d.array(v, f)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.string(&self.topic, f);
        e.array(&self.partition_result, v, f);
        if f {
            e.tags(&[]);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PartitionResult {
    pub partition_id: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
}

impl Default for PartitionResult {
    fn default() -> Self {
        Self {
            partition_id: 0,
            error_code: 0,
            error_message: Some(Str::default()),
        }
    }
}

impl Wire for PartitionResult {
    const BYTES_MIN: usize = 8;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let f = v >= 2;
        let m = Self {
            partition_id: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(f, true)?,
        };
        if f {
            d.no_tags()?;
        }
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        let f = v >= 2;
        e.i32(self.partition_id);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), f);
        if f {
            e.tags(&[]);
        }
    }
}

impl Message for ElectLeadersResponse {
    const NAME: &'static str = "ElectLeadersResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 2;
}
