//! Bindings of exchanges to queues, topics and other exchanges.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, post};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body, stamp};
use stafett_messaging::exchanges::{BindError, UnbindError};
use stafett_messaging::{Binding, Destination, NewBinding, Unbind};
use stafett_model::Namespace;
use stafett_routing::{Filter, HeaderMatch, HeaderValue, Mode};

use crate::access;
use crate::definition::declared;
use crate::exchanges::NAMESPACE;
use crate::refusals::{self, of_storage};
use crate::{Routes, answer, namespace, queues};

const LIST: List<Entry, BindingStatus> = List {
    name: |entry| (entry.namespace.as_str(), &entry.name),
    sorts: &[],
    shown: |entry| BindingStatus::of(entry),
};

/// A binding of a list.
struct Entry {
    namespace: Namespace,
    /// Source, destination and id.
    name: String,
    id: String,
    binding: Arc<Binding>,
}

/// Destination of a binding.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BindingTo")]
enum To {
    Queue(String),
    Topic(String),
    Exchange(String),
}

/// Headers that have to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Match {
    #[default]
    All,
    Any,
}

/// A binding to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewBinding")]
struct Definition {
    /// Name of an exchange.
    source: String,
    to: To,
    /// Binding key: a routing key, a pattern, or a weight.
    #[serde(default)]
    key: String,
    /// Of a headers exchange: values of headers; null fits any value.
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    /// `all`, the default, if the message needs all of these headers, or `any`.
    #[serde(default, rename = "match")]
    mode: Match,
    /// Condition on the content of messages: an expression.
    #[serde(default)]
    filter: Option<String>,
    /// Declaration by another protocol, in base64, as it is shown: part of the identity of a binding.
    #[serde(default)]
    declared: Option<String>,
}

/// A binding.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Binding")]
struct BindingStatus {
    /// The same for the same binding, also after it was deleted and made again.
    id: String,
    namespace: String,
    source: String,
    to: To,
    /// Null if it is not text.
    key: Option<String>,
    /// The key if it is not text.
    key_base64: Option<String>,
    headers: BTreeMap<String, Value>,
    #[serde(rename = "match")]
    mode: Match,
    /// Condition on the content of messages.
    filter: Option<String>,
    /// Declaration by another protocol, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    declared: Option<String>,
    /// True if it survives a restart.
    durable: bool,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/bindings", "Lists bindings, those of one namespace or of all.")
                .query(&[
                    Parameter::text("namespace", "Only the bindings of this namespace."),
                    Parameter::text("source", "Only those from this exchange."),
                    Parameter::text("queue", "Only those to this queue."),
                    Parameter::text("topic", "Only those to this topic."),
                    Parameter::text("exchange", "Only those to this exchange."),
                ])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get("/v1/queues/{queue}/bindings", "Lists the bindings to a queue.")
                .query(&[NAMESPACE])
                .lists(&LIST)
                .refuses(&[Code::NotServing, Code::NoSuchQueue]),
            of_queue,
        )
        .route(
            post(
                "/v1/bindings",
                "Binds a queue, a topic or an exchange to an exchange. A binding that is there stays as it is.",
            )
            .event("binding.made")
            .query(&[NAMESPACE])
            .body::<Definition>()
            .answers::<BindingStatus>(201)
            .answers::<BindingStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[
                Code::NoSuchNamespace,
                Code::NoSuchExchange,
                Code::NoSuchQueue,
                Code::NoSuchTopic,
                Code::IsDefault,
                Code::TooManyFilters,
            ]),
            bind,
        )
        .route(
            delete("/v1/bindings/{binding}", "Deletes a binding.")
                .event("binding.deleted")
                .query(&[NAMESPACE])
                .answers::<BindingStatus>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchNamespace, Code::NoSuchBinding]),
            unbind,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let exchanges = broker.messaging().exchanges();
    let only = query.get("namespace").map(Namespace::new);
    let mut all = Vec::new();
    for namespace in exchanges.namespaces() {
        if only.as_ref().is_some_and(|only| *only != namespace) {
            continue;
        }
        let found = match query.get("source") {
            Some(source) => exchanges.bindings_from(&namespace, source),
            None => exchanges.bindings(&namespace),
        };
        let wanted = found.into_iter().filter(|binding| is_wanted(&query, binding));
        all.extend(wanted.map(|binding| entry(&namespace, binding)));
    }
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn of_queue(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let (broker, namespace) = (broker.get()?, namespace(&query));
    queues::find(&broker, &namespace, &name)?;
    let destination = Destination::Queue(name.as_str().into());
    let all = broker
        .messaging()
        .exchanges()
        .bindings_to(&namespace, &destination);
    let all = all.into_iter().map(|binding| entry(&namespace, binding));
    Ok(answer(StatusCode::OK, &LIST.page(&query, all.collect())?))
}

