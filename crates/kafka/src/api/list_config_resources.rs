//! `ListConfigResources`: resources that have settings (KIP-1142).

use std::sync::Arc;

use stafett_broker::Scope;
use stafett_kafka_wire::messages::list_config_resources::ConfigResource;
use stafett_kafka_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::context::{KafkaContext, large_response};
use crate::resources::{BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC};
use crate::response_queue::{EncodedResponse, PendingResponse};
use crate::session::{Call, Close, Context};
use crate::settings::BROKER_ID;

const ALL: [i8; 5] = [TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP];
/// Topics from which on an answer counts as large.
const LARGE_TOPICS: usize = 10_000;

pub(super) fn list_config_resources(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
    let request: ListConfigResourcesRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Task(Box::pin(async move {
        // Version 0 asks only for client metrics subscriptions.
        let kinds = match request.resource_types {
            _ if call.version == 0 => vec![CLIENT_METRICS],
            kinds if kinds.is_empty() => ALL.to_vec(),
            kinds => kinds,
        };
        let is_known = kinds.iter().all(|kind| ALL.contains(kind));
        let is_large = kinds.contains(&TOPIC) && shared.broker.topics().len() >= LARGE_TOPICS;
        let turn = if is_large {
            large_response(&shared).await
        } else {
            None
        };
        let response = if is_known {
            let listed = ALL.into_iter().filter(|kind| kinds.contains(kind));
            ListConfigResourcesResponse {
                config_resources: listed.flat_map(|kind| list(&shared, kind)).collect(),
                ..ListConfigResourcesResponse::default()
            }
        } else {
            ListConfigResourcesResponse {
                error_code: shared.metrics.error(call.api, ErrorCode::UnsupportedVersion),
                ..ListConfigResourcesResponse::default()
            }
        };
        let reply = EncodedResponse::from(call.encode::<ListConfigResourcesRequest>(&response)?);
        Ok(EncodedResponse { turn, ..reply })
    })))
}

fn list(shared: &KafkaContext, kind: i8) -> Vec<ConfigResource> {
    let named = |resource_name| ConfigResource {
        resource_name,
        resource_type: kind,
    };
    match kind {
        TOPIC => {
            let topics = shared.broker.topics().all();
            topics
                .iter()
                .map(|topic| named(Str::copy_from(&topic.name)))
                .collect()
        }
        BROKER | LOGGER => vec![named(BROKER_ID.to_string().into())],
        GROUP => {
            let scopes = shared.broker.scopes().into_iter();
            scopes
                .filter_map(|scope| match scope {
                    Scope::Group(name) => Some(named(Str::copy_from(&name))),
                    Scope::Cluster | Scope::Broker => None,
                })
                .collect()
        }
        _ => Vec::new(),
    }
}
