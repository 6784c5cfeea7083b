//! `GetTelemetrySubscriptions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct GetTelemetrySubscriptionsRequest {
    pub client_instance_id: Uuid,
}

impl Wire for GetTelemetrySubscriptionsRequest {
    const BYTES_MIN: usize = 17;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            client_instance_id: d.uuid()?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.uuid(self.client_instance_id);
        e.tags(&[]);
    }
}

impl Message for GetTelemetrySubscriptionsRequest {
    const NAME: &'static str = "GetTelemetrySubscriptionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for GetTelemetrySubscriptionsRequest {
    const KEY: ApiKey = ApiKey::GetTelemetrySubscriptions;
    type Response = GetTelemetrySubscriptionsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct GetTelemetrySubscriptionsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub client_instance_id: Uuid,
    pub subscription_id: i32,
    pub accepted_compression_types: Vec<i8>,
    pub push_interval_ms: i32,
    pub telemetry_max_bytes: i32,
    pub delta_temporality: bool,
    pub requested_metrics: Vec<Str>,
}

impl Wire for GetTelemetrySubscriptionsResponse {
    const BYTES_MIN: usize = 38;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            client_instance_id: d.uuid()?,
            subscription_id: d.i32()?,
            accepted_compression_types: d.array(v, true)?,
            push_interval_ms: d.i32()?,
            telemetry_max_bytes: d.i32()?,
            delta_temporality: d.bool()?,
            requested_metrics: d.strings(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.uuid(self.client_instance_id);
        e.i32(self.subscription_id);
        e.array(&self.accepted_compression_types, v, true);
        e.i32(self.push_interval_ms);
        e.i32(self.telemetry_max_bytes);
        e.bool(self.delta_temporality);
        e.strings(&self.requested_metrics, true);
        e.tags(&[]);
    }
}

impl Message for GetTelemetrySubscriptionsResponse {
    const NAME: &'static str = "GetTelemetrySubscriptionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 0);
    const FLEXIBLE_FROM: i16 = 0;
}
