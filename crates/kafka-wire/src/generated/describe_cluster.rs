//! `DescribeCluster`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeClusterRequest {
    pub include_cluster_authorized_operations: bool,
    /// In versions 1 and up.
    pub endpoint_type: i8,
    /// In versions 2 and up.
    pub include_fenced_brokers: bool,
}

impl Default for DescribeClusterRequest {
    fn default() -> Self {
        Self {
            include_cluster_authorized_operations: false,
            endpoint_type: 1,
            include_fenced_brokers: false,
        }
    }
}

impl Wire for DescribeClusterRequest {
    const BYTES_MIN: usize = 2;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            include_cluster_authorized_operations: d.bool()?,
            endpoint_type: if v >= 1 { d.i8()? } else { 1 },
            include_fenced_brokers: if v >= 2 { d.bool()? } else { false },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.bool(self.include_cluster_authorized_operations);
        if v >= 1 {
            e.i8(self.endpoint_type);
        } else {
            e.unsupported("endpoint_type", v, self.endpoint_type != 1);
        }
        if v >= 2 {
            e.bool(self.include_fenced_brokers);
        } else {
            e.unsupported("include_fenced_brokers", v, self.include_fenced_brokers);
        }
        e.tags(&[]);
    }
}

impl Message for DescribeClusterRequest {
    const NAME: &'static str = "DescribeClusterRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for DescribeClusterRequest {
    const KEY: ApiKey = ApiKey::DescribeCluster;
    type Response = DescribeClusterResponse;
}

#[derive(Debug, Clone, PartialEq)]
pub struct DescribeClusterResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub error_message: Option<Str>,
    /// In versions 1 and up.
    pub endpoint_type: i8,
    pub cluster_id: Str,
    pub controller_id: i32,
    pub brokers: Vec<DescribeClusterBroker>,
    pub cluster_authorized_operations: i32,
}

impl Default for DescribeClusterResponse {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: 0,
            error_message: None,
            endpoint_type: 1,
            cluster_id: Str::default(),
            controller_id: -1,
            brokers: Vec::new(),
            cluster_authorized_operations: i32::MIN,
        }
    }
}

impl Wire for DescribeClusterResponse {
    const BYTES_MIN: usize = 18;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            error_message: d.opt_string(true, true)?,
            endpoint_type: if v >= 1 { d.i8()? } else { 1 },
            cluster_id: d.string(true)?,
            controller_id: d.i32()?,
            brokers: d.array(v, true)?,
            cluster_authorized_operations: d.i32()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.opt_string(self.error_message.as_ref(), true);
        if v >= 1 {
            e.i8(self.endpoint_type);
        } else {
            e.unsupported("endpoint_type", v, self.endpoint_type != 1);
        }
        e.string(&self.cluster_id, true);
        e.i32(self.controller_id);
        e.array(&self.brokers, v, true);
        e.i32(self.cluster_authorized_operations);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DescribeClusterBroker {
    pub broker_id: i32,
    pub host: Str,
    pub port: i32,
    pub rack: Option<Str>,
    /// In versions 2 and up.
    pub is_fenced: bool,
}

impl Wire for DescribeClusterBroker {
    const BYTES_MIN: usize = 11;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            broker_id: d.i32()?,
            host: d.string(true)?,
            port: d.i32()?,
            rack: d.opt_string(true, true)?,
            is_fenced: if v >= 2 { d.bool()? } else { false },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.broker_id);
        e.string(&self.host, true);
        e.i32(self.port);
        e.opt_string(self.rack.as_ref(), true);
        if v >= 2 {
            e.bool(self.is_fenced);
        } else {
            e.unsupported("is_fenced", v, self.is_fenced);
        }
        e.tags(&[]);
    }
}

impl Message for DescribeClusterResponse {
    const NAME: &'static str = "DescribeClusterResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}
