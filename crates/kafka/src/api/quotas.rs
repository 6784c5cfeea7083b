//! Client quotas: there are none, and none can be set.

use std::collections::HashSet;

use stafett_kafka_wire::messages::alter_client_quotas::{ResponseEntityData, ResponseEntryData};
use stafett_kafka_wire::messages::describe_client_quotas::ComponentData;
use stafett_kafka_wire::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

pub(super) fn describe_client_quotas(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeClientQuotasRequest = call.read(body)?;
    let (code, message, entries) = match check(&request.components) {
        Ok(()) => (ErrorCode::None, String::new(), Some(Vec::new())),
        Err((code, message)) => (code, message, None),
    };
    let response = DescribeClientQuotasResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
        error_message: Some(message.into()),
        entries,
    };
    Ok(call.answer::<DescribeClientQuotasRequest>(&response)?.into())
}

fn check(components: &[ComponentData]) -> Result<(), (ErrorCode, String)> {
    let invalid = |message: &str| Err((ErrorCode::InvalidRequest, message.to_owned()));
    let mut seen = HashSet::new();
    for component in components {
        let kind = &*component.entity_type;
        match (component.match_type, &component.match_) {
            (EXACT, None) => {
                return invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.");
            }
            (DEFAULT, Some(_)) => {
                return invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.");
            }
            (ANY, Some(_)) => {
                return invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.");
            }
            (EXACT | DEFAULT | ANY, _) => {}
            (other, _) => return invalid(&format!("Unknown match type {other}")),
        }
        match kind {
            "" => return invalid("Invalid empty entity type."),
            "user" | "client-id" | "ip" => {}
            other => {
                let message = format!("Unsupported entity type {other}");
                return Err((ErrorCode::UnsupportedVersion, message));
            }
        }
        if !seen.insert(kind) {
            return invalid(&format!(
                "Entity type {kind} cannot appear more than once in the filter."
            ));
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        return invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or \
             clientId filter component.",
        );
    }
    Ok(())
}

pub(super) fn alter_client_quotas(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AlterClientQuotasRequest = call.read(body)?;
    let entries = request.entries.into_iter().map(|entry| {
        // Removing a quota that does not exist changes nothing.
        let is_harmless = entry.ops.iter().all(|op| op.remove);
        let code = if is_harmless {
            ErrorCode::None
        } else {
            ErrorCode::InvalidRequest
        };
        let entity = entry.entity.into_iter().map(|entity| ResponseEntityData {
            entity_type: entity.entity_type,
            entity_name: entity.entity_name,
        });
        ResponseEntryData {
            error_code: context.shared.metrics.error(call.api, code),
            error_message: (!is_harmless).then(|| "quotas of clients are not served".into()),
            entity: entity.collect(),
        }
    });
    let response = AlterClientQuotasResponse {
        throttle_time_ms: 0,
        entries: entries.collect(),
    };
    Ok(call.answer::<AlterClientQuotasRequest>(&response)?.into())
}