fn is_wanted(query: &Query, binding: &Binding) -> bool {
    let (kind, name) = match &binding.destination {
        Destination::Queue(name) => ("queue", name),
        Destination::Topic(name) => ("topic", name),
        Destination::Exchange(name) => ("exchange", name),
    };
    let fits = |key: &str| {
        query
            .get(key)
            .is_none_or(|wanted| key == kind && *wanted == **name)
    };
    ["queue", "topic", "exchange"].into_iter().all(fits)
}

async fn bind(
    State(broker): State<Slot<Broker>>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Definition = body::json(request).await?;
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let new = wanted.binding()?;
    check(&broker, &namespace, &new.source, &new.destination)?;
    let destination = new.destination.clone();
    let same = |binding: &Arc<Binding>| {
        binding.destination == new.destination && binding.key == new.key && binding.arguments == new.arguments
    };
    let find = || {
        let exchanges = broker.messaging().exchanges();
        let mut found = exchanges.bindings_from(&namespace, &new.source).into_iter();
        found.find(same)
    };
    let status = if find().is_some() {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let bound = broker.messaging().bind(&namespace, new.clone());
    let stored = bound.map_err(|why| {
        let code = match &why {
            BindError::NoSuchNamespace => Code::NoSuchNamespace,
            BindError::NoSuchExchange => Code::NoSuchExchange,
            BindError::NoSuchDestination => match &destination {
                Destination::Queue(_) => Code::NoSuchQueue,
                Destination::Topic(_) => Code::NoSuchTopic,
                Destination::Exchange(_) => Code::NoSuchExchange,
            },
            BindError::IsDefault => Code::IsDefault,
            BindError::KeyTooLong | BindError::BadPattern(_) => Code::BadRequest,
            BindError::TooManyFilters { .. } => Code::TooManyFilters,
            BindError::NotStored(error) => return of_storage(*error, error),
        };
        Problem::new(code, why)
    })?;
    let made = find();
    stamp::storing(stored).await.map_err(|why| of_storage(why, why))?;
    // It may have been deleted meanwhile.
    let made =
        made.ok_or_else(|| no_such_binding(&id_of(&new.source, &destination, &new.key, &new.arguments)))?;
    Ok(answer(status, &BindingStatus::of(&entry(&namespace, made))))
}

/// A binding needs the right to write to its destination, and to read its source.
fn check(
    broker: &Broker,
    namespace: &Namespace,
    source: &str,
    destination: &Destination,
) -> Result<(), Problem> {
    let space = namespace.as_str();
    let written = match destination {
        Destination::Queue(name) => Resource::queue(space, name),
        Destination::Topic(name) => Resource::topic(name),
        Destination::Exchange(name) => Resource::exchange(space, name),
    };
    access::check(broker, Action::Write, &written)?;
    access::check(broker, Action::Read, &Resource::exchange(space, source))
}

async fn unbind(
    State(broker): State<Slot<Broker>>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let exchanges = broker.messaging().exchanges();
    let mut all = exchanges.bindings(&namespace).into_iter();
    let binding = all
        .find(|it| id_of(&it.source, &it.destination, &it.key, &it.arguments) == id)
        .ok_or_else(|| no_such_binding(&id))?;
    check(&broker, &namespace, &binding.source, &binding.destination)?;
    let which = Unbind {
        source: &binding.source,
        destination: &binding.destination,
        key: &binding.key,
        arguments: &binding.arguments,
    };
    let stored = exchanges.unbind(&namespace, &which).map_err(|why| match why {
        UnbindError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, why),
        UnbindError::NoSuchExchange | UnbindError::NoSuchBinding => no_such_binding(&id),
        UnbindError::NotStored(error) => of_storage(error, error),
    })?;
    stamp::storing(stored).await.map_err(|why| of_storage(why, why))?;
    Ok(answer(
        StatusCode::OK,
        &BindingStatus::of(&entry(&namespace, Arc::clone(&binding))),
    ))
}

