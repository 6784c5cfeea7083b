//! One thing of a document.

use std::borrow::Cow;
use std::fmt::Write;

use axum::http::Method;
use serde_json::{Map, Value};
use stafett_http::query::encoded;

use super::kinds::{Change, Kind};

/// Fields of a thing, by the names of the API.
pub(super) type Fields = Map<String, Value>;

/// A request of an import.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) body: String,
}

/// A thing of a document. It names its namespace if it has one.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) kind: &'static Kind,
    pub(super) fields: Fields,
}

impl Item {
    /// Takes the fields of a definition from the row of a list. Fields that can change are null if they are
    /// absent; others that are null are left out.
    pub(super) fn of_row(kind: &'static Kind, mut row: Fields) -> Self {
        if kind.name == "topics" {
            keep_own_settings(&mut row);
        }
        let is_field = |name: &str| kind.id.contains(&name) || kind.fields.contains(&name);
        row.retain(|name, value| is_field(name) && (!value.is_null() || kind.shows_null_of(name)));
        if kind.change == Change::Again {
            for field in kind.fields.iter().filter(|field| kind.shows_null_of(field)) {
                row.entry(*field).or_insert(Value::Null);
            }
        }
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
            let value = self
                .fields
                .get(*field)
                .filter(|value| !is_empty(value) && *value != "");
            // Without headers there is nothing to match.
            let is_needless = *field == "match" && self.fields.get("headers").is_none_or(is_empty);
            exact(value.filter(|_| !is_needless).unwrap_or(&Value::Null))
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
        let (all, there) = (self.with_changes(), there.with_changes());
        let differs = |(name, wanted): (&String, &Value)| {
            let is = there.get(name).unwrap_or(&Value::Null);
            let is_any = wanted.is_null() && !self.kind.shows_null_of(name);
            let is_other = !is_any && !is_same(self.kind, name, is, wanted);
            is_other.then(|| (name.clone(), is.clone(), wanted.clone()))
        };
        all.iter().filter_map(differs).collect()
    }

    /// Returns the fields of a queue with its changes over its declaration.
    fn with_changes(&self) -> Cow<'_, Fields> {
        let Some(Value::Object(changed)) = self.fields.get("changed") else {
            return Cow::Borrowed(&self.fields);
        };
        let mut fields = self.fields.clone();
        fields.extend(changed.clone());
        fields.remove("changed");
        Cow::Owned(fields)
    }

    /// Returns the requests that make the thing. A queue is made as it was declared, and then changed.
    pub(super) fn making(&self) -> Vec<Step> {
        let mut steps = vec![self.put(self.fields.clone())];
        if let Some(Value::Object(changed)) = self.fields.get("changed")
            && !changed.is_empty()
        {
            steps.push(self.patch(changed.clone(), &self.with_changes()));
        }
        steps
    }

    /// Returns the requests that change a thing that is there. `None` if it cannot change in these fields.
    pub(super) fn changing(&self, fields: &[String], there: &Self) -> Option<Vec<Step>> {
        match self.kind.change {
            Change::None => None,
            Change::Again => {
                let replaces =
                    matches!(self.kind.name, "limits" | "quotas") || self.kind.path == "/v1/policies";
                // Fields that the document does not name stay.
                let mut all = if replaces {
                    there.fields.clone()
                } else {
                    Fields::new()
                };
                all.extend(self.fields.clone());
                Some(vec![self.put(all)])
            }
            Change::Patch(known) => {
                if fields.iter().any(|field| !known.contains(&field.as_str())) {
                    return None;
                }
                let wanted = self.with_changes();
                let mut body = wanted.clone().into_owned();
                body.retain(|name, _| fields.contains(name));
                let mut all = there.with_changes().into_owned();
                all.extend(wanted.into_owned());
                Some(vec![self.patch(body, &all)])
            }
        }
    }

    fn put(&self, mut body: Fields) -> Step {
        let method = if matches!(self.kind.name, "bindings" | "rules") {
            Method::POST
        } else {
            Method::PUT
        };
        body.retain(|name, value| !self.kind.has_path_of(name) && !value.is_null() && name != "changed");
        let body = match self.kind.name {
            "clients" => String::new(),
            "sinks" => definition_of_sink(&self.fields),
            _ => Value::Object(body).to_string(),
        };
        Step {
            method,
            target: self.target(),
            body,
        }
    }

    /// Returns the request that changes fields. `all` are the fields behind it.
    fn patch(&self, mut body: Fields, all: &Fields) -> Step {
        // The first limit of a queue would change its overflow too.
        let is_limit = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
        if self.kind.name == "queues"
            && (is_limit("length_max") || is_limit("bytes_max"))
            && let Some(overflow) = all.get("overflow").filter(|overflow| !overflow.is_null())
        {
            body.insert("overflow".to_owned(), overflow.clone());
        }
        Step {
            method: Method::PATCH,
            target: self.target(),
            body: Value::Object(body).to_string(),
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
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns JSON with its fields in order, without those that are null, and numbers by their value.
fn canonical(value: &Value) -> String {
    written(value, false)
}

/// Returns JSON with its fields in order. A null is a value: of a binding, it stands for any header's.
fn exact(value: &Value) -> String {
    written(value, true)
}

fn written(value: &Value, is_exact: bool) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| written(item, is_exact)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .iter()
                .filter(|(_, value)| is_exact || !value.is_null())
                .collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(name, value)| {
                let name = Value::from(name.as_str());
                format!("{name}:{}", written(value, is_exact))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Number(number) if !is_exact && !number.is_i64() && !number.is_u64() => {
            let number = number.as_f64().unwrap_or_default();
            // A float without a fraction is written as an integer is.
            format!("{number}")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
