//! All definitions as one file, in RabbitMQ's form. `GET` exports, `POST` imports ([`super::import`]).
//!
//! Users have no password hashes, which are secrets: set passwords after an import.
//! Exclusive queues and the exchanges of every virtual host are left out, as in RabbitMQ.

use axum::http::{HeaderValue, Method, header};
use serde_json::{Map, Value, json};
use stafett_messaging::queues::PolicyKind;
use stafett_model::Namespace;

use super::call::{Call, ok};
use super::refusal::{Answered, Refusal};
use super::{
    NODE, VERSION, bindings, exchanges, import, limits, policies, queues, topic_permissions, users, values,
    vhosts,
};

/// Imports into a virtual host, or all.
pub(super) async fn import(call: &Call, vhost: Option<&str>) -> Answered {
    call.allow(&[Method::GET, Method::POST])?;
    let vhost = vhost.or_else(|| call.query("vhost"));
    if vhost.is_some_and(|vhost| call.vhost(vhost).is_none()) {
        return Err(Refusal::no_vhost());
    }
    import::run(call, vhost).await
}

/// Answers for a virtual host, or for all.
pub(super) fn export(call: &Call, vhost: Option<&str>) -> Answered {
    let vhosts = call
        .vhosts(vhost)
        .map_err(|_| Refusal::bad_request("vhost_not_found"))?;
    // Those of one virtual host do not name it, so that they can be imported into another one.
    let item = |mut fields: Map<String, Value>| {
        if vhost.is_some() {
            fields.remove("vhost");
        }
        Value::Object(fields)
    };
    let mut exported = head(call, vhost);
    let queues = queues::all(call, vhost)?;
    let queues = queues.iter().filter(|entry| !entry.is_exclusive());
    let queues: Vec<Value> = queues.map(|entry| item(entry.definition())).collect();
    let bindings = bindings::all(call, vhost)?;
    let bindings = bindings.iter().filter(|entry| !entry.is_default());
    let bindings: Vec<Value> = bindings.map(|entry| item(entry.definition())).collect();
    let exchanges: Vec<Value> = vhosts.iter().flat_map(own_exchanges(call)).map(item).collect();
    let parameters = vhosts.iter().filter_map(|vhost| {
        let value = limits::of_vhost(call, vhost.as_str());
        let mut fields = Map::from_iter([
            ("component".to_owned(), json!(limits::COMPONENT)),
            ("name".to_owned(), json!("limits")),
            ("vhost".to_owned(), json!(vhost.as_str())),
        ]);
        let is_some = !value.is_empty();
        fields.insert("value".to_owned(), Value::Object(value));
        is_some.then(|| item(fields))
    });
    let operators = policies::parameters(call, &vhosts).into_iter().map(item);
    let parameters: Vec<Value> = parameters.chain(operators).collect();
    let policies = policies::all(call, PolicyKind::User, &vhosts).into_iter();
    let policies: Vec<Value> = policies.map(|policy| item(values::fields(policy))).collect();
    for (name, value) in [
        ("parameters", json!(parameters)),
        ("policies", json!(policies)),
        ("queues", json!(queues)),
        ("exchanges", json!(exchanges)),
        ("bindings", json!(bindings)),
    ] {
        exported.insert(name.to_owned(), value);
    }
    if vhost.is_none() {
        let described = |name: &Namespace| {
            let description = vhosts::description(call, name);
            json!({ "name": name.as_str(), "description": description, "tags": [] })
        };
        exported.insert("vhosts".to_owned(), vhosts.iter().map(described).collect());
        let (users, permissions) = users::exported(call);
        exported.insert("users".to_owned(), json!(users));
        exported.insert("permissions".to_owned(), json!(permissions));
        let topics = topic_permissions::all(call, |_| true);
        exported.insert("topic_permissions".to_owned(), json!(topics));
        exported.insert("global_parameters".to_owned(), json!([]));
    }
    let mut response = ok(&Value::Object(exported));
    if let Some(file) = call.query("download") {
        let name: String = file.chars().filter(|letter| !letter.is_control()).collect();
        if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename={name}")) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
        }
    }
    Ok(response)
}

fn own_exchanges(call: &Call) -> impl Fn(&Namespace) -> Vec<Map<String, Value>> {
    move |vhost| {
        let all = call.context.exchanges().list(vhost);
        let own = all.iter().filter(|exchange| !exchanges::is_predeclared(exchange));
        own.map(|exchange| exchanges::definition(vhost, exchange))
            .collect()
    }
}

fn head(call: &Call, vhost: Option<&str>) -> Map<String, Value> {
    let mut head = json!({
        "rabbit_version": VERSION,
        "rabbitmq_version": VERSION,
        "product_name": "Stafett",
        "product_version": call.node.product_version,
    });
    let of_form = match vhost {
        Some(vhost) => {
            let description = vhosts::description(call, &Namespace::new(vhost));
            json!({
                "rabbitmq_definition_format": "single_virtual_host",
                "original_vhost_name": vhost,
                "explanation": format!("Definitions of virtual host '{vhost}'"),
                "metadata": { "description": description, "tags": [], "default_queue_type": "classic" },
                "description": description,
                "default_queue_type": "classic",
                "limits": [],
            })
        }
        None => json!({
            "rabbitmq_definition_format": "cluster",
            "original_cluster_name": NODE,
            "explanation": format!("Definitions of cluster '{NODE}'"),
        }),
    };
    match (head.as_object_mut(), of_form) {
        (Some(head), Value::Object(of_form)) => {
            head.extend(of_form);
            std::mem::take(head)
        }
        _ => Map::new(),
    }
}
