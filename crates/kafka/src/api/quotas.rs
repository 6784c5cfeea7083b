//! Client quotas: rates of bytes of users and clients. Other kinds of quotas are refused by name.

use std::collections::HashSet;

use stafett_access::{Entity, Part, Rate, Rates};
use stafett_broker::NewQuota;
use stafett_kafka_wire::messages::alter_client_quotas::{
    RequestEntityData, RequestEntryData, ResponseEntityData, ResponseEntryData,
};
use stafett_kafka_wire::messages::describe_client_quotas::{ComponentData, EntityData, EntryData, ValueData};
use stafett_kafka_wire::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use super::acls::code_of;
use crate::access_operation::{AccessOperation, Changed};
use crate::call::Call;
use crate::context::RequestContext;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

const USER: &str = "user";
const CLIENT: &str = "client-id";

/// Kafka's names of rates.
const KEYS: [(&str, Rate); 2] = [
    ("producer_byte_rate", Rate::Produced),
    ("consumer_byte_rate", Rate::Fetched),
];
/// Kafka's other keys.
const UNSERVED: [&str; 3] = [
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
];

type Refused = (ErrorCode, String);

pub(super) fn describe_client_quotas(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeClientQuotasRequest = call.read(body)?;
    let (code, message, entries) = match check(&request.components) {
        Ok(()) => {
            let directory = context.shared.broker.access().directory();
            let entries = directory.with_quotas(|quotas| {
                let wanted = quotas
                    .iter()
                    .filter(|(entity, _)| matches(entity, &request.components, request.strict));
                let entries = wanted.map(|(entity, rates)| entry(entity, rates));
                // Quotas of requests alone have no key in Kafka.
                entries.filter(|entry| !entry.values.is_empty()).collect()
            });
            (ErrorCode::None, None, Some(entries))
        }
        Err((code, message)) => (code, Some(message.into()), None),
    };
    let response = DescribeClientQuotasResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
        error_message: message,
        entries,
    };
    Ok(call.answer::<DescribeClientQuotasRequest>(&response)?.into())
}

fn parts(entity: &Entity) -> impl Iterator<Item = (&'static str, &Part)> {
    let parts = [(USER, &entity.user), (CLIENT, &entity.client)];
    parts
        .into_iter()
        .filter_map(|(kind, part)| Some((kind, part.as_ref()?)))
}

fn matches(entity: &Entity, components: &[ComponentData], strict: bool) -> bool {
    let of = |kind: &str| {
        parts(entity)
            .find(|(known, _)| *known == kind)
            .map(|(_, part)| part)
    };
    let is_matched = |component: &ComponentData| match (of(&component.entity_type), component.match_type) {
        (Some(Part::Named(name)), EXACT) => component.match_.as_deref() == Some(&**name),
        (Some(Part::Default), DEFAULT) | (Some(_), ANY) => true,
        (None | Some(_), _) => false,
    };
    components.iter().all(is_matched) && (!strict || parts(entity).count() == components.len())
}

fn entry(entity: &Entity, rates: &Rates) -> EntryData {
    let entity = parts(entity).map(|(kind, part)| EntityData {
        entity_type: Str::from_static(kind),
        entity_name: match part {
            Part::Default => None,
            Part::Named(name) => Some(Str::copy_from(name)),
        },
    });
    let values = KEYS.iter().filter_map(|(key, rate)| {
        Some(ValueData {
            key: Str::from_static(key),
            value: *rates.get(rate)?,
        })
    });
    EntryData {
        entity: entity.collect(),
        values: values.collect(),
    }
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

pub(super) fn alter_client_quotas(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AlterClientQuotasRequest = call.read(body)?;
    let prepared: Vec<Result<NewQuota, Refused>> = request.entries.iter().map(prepare).collect();
    let quotas = prepared.iter().filter_map(|quota| quota.as_ref().ok().cloned());
    let (quotas, validate_only) = (quotas.collect(), request.validate_only);
    let entities: Vec<_> = request.entries.into_iter().map(|entry| entry.entity).collect();
    let set = then(move |context: &RequestContext, set: Changed| {
        let refused = set.err().map(|why| (code_of(&why), why.to_string()));
        let entries = entities.into_iter().zip(prepared).map(|(entity, prepared)| {
            let refused = prepared.err().or_else(|| refused.clone());
            let (code, message) = refused.map_or((ErrorCode::None, None), |(code, why)| (code, Some(why)));
            response_entry(context, call, entity, code, message)
        });
        let response = AlterClientQuotasResponse {
            throttle_time_ms: 0,
            entries: entries.collect(),
        };
        call.answer::<AlterClientQuotasRequest>(&response)
    });
    let operation = Operation::Access(AccessOperation::SetQuotas(quotas, validate_only, set));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn response_entry(
    context: &RequestContext,
    call: Call,
    entity: Vec<RequestEntityData>,
    code: ErrorCode,
    message: Option<String>,
) -> ResponseEntryData {
    let entity = entity.into_iter().map(|part| ResponseEntityData {
        entity_type: part.entity_type,
        entity_name: part.entity_name,
    });
    ResponseEntryData {
        error_code: context.shared.metrics.error(call.api, code),
        error_message: message.map(Into::into),
        entity: entity.collect(),
    }
}

fn prepare(entry: &RequestEntryData) -> Result<NewQuota, Refused> {
    let invalid = |why: String| Err((ErrorCode::InvalidRequest, why));
    let mut entity = Entity {
        user: None,
        client: None,
    };
    for part in &entry.entity {
        let kind = &*part.entity_type;
        let place = match kind {
            USER => &mut entity.user,
            CLIENT => &mut entity.client,
            "ip" => return invalid("Quotas of addresses are not served.".to_owned()),
            other => return invalid(format!("Unhandled client quota entity type: {other}")),
        };
        let named = match part.entity_name.as_deref() {
            None => Part::Default,
            Some(name) => Part::Named(name.into()),
        };
        if place.replace(named).is_some() {
            return invalid(format!("Entity type {kind} is named twice."));
        }
    }
    if let Err(why) = entity.check() {
        return invalid(why.to_string());
    }
    let mut rates = Vec::new();
    for op in &entry.ops {
        let key = &*op.key;
        let known = KEYS.iter().find(|(name, _)| *name == key);
        match known {
            Some((_, rate)) => rates.push((*rate, (!op.remove).then_some(op.value))),
            // Removing a quota that cannot be there changes nothing.
            None if UNSERVED.contains(&key) && op.remove => {}
            None if UNSERVED.contains(&key) => return invalid(format!("Quotas of {key} are not served.")),
            None => return invalid(format!("Invalid configuration key {key}")),
        }
        if !op.remove && stafett_access::check_rate(op.value).is_err() {
            return invalid(format!("Quota {key} must be greater than 0"));
        }
    }
    Ok(NewQuota { entity, rates })
}
