//! Client metrics (KIP-714): none are collected. As in Kafka without a collector, these requests are answered
//! but not listed by `ApiVersions`, so that clients do not send them.

use stafett_kafka_wire::messages::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
    PushTelemetryResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Uuid};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// Interval at which a client asks again, in ms.
const INTERVAL: i32 = 300_000;
const BYTES_MAX: i32 = 1 << 20;
/// Id of the only subscription, which is empty.
const SUBSCRIPTION: i32 = 1;
/// Codecs by the protocol's numbers, preferred first: zstd, lz4, gzip, snappy.
const CODECS: [i8; 4] = [4, 3, 1, 2];

pub(super) fn get_telemetry_subscriptions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: GetTelemetrySubscriptionsRequest = call.read(body)?;
    let client_instance_id = if request.client_instance_id.is_zero() {
        Uuid::from(uuid::Uuid::new_v4().as_u128())
    } else {
        request.client_instance_id
    };
    let response = GetTelemetrySubscriptionsResponse {
        client_instance_id,
        subscription_id: SUBSCRIPTION,
        accepted_compression_types: CODECS.to_vec(),
        push_interval_ms: INTERVAL,
        telemetry_max_bytes: BYTES_MAX,
        delta_temporality: true,
        ..GetTelemetrySubscriptionsResponse::default()
    };
    Ok(call.answer::<GetTelemetrySubscriptionsRequest>(&response)?.into())
}

pub(super) fn push_telemetry(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: PushTelemetryRequest = call.read(body)?;
    let code = if request.client_instance_id.is_zero() {
        ErrorCode::InvalidRequest
    } else if request.subscription_id == SUBSCRIPTION {
        ErrorCode::None
    } else {
        ErrorCode::UnknownSubscriptionId
    };
    let response = PushTelemetryResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
    };
    Ok(call.answer::<PushTelemetryRequest>(&response)?.into())
}
