//! One thing of a document.

use std::fmt::Write;

use axum::http::Method;
use serde_json::{Map, Value};
use stafett_http::query::encoded;

use super::kinds::{Change, Kind};

/// Fields of a thing, by the names of the API.
pub(super) type Fields = Map<String, Value>;

/// A thing of a document. It names its namespace if it has one.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) kind: &'static Kind,
    pub(super) fields: Fields,
}

impl Item {
    /// Takes the fields of a definition from the row of a list. Those that are null are left out.
    pub(super) fn of_row(kind: &'static Kind, mut row: Fields) -> Self {
        if kind.name == "topics" {
            keep_own_settings(&mut row);
        }
        let is_field = |name: &str| kind.id.contains(&name) || kind.fields.contains(&name);
        row.retain(|name, value| is_field(name) && !value.is_null());
        Self { kind, fields: row }
    }

    /// Returns the item as it stands in a document, without the namespace if the document is of one.
    pub(super) fn shown(mut self, is_of_one: bool) -> Value {
        if is_of_one && self.kind.is_namespaced {
            self.fields.remove("namespace");
        }
        Value::Object(self.fields)
    }

    /// Returns a text that tells things of the kind apart.
    pub(super) fn id(&self) -> String {
        let values = self.kind.id.iter().map(|field| {
            let value = self.fields.get(*field).filter(|value| !is_empty(value));
            // Without headers there is nothing to match.
            let is_needless = *field == "match" && self.fields.get("headers").is_none_or(is_empty);
            canonical(value.filter(|_| !is_needless).unwrap_or(&Value::Null))
        });
        values.collect::<Vec<_>>().join(" ")
    }

    /// Returns a name for people; null for things that have none.
    pub(super) fn name(&self) -> Option<String> {
        let field = |name: &str| self.fields.get(name).and_then(Value::as_str).map(str::to_owned);
        match self.kind.name {
            "bindings" => {
                let to = self.fields.get("to").and_then(Value::as_object);
                let to = to.and_then(|to| to.values().next()?.as_str()).unwrap_or_default();
                Some(format!("{} to {to}", field("source").unwrap_or_default()))
            }
            "rules" => field("who"),
            _ => field("name")
                .or_else(|| field("namespace"))
                .or_else(|| field("user"))
                .or_else(|| field("client")),
        }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        let name = self.fields.get("namespace").and_then(Value::as_str);
        name.filter(|_| self.kind.is_namespaced)
    }

    /// Returns the fields whose values differ from those of a thing that is there. A field that is absent
    /// here may have any value.
    pub(super) fn differences(&self, there: &Self) -> Vec<(String, Value, Value)> {
        let differs = |(name, wanted): (&String, &Value)| {
            let is = there.fields.get(name).unwrap_or(&Value::Null);
            (!is_same(self.kind, name, is, wanted)).then(|| (name.clone(), is.clone(), wanted.clone()))
        };
        self.fields.iter().filter_map(differs).collect()
    }

    /// Returns the request that makes the thing: method, path with query, and body.
    pub(super) fn making(&self) -> (Method, String, String) {
        let method = if matches!(self.kind.name, "bindings" | "rules") {
            Method::POST
        } else {
            Method::PUT
        };
        let mut body = self.fields.clone();
        body.retain(|name, _| !self.kind.has_path_of(name));
        let body = match self.kind.name {
            "clients" => String::new(),
            "sinks" => definition_of_sink(&self.fields),
            _ => Value::Object(body).to_string(),
        };
        (method, self.target(), body)
    }

    /// Returns the request that changes a thing that is there. `None` if it cannot change in these fields.
    pub(super) fn changing(&self, fields: &[String]) -> Option<(Method, String, String)> {
        match self.kind.change {
            Change::None => None,
            Change::Again => Some(self.making()),
            Change::Patch(known) => {
                if fields.iter().any(|field| !known.contains(&field.as_str())) {
                    return None;
                }
                let mut body = self.fields.clone();
                body.retain(|name, _| fields.contains(name));
                Some((Method::PATCH, self.target(), Value::Object(body).to_string()))
            }
        }
    }

    fn target(&self) -> String {
        let mut target = self.kind.path.to_owned();
        let text = |name: &str| self.fields.get(name).and_then(Value::as_str).unwrap_or_default();
        // Writing to memory does not fail.
        if self.kind.has_path_of("name") {
            let _ = write!(target, "/{}", encoded(text("name")));
        }
        let _ = write!(target, "?{}", self.kind.query);
        if self.kind.is_namespaced {
            let _ = write!(target, "&namespace={}", encoded(text("namespace")));
        }
        target
    }
}

/// Returns the JSON of a sink's definition, which is a text, as the order of its fields counts, or an object.
fn definition_of_sink(fields: &Fields) -> String {
    match fields.get("definition") {
        Some(Value::String(text)) => text.clone(),
        Some(object) => object.to_string(),
        None => String::new(),
    }
}

/// Keeps the settings that a topic has set for itself.
fn keep_own_settings(row: &mut Fields) {
    let own = row.remove("set").unwrap_or_default();
    let is_own = |name: &str| {
        own.as_array()
            .is_some_and(|own| own.iter().any(|known| known == name))
    };
    if let Some(Value::Object(settings)) = row.get_mut("settings") {
        settings.retain(|name, _| is_own(name));
        if settings.is_empty() {
            row.remove("settings");
        }
    }
}

fn is_same(kind: &Kind, name: &str, is: &Value, wanted: &Value) -> bool {
    match (kind.name, name) {
        ("rules", "actions") => {
            let is = words(is);
            let wanted = expanded(wanted);
            wanted.iter().all(|action| is.contains(action))
        }
        ("users", "tags") => {
            let (mut is, mut wanted) = (words(is), words(wanted));
            is.sort_unstable();
            wanted.sort_unstable();
            is == wanted
        }
        ("topics", "settings") => wanted.as_object().is_some_and(|wanted| {
            // Settings that are not named stay as they are.
            wanted.iter().all(|(name, wanted)| {
                let is = is.get(name).unwrap_or(&Value::Null);
                canonical(is) == canonical(wanted)
            })
        }),
        _ => canonical(is) == canonical(wanted) || is_empty(is) && is_empty(wanted),
    }
}

fn words(list: &Value) -> Vec<&str> {
    let words = list
        .as_array()
        .map(|words| words.iter().filter_map(Value::as_str));
    words.into_iter().flatten().collect()
}

/// Returns actions, with those that a word stands for.
fn expanded(actions: &Value) -> Vec<&str> {
    let expand = |word| match stafett_access::Actions::of_word(word) {
        Some(actions) => actions.words(),
        None => vec![],
    };
    words(actions).into_iter().flat_map(expand).collect()
}

/// Returns true for a value that an absent field may stand for.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Returns JSON with its fields in order, without those that are null.
fn canonical(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(name, value)| {
                let name = Value::from(name.as_str());
                format!("{name}:{}", canonical(value))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
