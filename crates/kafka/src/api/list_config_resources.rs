//! `ListConfigResources`: resources that have settings (KIP-1142).

use stafett_broker::Scope;
use stafett_kafka_wire::messages::list_config_resources::ConfigResource;
use stafett_kafka_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::write_sized;
use crate::resources::{BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC};
use crate::response_queue::{HandlerResult, PendingResponse};

const ALL: [i8; 5] = [TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP];
/// Topics from which on an answer counts as large.
const LARGE_TOPICS: usize = 10_000;

pub(super) fn list_config_resources(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListConfigResourcesRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        let shared = &context.shared;
        // Version 0 asks only for client metrics subscriptions.
        let kinds = match request.resource_types {
            _ if call.version == 0 => vec![CLIENT_METRICS],
            kinds if kinds.is_empty() => ALL.to_vec(),
            kinds => kinds,
        };
        let is_known = kinds.iter().all(|kind| ALL.contains(kind));
        let is_large = kinds.contains(&TOPIC) && shared.broker.topics().len() >= LARGE_TOPICS;
        write_sized(context, is_large, move |context| {
            let shared = &*context.shared;
            let mut response = ListConfigResourcesResponse::default();
            if is_known {
                let listed = ALL.into_iter().filter(|kind| kinds.contains(kind));
                response.config_resources = listed.flat_map(|kind| list(shared, kind)).collect();
            } else {
                response.error_code = shared.metrics.error(call.api, ErrorCode::UnsupportedVersion);
            }
            call.answer::<ListConfigResourcesRequest>(&response)
        })
    }))
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
        BROKER | LOGGER => vec![named(shared.settings.broker_id.to_string().into())],
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
