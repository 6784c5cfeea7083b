//! All things of a kind that are there.

use std::collections::BTreeMap;

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use stafett_access::{Action, Resource};
use stafett_http::query::encoded;
use stafett_http::{Code, Problem};
use stafett_model::Namespace;

use super::item::{Fields, Item};
use super::kinds::{Kind, Source};
use super::{Asked, LeftOut};
use crate::access::{self, verifiers};
use crate::caller::Caller;
use crate::ws::routed::request_of;
use crate::{apps, definition};

/// Rows of a page of a list.
const PAGE: u64 = 1000;

/// Returns all definitions of a kind, and notes those that cannot be in a document.
pub(super) async fn all(
    asked: &Asked,
    kind: &'static Kind,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Item>, Problem> {
    let rows = match kind.source {
        Source::List => pages(asked, kind, asked.namespace.as_ref().map(|name| name.as_str())).await?,
        Source::ListOfNamespace => {
            let all = asked.broker.messaging().exchanges().namespaces();
            let mut rows = Vec::new();
            for namespace in all
                .iter()
                .filter(|name| asked.namespace.as_ref().is_none_or(|only| only == *name))
            {
                for mut row in pages(asked, kind, Some(namespace.as_str())).await? {
                    row.insert("namespace".to_owned(), json!(namespace.as_str()));
                    rows.push(row);
                }
            }
            rows
        }
        Source::Queues => queues(asked)?,
        Source::Users => {
            let of_keys = asked.broker.access().directory().topic_permissions();
            left_out.extend(of_keys.into_iter().map(|permission| LeftOut {
                kind: kind.name,
                name: Some(permission.user.to_string()),
                why: "permissions for routing keys are in /api/definitions alone".to_owned(),
            }));
            users(asked)?
        }
        Source::Apps => {
            let all = asked.broker.apps().all();
            all.iter().map(|app| apps::definition_of(app)).collect()
        }
        Source::Sinks => {
            let all = asked.broker.sinks().all();
            let row =
                |(name, definition): (&str, &str)| fields(json!({ "name": name, "definition": definition }));
            all.iter()
                .map(|(name, sink)| row((name, &sink.definition)))
                .collect()
        }
    };
    let rows = rows
        .into_iter()
        .filter(|row| (kind.is_defined)(row))
        .map(|mut row| {
            add_declaration(asked, kind, &mut row);
            row
        });
    let (kept, odd): (Vec<_>, Vec<_>) =
        rows.partition(|row| row.get("key_base64").is_none_or(Value::is_null));
    left_out.extend(odd.iter().map(|row| LeftOut {
        kind: kind.name,
        name: Item::of_row(kind, row.clone()).name(),
        why: "its key is no text".to_owned(),
    }));
    Ok(kept.into_iter().map(|row| Item::of_row(kind, row)).collect())
}

/// Reads a list of the API, page by page.
async fn pages(asked: &Asked, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Fields>, Problem> {
    let mut rows = Vec::new();
    let mut after = String::new();
    loop {
        let namespace = namespace
            .filter(|_| kind.is_namespaced)
            .map(|name| format!("&namespace={}", encoded(name)));
        let uri = format!(
            "{}?count={PAGE}{}{}{after}",
            kind.path,
            kind.query,
            namespace.unwrap_or_default()
        );
        let request = request_of(Method::GET, &uri, &Caller(None), String::new())?;
        let page = asked.routes.clone().ask(request, asked.by.clone()).await;
        let page: Value = match page {
            Ok(page) => serde_json::from_slice(&page).unwrap_or_default(),
            Err(refused) => return Err(refusal(&refused)),
        };
        let items = page.get("items").and_then(Value::as_array).into_iter().flatten();
        rows.extend(items.filter_map(Value::as_object).cloned());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => return Ok(rows),
        }
    }
}

/// Adds declarations of other protocols and settings of Kafka's clients, which lists do not show.
fn add_declaration(asked: &Asked, kind: &Kind, row: &mut Fields) {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    let broker = &asked.broker;
    let (declared, other) = match kind.name {
        "topics" => match broker.topics().named(text("name")) {
            Some(topic) => (topic.settings.declared.clone(), topic.settings.other.clone()),
            None => return,
        },
        "exchanges" => {
            let exchanges = broker.messaging().exchanges();
            let found = exchanges.get(&Namespace::new(text("namespace")), text("name"));
            let declared = found.map(|exchange| exchange.is.arguments.clone());
            (declared.filter(|bytes| !bytes.is_empty()), BTreeMap::new())
        }
        _ => return,
    };
    if let Some(declared) = declared {
        row.insert("declared".to_owned(), json!(STANDARD.encode(declared)));
    }
    if !other.is_empty() {
        row.insert("other".to_owned(), json!(other));
    }
}

fn queues(asked: &Asked) -> Result<Vec<Fields>, Problem> {
    access::check(&asked.broker, Action::Describe, &Resource::CLUSTER)?;
    let mut queues = asked.broker.messaging().queues().all_sorted();
    queues.retain(|queue| {
        let is_wanted = asked
            .namespace
            .as_ref()
            .is_none_or(|only| queue.namespace == *only);
        is_wanted && !queue.personal && queue.exclusive.is_none()
    });
    let rows = queues
        .iter()
        .map(|queue| fields(json!(definition::defined(&asked.broker, queue))));
    Ok(rows.collect())
}

/// Returns the refusal of a route as one of this.
pub(super) fn refusal(refused: &[u8]) -> Problem {
    let refused: Value = serde_json::from_slice(refused).unwrap_or_default();
    let text = |name: &str| refused.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = Code::of(text("code")).unwrap_or(Code::BadRequest);
    Problem::new(code, text("detail"))
}

/// Returns the users, with the verifiers of their passwords.
fn users(asked: &Asked) -> Result<Vec<Fields>, Problem> {
    access::check(&asked.broker, Action::Alter, &Resource::CLUSTER)?;
    let users = asked.broker.access().directory().users();
    let row = |user: &std::sync::Arc<stafett_access::User>| {
        let mut row = json!({ "name": user.name, "tags": user.tags().collect::<Vec<_>>() });
        if !user.verifiers.is_empty()
            && let Some(row) = row.as_object_mut()
        {
            row.insert(
                "verifiers".to_owned(),
                json!(verifiers::VerifiersShown::of(&user.verifiers)),
            );
        }
        fields(row)
    };
    Ok(users.iter().map(row).collect())
}

fn fields(value: Value) -> Fields {
    let Value::Object(fields) = value else {
        return Map::new();
    };
    fields
}