fn no_such_binding(id: &str) -> Problem {
    Problem::new(Code::NoSuchBinding, format!("there is no binding {id:?}"))
}

/// Returns the bindings of a namespace in the order of the list, with their fields, and true for those whose
/// headers JSON has.
pub(crate) fn defined(broker: &Broker, namespace: &Namespace) -> Vec<(Arc<Binding>, Value, bool)> {
    let all = broker.messaging().exchanges().bindings(namespace);
    let mut entries: Vec<_> = all.into_iter().map(|binding| entry(namespace, binding)).collect();
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let shown = entries.into_iter().map(|entry| {
        let headers = entry.binding.headers.as_deref();
        let mut pairs = headers.into_iter().flat_map(|headers| &headers.pairs);
        let is_whole = pairs
            .all(|(name, value)| std::str::from_utf8(name).is_ok() && value.as_ref().is_none_or(is_json));
        let shown = serde_json::json!(BindingStatus::of(&entry));
        (entry.binding, shown, is_whole)
    });
    shown.collect()
}

fn is_json(value: &HeaderValue) -> bool {
    match value {
        HeaderValue::Nothing | HeaderValue::Other(_) => false,
        HeaderValue::Integer(number) => i64::try_from(*number).is_ok(),
        HeaderValue::Float(bits) => f64::from_bits(*bits).is_finite(),
        HeaderValue::Text(text) => std::str::from_utf8(text).is_ok(),
        HeaderValue::Bool(_) => true,
    }
}

fn entry(namespace: &Namespace, binding: Arc<Binding>) -> Entry {
    let id = id_of(
        &binding.source,
        &binding.destination,
        &binding.key,
        &binding.arguments,
    );
    Entry {
        namespace: namespace.clone(),
        name: format!("{}\0{}\0{id}", binding.source, binding.destination.name()),
        id,
        binding,
    }
}

