//! `ApiVersions`: the supported APIs and versions. Clients send it first.
//!
//! An unknown version is answered in version 0, with an error and the versions of `ApiVersions` itself, so
//! that the client can ask again (KIP-511).

use stafett_kafka_wire::messages::api_versions::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use stafett_kafka_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use stafett_kafka_wire::{ApiKey, Decoder, ErrorCode, Str};

use std::sync::atomic::Ordering;

use super::SERVED;
use super::quorum::FEATURES;
use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// Name prefixes of clients that do not block while a heartbeat is unanswered: Kafka's own, librdkafka, and
/// clients built on it. Some others stop until they are answered.
const PATIENT: &[&str] = &["apache-kafka-java", "librdkafka", "confluent-kafka-"];

pub(super) fn api_versions(
    context: &RequestContext,
    call: Call,
    client: Option<&str>,
    body: Decoder,
) -> HandlerResult {
    let failed = |code| context.shared.metrics.error(call.api, code);
    if !ApiKey::ApiVersions.versions().contains(call.version) {
        let response = ApiVersionsResponse {
            error_code: failed(ErrorCode::UnsupportedVersion),
            api_keys: vec![version_of(ApiKey::ApiVersions)],
            ..ApiVersionsResponse::default()
        };
        let call = Call { version: 0, ..call };
        return Ok(call.answer::<ApiVersionsRequest>(&response)?.into());
    }
    let request: ApiVersionsRequest = call.read(body)?;
    let software = (&*request.client_software_name, &*request.client_software_version);
    context.introduce(client, software);
    let named = |text: &Str| call.version < 3 || is_software_name(text);
    let is_patient = PATIENT
        .iter()
        .any(|name| request.client_software_name.starts_with(name));
    context.is_patient.store(is_patient, Ordering::Relaxed);
    let response = if named(&request.client_software_name) && named(&request.client_software_version) {
        ApiVersionsResponse {
            api_keys: SERVED.iter().map(|(api, _)| version_of(*api)).collect(),
            ..features(call.version)
        }
    } else {
        ApiVersionsResponse {
            error_code: failed(ErrorCode::InvalidRequest),
            ..ApiVersionsResponse::default()
        }
    };
    Ok(call.answer::<ApiVersionsRequest>(&response)?.into())
}

/// Returns the finalized features. Requests before version 4 accept no feature with minimum version 0.
fn features(version: i16) -> ApiVersionsResponse {
    if version < 3 {
        return ApiVersionsResponse::default();
    }
    let supported = FEATURES.iter().filter(|feature| version >= 4 || feature.min > 0);
    let supported = supported.map(|feature| SupportedFeatureKey {
        name: feature.name.into(),
        min_version: feature.min,
        max_version: feature.max,
    });
    let finalized = FEATURES.iter().map(|feature| FinalizedFeatureKey {
        name: feature.name.into(),
        max_version_level: feature.level,
        min_version_level: feature.level,
    });
    ApiVersionsResponse {
        supported_features: supported.collect(),
        finalized_features_epoch: 0,
        finalized_features: finalized.collect(),
        ..ApiVersionsResponse::default()
    }
}

fn version_of(api: ApiKey) -> ApiVersion {
    let versions = api.advertised_versions();
    ApiVersion {
        api_key: api.code(),
        min_version: versions.min,
        max_version: versions.max,
    }
}

/// True for letters and digits with `-` and `.` between them.
fn is_software_name(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first())
        && is_end(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}
