//! Virtual hosts.

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;

use super::call::{Call, changed};
use super::refusal::{Answered, Refusal};
use super::statistics::Lengths;
use super::{NODE, list, queues, values};
use crate::exchange_kinds;

pub(super) fn list(call: &Call) -> Answered {
    let all = call.vhosts(None)?;
    let (lengths, _) = queues::totals(call);
    let shown = |vhost: &Namespace| shown(call, vhost, &lengths.get(vhost).copied().unwrap_or_default());
    list::entries(call, all, ToString::to_string, shown)
}

pub(super) async fn vhost(call: &Call, name: &str) -> Answered {
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => {
            let fields = call.fields()?;
            put(call, &Namespace::new(name), &fields.0).await.map(changed)
        }
        Method::DELETE => {
            let vhost = call.vhost(name).ok_or_else(Refusal::no_object)?;
            let broker = &call.context.broker;
            let deleted = broker.delete_namespace(&call.user.caller, &vhost).await;
            deleted.map_err(|error| refused(&error))?;
            Ok(changed(false))
        }
        _ => {
            let vhost = call.vhost(name).ok_or_else(Refusal::no_object)?;
            list::object(call, shown(call, &vhost, &queues::total_of(call, &vhost)))
        }
    }
}

/// Creates a virtual host with its exchanges, or changes its description. Returns false if it exists.
pub(super) async fn put(
    call: &Call,
    vhost: &Namespace,
    fields: &Map<String, Value>,
) -> Result<bool, Refusal> {
    check(fields)?;
    let exchanges = call.context.exchanges();
    let created = exchanges.create_namespace(vhost);
    let (is_new, stored) = created.map_err(|error| refused(&error))?;
    stored.await.map_err(|error| refused(&error.into()))?;
    exchange_kinds::predeclare(&call.context.broker, vhost);
    let of_metadata = || fields.get("metadata")?.get("description");
    let description = fields.get("description").or_else(of_metadata);
    if let Some(description) = description.and_then(Value::as_str) {
        let described = exchanges.describe_namespace(vhost, description);
        let described = described.map_err(|error| refused(&error))?;
        described.await.map_err(|error| refused(&error.into()))?;
    }
    Ok(is_new)
}

/// Refuses properties with an effect on queues and messages.
fn check(fields: &Map<String, Value>) -> Result<(), Refusal> {
    match fields.get("default_queue_type").and_then(Value::as_str) {
        None | Some("" | "classic" | "undefined") => {}
        Some(other) => {
            let reason =
                format!("default_queue_type '{other}' is not possible: queues are classic by default");
            return Err(Refusal::bad_request(reason));
        }
    }
    match fields.get("tracing") {
        Some(Value::Bool(true)) => Err(Refusal::bad_request("there is no tracing")),
        Some(Value::String(text)) if text == "true" => Err(Refusal::bad_request("there is no tracing")),
        _ => Ok(()),
    }
}

fn refused(error: &NamespaceError) -> Refusal {
    match error {
        NamespaceError::NoSuchNamespace => Refusal::no_object(),
        NamespaceError::NotStored(_) => Refusal::unavailable(error.to_string()),
        NamespaceError::IsDefault
        | NamespaceError::Closing
        | NamespaceError::BadName
        | NamespaceError::LongDescription
        | NamespaceError::Elsewhere => Refusal::bad_request(error.to_string()),
    }
}

/// Returns the description of a virtual host, as it is shown.
pub(super) fn description(call: &Call, vhost: &Namespace) -> String {
    let own = call.context.exchanges().description(vhost);
    if own.is_empty() && vhost.as_str() == Namespace::DEFAULT {
        return "Default virtual host".to_owned();
    }
    own.to_string()
}

fn shown(call: &Call, vhost: &Namespace, lengths: &Lengths) -> Value {
    let description = description(call, vhost);
    let mut fields = values::fields(json!({
        "name": vhost.as_str(),
        "description": description,
        "metadata": { "description": description, "tags": [], "default_queue_type": "classic" },
        "tags": [],
        "default_queue_type": "classic",
        "tracing": false,
        "cluster_state": { NODE: "running" },
        "message_stats": lengths.messages.shown(None, None),
    }));
    lengths.show(&mut fields, None, None);
    Value::Object(fields)
}
