//! All things of a kind that are there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stafett_access::{Action, Resource};
use stafett_http::query::encoded;
use stafett_http::{Code, Problem, slot};
use stafett_messaging::Destination;
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;

use super::item::{Fields, Item};
use super::kinds::{Kind, Source};
use super::{Asked, LeftOut};
use crate::access::{self, verifiers};
use crate::{apps, caller, definition};

/// Rows of a page of a list.
const PAGE: u64 = 1000;
/// Reason of a paused thing.
const PAUSED: &str = "it is paused; an import makes one that runs";

/// Namespaces whose things are read; `None` for all.
pub(super) type Scope = Option<BTreeSet<Namespace>>;

/// Returns all definitions of a kind, and notes those that cannot be in a document as they are.
pub(super) async fn all(
    asked: &Asked,
    kind: &'static Kind,
    scope: &Scope,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Item>, Problem> {
    let rows = match kind.source {
        Source::List => pages(asked, kind, None).await?,
        Source::ListOfNamespace => {
            let mut rows = Vec::new();
            for namespace in namespaces(asked, scope) {
                for mut row in pages(asked, kind, Some(namespace.as_str())).await? {
                    row.insert("namespace".to_owned(), json!(namespace.as_str()));
                    rows.push(row);
                }
            }
            rows
        }
        Source::Queues => queues(asked, scope, left_out)?,
        Source::Bindings => bindings(asked, scope, left_out)?,
        Source::Users => users(asked, left_out)?,
        Source::Apps => apps(asked, left_out),
        Source::Sinks => sinks(asked, left_out),
    };
    if kind.name == "clients" {
        note_changed_queues(asked, &rows, left_out);
    }
    let rows = rows
        .into_iter()
        .filter(|row| (kind.is_defined)(row))
        .map(|mut row| {
            add_declaration(asked, kind, &mut row);
            Item::of_row(kind, row)
        });
    let mut items: Vec<Item> = rows.collect();
    let exchanges = asked.broker.messaging().exchanges();
    let is_about_others = scope
        .as_ref()
        .is_none_or(|scope| scope.iter().any(|name| exchanges.is_elsewhere(name)));
    if is_about_others {
        for cell in asked.other_cells(kind) {
            let others = of_cell(asked, kind, cell, left_out).await?;
            let is_asked = |item: &Item| {
                let name = item.namespace().map(Namespace::new);
                name.is_none_or(|name| is_within(scope, &name))
            };
            items.extend(others.into_iter().filter(is_asked));
        }
    }
    Ok(items)
}

/// Returns the things of a kind that another cell has.
async fn of_cell(
    asked: &Asked,
    kind: &'static Kind,
    cell: u32,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Item>, Problem> {
    #[derive(Deserialize)]
    struct OfCell {
        #[serde(flatten)]
        lists: HashMap<String, Value>,
        #[serde(default)]
        left_out: Vec<LeftOutThere>,
    }
    #[derive(Deserialize)]
    struct LeftOutThere {
        name: Option<String>,
        why: String,
    }
    let uri = format!("/v1/definitions?kinds={}&cell={cell}", kind.name);
    let document = asked.get(&uri).await?;
    let document: OfCell = serde_json::from_slice(&document)
        .map_err(|_| slot::not_serving(format!("cell {cell} gives no definitions")))?;
    let OfCell {
        mut lists,
        left_out: there,
    } = document;
    left_out.extend(there.into_iter().map(|LeftOutThere { name, why }| LeftOut {
        kind: kind.name,
        name,
        why,
    }));
    let items = match lists.remove(kind.name) {
        Some(Value::Array(items)) => items,
        Some(_) | None => Vec::new(),
    };
    Ok(items
        .into_iter()
        .map(|item| Item {
            kind,
            fields: fields(item),
        })
        .collect())
}

fn namespaces(asked: &Asked, scope: &Scope) -> Vec<Namespace> {
    let mut all = asked.broker.messaging().exchanges().namespaces();
    all.retain(|name| is_within(scope, name));
    all
}

fn is_within(scope: &Scope, namespace: &Namespace) -> bool {
    scope.as_ref().is_none_or(|scope| scope.contains(namespace))
}

/// Reads a list of the API, page by page.
async fn pages(asked: &Asked, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Fields>, Problem> {
    let mut rows = Vec::new();
    let mut after = String::new();
    // Else it would be the list of all cells.
    let cell = if asked.other_cells(kind).is_empty() {
        ""
    } else {
        "&cell=0"
    };
    loop {
        let namespace = namespace.map(|name| format!("&namespace={}", encoded(name)));
        let uri = format!(
            "{}?count={PAGE}{}{}{cell}{after}",
            kind.path,
            kind.query,
            namespace.unwrap_or_default()
        );
        let page: Value = serde_json::from_slice(&asked.get(&uri).await?).unwrap_or_default();
        let items = page.get("items").and_then(Value::as_array).into_iter().flatten();
        rows.extend(items.filter_map(Value::as_object).cloned());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => return Ok(rows),
        }
    }
}

/// Adds fields that lists do not show: declarations of other protocols, and settings of Kafka's clients.
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

fn left(kind: &'static str, name: String, why: &str) -> LeftOut {
    LeftOut {
        kind,
        name: Some(name),
        why: why.to_owned(),
    }
}

/// Returns true for a queue that goes with its connection.
fn is_passing(queue: &Queue) -> bool {
    queue.exclusive.is_some()
}

/// Returns true for a queue whose name no request can choose.
fn is_named_by_broker(queue: &Queue) -> bool {
    queue.name.starts_with("amq.")
}

fn queues(asked: &Asked, scope: &Scope, left_out: &mut Vec<LeftOut>) -> Result<Vec<Fields>, Problem> {
    access::check(&asked.broker, Action::Describe, &Resource::CLUSTER)?;
    let mut queues = asked.broker.messaging().queues().all_sorted();
    queues.retain(|queue| is_within(scope, &queue.namespace) && !queue.personal && !is_passing(queue));
    let mut rows = Vec::with_capacity(queues.len());
    for queue in queues {
        if is_named_by_broker(&queue) {
            left_out.push(left("queues", queue.name.to_string(), "the broker has named it"));
            continue;
        }
        if queue.is_paused() {
            left_out.push(left("queues", queue.name.to_string(), PAUSED));
        }
        rows.push(fields(json!(definition::defined(&asked.broker, &queue))));
    }
    Ok(rows)
}

/// Returns the bindings, without those to queues that are in no document.
fn bindings(asked: &Asked, scope: &Scope, left_out: &mut Vec<LeftOut>) -> Result<Vec<Fields>, Problem> {
    access::check(&asked.broker, Action::Describe, &Resource::CLUSTER)?;
    let queues = asked.broker.messaging().queues();
    let mut rows = Vec::new();
    for namespace in namespaces(asked, scope) {
        for (binding, shown, has_json) in crate::bindings::defined(&asked.broker, &namespace) {
            let target = match &binding.destination {
                Destination::Queue(name) => queues.get(&namespace, name),
                Destination::Topic(_) | Destination::Exchange(_) => None,
            };
            if binding.source.is_empty() || target.as_deref().is_some_and(is_passing) {
                continue;
            }
            let why = if std::str::from_utf8(&binding.key).is_err() {
                "its key is no text"
            } else if !has_json {
                "one of its headers is a list, a table or another value that JSON does not have"
            } else if target.as_deref().is_some_and(is_named_by_broker) {
                "the broker has named its queue"
            } else {
                rows.push(fields(shown));
                continue;
            };
            let name = format!("{} to {}", binding.source, binding.destination.name());
            left_out.push(left("bindings", name, why));
        }
    }
    Ok(rows)
}

fn apps(asked: &Asked, left_out: &mut Vec<LeftOut>) -> Vec<Fields> {
    let all = asked.broker.apps().all();
    let paused = all.iter().filter(|app| app.stored().paused);
    left_out.extend(paused.map(|app| left("apps", app.name.to_string(), PAUSED)));
    all.iter().map(|app| apps::definition_of(app)).collect()
}

fn sinks(asked: &Asked, left_out: &mut Vec<LeftOut>) -> Vec<Fields> {
    let all = asked.broker.sinks().all();
    let paused = all.iter().filter(|(_, sink)| sink.rests);
    left_out.extend(paused.map(|(name, _)| left("sinks", name.to_string(), PAUSED)));
    all.iter()
        .map(|(name, sink)| fields(json!({ "name": name, "definition": sink.definition })))
        .collect()
}

/// Notes clients whose queues have other settings than those that a registration makes.
fn note_changed_queues(asked: &Asked, clients: &[Fields], left_out: &mut Vec<LeftOut>) {
    let text = |row: &Fields, name: &str| row.get(name).and_then(Value::as_str).map(str::to_owned);
    for row in clients {
        let (Some(name), Some(namespace)) = (text(row, "name"), text(row, "namespace")) else {
            continue;
        };
        let queue = caller::find(&asked.broker, &Namespace::new(&namespace), &name);
        if queue.is_some_and(|queue| queue.own_settings() != *queue.declared) {
            let why = "its queue has changed settings, which an import does not make";
            left_out.push(left("clients", name, why));
        }
    }
}

/// Returns the refusal of a route as one of this.
pub(super) fn refusal(refused: &[u8]) -> Problem {
    let refused: Value = serde_json::from_slice(refused).unwrap_or_default();
    let text = |name: &str| refused.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = Code::of(text("code")).unwrap_or(Code::BadRequest);
    Problem::new(code, text("detail"))
}

/// Returns the users, with the verifiers of their passwords.
fn users(asked: &Asked, left_out: &mut Vec<LeftOut>) -> Result<Vec<Fields>, Problem> {
    access::check(&asked.broker, Action::Alter, &Resource::CLUSTER)?;
    let of_keys = asked.broker.access().directory().topic_permissions();
    left_out.extend(of_keys.into_iter().map(|permission| {
        let why = "permissions for routing keys are in /api/definitions alone";
        left("users", permission.user.to_string(), why)
    }));
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
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
