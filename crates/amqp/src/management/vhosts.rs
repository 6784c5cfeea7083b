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
    let shown = |vhost: &Namespace| shown(vhost, &lengths.get(vhost).copied().unwrap_or_default());
    list::entries(call, all, ToString::to_string, shown)
}

pub(super) async fn vhost(call: &Call, name: &str) -> Answered {
    match *call.allow(&[Method::GET, Method::PUT, Method::DELETE])? {
        Method::PUT => {
            call.fields().and_then(|fields| check(&fields.0))?;
            create(call, &Namespace::new(name)).await.map(changed)
        }
        Method::DELETE => {
            let vhost = call.vhost(name).ok_or_else(Refusal::no_object)?;
            let deleted = call.context.broker.delete_namespace(&vhost).await;
            deleted.map_err(|error| refused(&error))?;
            Ok(changed(false))
        }
        _ => {
            let vhost = call.vhost(name).ok_or_else(Refusal::no_object)?;
            list::object(call, shown(&vhost, &queues::total_of(call, &vhost)))
        }
    }
}

/// Creates a virtual host with its exchanges. Returns false if it exists.
pub(super) async fn create(call: &Call, vhost: &Namespace) -> Result<bool, Refusal> {
    let created = call.context.exchanges().create_namespace(vhost);
    let (is_new, stored) = created.map_err(|error| refused(&error))?;
    stored.await.map_err(|error| refused(&error.into()))?;
    exchange_kinds::predeclare(&call.context.broker, vhost);
    Ok(is_new)
}

/// Refuses properties with an effect on queues and messages.
pub(super) fn check(fields: &Map<String, Value>) -> Result<(), Refusal> {
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
        NamespaceError::IsDefault | NamespaceError::Closing | NamespaceError::BadName => {
            Refusal::bad_request(error.to_string())
        }
    }
}

fn shown(vhost: &Namespace, lengths: &Lengths) -> Value {
    let description = if vhost.as_str() == Namespace::DEFAULT {
        "Default virtual host"
    } else {
        ""
    };
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
