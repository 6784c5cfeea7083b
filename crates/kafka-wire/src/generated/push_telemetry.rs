//! `PushTelemetry`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PushTelemetryRequest {
    pub client_instance_id: Uuid,
    pub subscription_id: i32,
    pub terminating: bool,
    pub compression_type: i8,
    pub metrics: Bytes,
}

impl Wire for PushTelemetryRequest {
    const BYTES_MIN: usize = 24;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            client_instance_id: d.uuid()?,
            subscription_id: d.i32()?,
            terminating: d.bool()?,
            compression_type: d.i8()?,
            metrics: d.bytes(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.uuid(self.client_instance_id);
        e.i32(self.subscription_id);
        e.bool(self.terminating);
        e.i8(self.compression_type);
        e.bytes(&self.metrics, true);
        e.tags(&[]);
    }
}

impl Message for PushTelemetryRequest {
    const NAME: &'static str = "PushTelemetryRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for PushTelemetryRequest {
    const KEY: ApiKey = ApiKey::PushTelemetry;
    type Response = PushTelemetryResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PushTelemetryResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
}

impl Wire for PushTelemetryResponse {
    const BYTES_MIN: usize = 7;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.tags(&[]);
    }
}

impl Message for PushTelemetryResponse {
    const NAME: &'static str = "PushTelemetryResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