/// Returns the id of a binding: a hash of all by which it differs from others of its namespace.
fn id_of(source: &str, destination: &Destination, key: &[u8], arguments: &[u8]) -> String {
    let kind: &[u8] = match destination {
        Destination::Queue(_) => b"queue",
        Destination::Topic(_) => b"topic",
        Destination::Exchange(_) => b"exchange",
    };
    let mut hash = Sha256::new();
    for part in [
        source.as_bytes(),
        kind,
        destination.name().as_bytes(),
        key,
        arguments,
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let number = hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    format!("{number:032x}")
}

impl BindingStatus {
    fn of(entry: &Entry) -> Self {
        let binding = &*entry.binding;
        let name = binding.destination.name().to_string();
        let key = std::str::from_utf8(&binding.key).ok();
        let headers = binding.headers.as_deref();
        let pairs = headers.into_iter().flat_map(|headers| &headers.pairs);
        Self {
            id: entry.id.clone(),
            namespace: entry.namespace.to_string(),
            source: binding.source.to_string(),
            to: match &binding.destination {
                Destination::Queue(_) => To::Queue(name),
                Destination::Topic(_) => To::Topic(name),
                Destination::Exchange(_) => To::Exchange(name),
            },
            key: key.map(str::to_owned),
            key_base64: key.is_none().then(|| STANDARD.encode(&binding.key)),
            headers: pairs
                .map(|(name, value)| {
                    (
                        String::from_utf8_lossy(name).into_owned(),
                        json_of(value.as_ref()),
                    )
                })
                .collect(),
            mode: match headers.map(|headers| headers.mode) {
                Some(Mode::Any) => Match::Any,
                Some(Mode::All) | None => Match::All,
            },
            filter: headers
                .and_then(|headers| headers.filter.as_deref())
                .map(|filter| filter.source().to_owned()),
            declared: (!is_own(&binding.arguments)).then(|| STANDARD.encode(&binding.arguments)),
            durable: binding.durable,
        }
    }
}

/// Returns true for the arguments of a binding that was made here.
fn is_own(arguments: &[u8]) -> bool {
    arguments.is_empty() || serde_json::from_slice::<Vec<serde::de::IgnoredAny>>(arguments).is_ok()
}

fn json_of(value: Option<&HeaderValue>) -> Value {
    match value {
        None | Some(HeaderValue::Nothing) => Value::Null,
        Some(HeaderValue::Bool(flag)) => Value::from(*flag),
        Some(HeaderValue::Integer(number)) => {
            i64::try_from(*number).map_or_else(|_| number.to_string().into(), Value::from)
        }
        Some(HeaderValue::Float(bits)) => Value::from(f64::from_bits(*bits)),
        Some(HeaderValue::Text(text)) => Value::from(String::from_utf8_lossy(text)),
        Some(HeaderValue::Other(bytes)) => Value::from(STANDARD.encode(bytes)),
    }
}

impl Definition {
    fn binding(self) -> Result<NewBinding, Problem> {
        let pairs = self.headers.iter().map(|(name, value)| {
            let value = match value {
                Value::Null => None,
                Value::Bool(flag) => Some(HeaderValue::Bool(*flag)),
                Value::String(text) => Some(HeaderValue::Text(Bytes::copy_from_slice(text.as_bytes()))),
                Value::Number(number) => Some(match number.as_i64() {
                    Some(number) => HeaderValue::Integer(number.into()),
                    None => HeaderValue::Float(number.as_f64().unwrap_or_default().to_bits()),
                }),
                Value::Array(_) | Value::Object(_) => {
                    let why = format!("headers: {name:?} is a text, a number, a truth value or null");
                    return Err(Problem::bad_request(why));
                }
            };
            Ok((Bytes::copy_from_slice(name.as_bytes()), value))
        });
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        // Bindings that differ in their headers alone are two: the headers are part of the identity.
        let arguments = match &self.filter {
            _ if self.declared.is_some() => String::new(),
            Some(filter) => serde_json::json!([self.mode, self.headers, filter]).to_string(),
            None if pairs.is_empty() && self.mode == Match::All => String::new(),
            None => serde_json::json!([self.mode, self.headers]).to_string(),
        };
        let declared = declared(self.declared.as_deref())?;
        let filter = self.filter.as_deref().map(Filter::compile).transpose();
        let filter = filter.map_err(|why| Problem::bad_request(format!("filter: {why}")))?;
        Ok(NewBinding {
            source: self.source.into(),
            destination: match self.to {
                To::Queue(name) => Destination::Queue(name.into()),
                To::Topic(name) => Destination::Topic(name.into()),
                To::Exchange(name) => Destination::Exchange(name.into()),
            },
            key: self.key.into(),
            headers: HeaderMatch {
                mode: match self.mode {
                    Match::All => Mode::All,
                    Match::Any => Mode::Any,
                },
                pairs,
                filter: filter.map(Arc::new),
            },
            arguments: declared.unwrap_or_else(|| arguments.into()),
        })
    }
}
