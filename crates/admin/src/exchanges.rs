//! Exchanges: lists, makes and deletes them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body, stamp};
use stafett_messaging::exchanges::{DeclareError, DeleteError};
use stafett_messaging::{Destination, Exchange, NewExchange};
use stafett_model::Namespace;
use stafett_routing::{ExchangeKind, HashOn, Property};

use crate::access;
use crate::definition::declared;
use crate::refusals::{self, of_storage};
use crate::{Routes, answer, namespace};

/// Namespace of the exchange of a request.
pub(crate) const NAMESPACE: Parameter =
    Parameter::text("namespace", "Namespace of the exchange; / if it is absent.");
/// Beginning of names that are kept for exchanges that every namespace has.
const RESERVED: &str = "amq.";
const HEADER: &str = "header:";

const LIST: List<Entry, ExchangeStatus> = List {
    name: |entry| (entry.namespace.as_str(), &entry.exchange.name),
    sorts: &[("bindings", |entry| entry.bindings as u64)],
    shown,
};

/// An exchange of a list.
struct Entry {
    namespace: Namespace,
    exchange: Arc<Exchange>,
    /// Bindings from it.
    bindings: usize,
    counters: Counters,
    rates: Rates,
}

/// Choice of an exchange among the bindings' targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ExchangeKind")]
enum Kind {
    /// The default exchange: the routing key is the name of the queue or topic.
    Default,
    /// Bindings whose key is the routing key.
    Direct,
    /// All bindings.
    FanOut,
    /// Bindings whose key, a pattern of words, fits: `*` is one word, `#` any number of words.
    Topic,
    /// Bindings whose headers the message has.
    Headers,
    /// One binding, always the same for the same value; a binding's key is its weight.
    Hash,
}

/// Definition of an exchange.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewExchange")]
#[expect(clippy::struct_excessive_bools, reason = "fields of a request")]
struct Definition {
    kind: Kind,
    /// True, the default, if it survives a restart.
    #[serde(default = "yes")]
    durable: bool,
    /// True if it goes with its last binding.
    #[serde(default)]
    auto_delete: bool,
    /// True if it takes messages from other exchanges only.
    #[serde(default)]
    internal: bool,
    /// Exchange for messages that no binding takes.
    alternate: Option<String>,
    /// True if messages with a delay wait here before they are routed.
    #[serde(default)]
    delays: bool,
    /// Of a hash exchange: `key`, the default, `message-id`, `correlation-id`, `timestamp` or `header:NAME`.
    hash_on: Option<String>,
    /// Declaration by another protocol, in base64, as definitions show it.
    declared: Option<String>,
}

fn yes() -> bool {
    true
}

/// An exchange.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Exchange")]
#[expect(clippy::struct_excessive_bools, reason = "fields of an answer")]
struct ExchangeStatus {
    /// Empty for the default exchange.
    name: String,
    namespace: String,
    kind: Kind,
    durable: bool,
    /// True if it goes with its last binding.
    auto_delete: bool,
    /// True if it takes messages from other exchanges only.
    internal: bool,
    /// Exchange for messages that no binding takes.
    alternate: Option<String>,
    /// True if messages with a delay wait here before they are routed.
    delays: bool,
    /// Of a hash exchange.
    hash_on: Option<String>,
    /// Bindings from it.
    bindings: usize,
    counters: Counters,
    rates: Rates,
}

/// Messages since the start of the broker.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "ExchangeCounters")]
struct Counters {
    published: u64,
    /// Messages that led somewhere.
    routed: u64,
    unroutable: u64,
}

/// Messages per second, within the latest 5 s.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "ExchangeRates")]
struct Rates {
    published: f64,
    routed: f64,
    unroutable: f64,
}

/// Bindings that went with an exchange.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExchangeDeletion")]
struct Deletion {
    bindings: usize,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    const PATH: &str = "/v1/exchanges/{exchange}";
    routes
        .route(
            get(
                "/v1/exchanges",
                "Lists exchanges, those of one namespace or of all.",
            )
            .query(&[Parameter::text(
                "namespace",
                "Only the exchanges of this namespace.",
            )])
            .lists(&LIST)
            .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get(PATH, "Shows an exchange.")
                .query(&[NAMESPACE])
                .answers::<ExchangeStatus>(200)
                .refuses(&[Code::NotServing, Code::NoSuchExchange]),
            show,
        )
        .route(
            put(
                PATH,
                "Makes an exchange. One that is there with the same definition stays as it is.",
            )
            .event("exchange.made")
            .query(&[NAMESPACE])
            .body::<Definition>()
            .answers::<ExchangeStatus>(201)
            .answers::<ExchangeStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::ExistsDifferently]),
            make,
        )
        .route(
            delete(PATH, "Deletes an exchange with the bindings from it and to it.")
                .event("exchange.deleted")
                .query(&[
                    NAMESPACE,
                    Parameter::flag("if_unused", "Only if nothing is bound to it."),
                ])
                .answers::<Deletion>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[
                    Code::NoSuchNamespace,
                    Code::NoSuchExchange,
                    Code::InUse,
                    Code::IsDefault,
                ]),
            delete_exchange,
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
        let found = exchanges.list(&namespace).into_iter();
        all.extend(found.map(|exchange| entry(&broker, &namespace, exchange)));
    }
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let found = find(&broker, &namespace, &name)?;
    Ok(answer(StatusCode::OK, &shown(&entry(&broker, &namespace, found))))
}

async fn make(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Definition = body::json(request).await?;
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let exchanges = broker.messaging().exchanges();
    let is_there = exchanges.get(&namespace, &name).is_some();
    let is_reserved = name.starts_with(RESERVED) && !is_there || name.contains(|it: char| it.is_control());
    if name.is_empty() || is_reserved {
        let why = format!(
            "an exchange's name is not empty, has no control characters, and does not begin with {RESERVED}"
        );
        return Err(Problem::bad_request(why));
    }
    if let Some(alternate) = wanted.alternate.as_deref() {
        let named = Resource::exchange(namespace.as_str(), &name);
        access::check(&broker, Action::Read, &named)?;
        access::check_forwarding(&broker, &namespace, alternate, None)?;
    }
    let declared = exchanges.declare(&namespace, &name, wanted.exchange()?);
    let (exchange, stored) = declared.map_err(|why| match &why {
        DeclareError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, why),
        DeclareError::NameTooLong => Problem::bad_request(why.to_string()),
        DeclareError::Differs { difference, .. } => {
            let field = format!("{difference:?}").to_lowercase();
            Problem::new(Code::ExistsDifferently, why).with("field", field)
        }
        DeclareError::NotStored(error) => of_storage(*error, error),
    })?;
    stamp::storing(stored).await.map_err(|why| of_storage(why, why))?;
    let status = if is_there {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(answer(status, &shown(&entry(&broker, &namespace, exchange))))
}

async fn delete_exchange(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = namespace(&query);
    if name.starts_with(RESERVED) {
        let why = format!("exchanges whose names begin with {RESERVED} belong to the namespace");
        return Err(Problem::new(Code::IsDefault, why));
    }
    let exchanges = broker.messaging().exchanges();
    let to = Destination::Exchange(name.as_str().into());
    let bindings =
        exchanges.bindings_from(&namespace, &name).len() + exchanges.bindings_to(&namespace, &to).len();
    let deleted = exchanges.delete(&namespace, &name, query.flag("if_unused")?);
    let stored = deleted.map_err(|why| match why {
        DeleteError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, why),
        DeleteError::NoSuchExchange => Problem::new(Code::NoSuchExchange, why),
        DeleteError::InUse => Problem::new(Code::InUse, why),
        DeleteError::IsDefault => Problem::new(Code::IsDefault, why),
        DeleteError::NotStored(error) => of_storage(error, error),
    })?;
    stamp::storing(stored).await.map_err(|why| of_storage(why, why))?;
    Ok(answer(StatusCode::OK, &Deletion { bindings }))
}

/// Finds an exchange by name.
pub(crate) fn find(broker: &Broker, namespace: &Namespace, name: &str) -> Result<Arc<Exchange>, Problem> {
    broker
        .messaging()
        .exchanges()
        .get(namespace, name)
        .ok_or_else(|| Problem::new(Code::NoSuchExchange, format!("there is no exchange {name:?}")))
}

fn entry(broker: &Broker, namespace: &Namespace, exchange: Arc<Exchange>) -> Entry {
    let exchanges = broker.messaging().exchanges();
    let traffic = exchanges.traffic(namespace, &exchange.name);
    let counts = traffic
        .as_ref()
        .map(|traffic| traffic.counts())
        .unwrap_or_default();
    let rate = |at| {
        traffic
            .as_ref()
            .map_or(0.0, |traffic| exchanges.sampler().rate(traffic, at))
    };
    Entry {
        counters: Counters {
            published: counts.published,
            routed: counts.routed,
            unroutable: counts.unroutable,
        },
        rates: Rates {
            published: rate(0),
            routed: rate(1),
            unroutable: rate(2),
        },
        namespace: namespace.clone(),
        bindings: exchanges.bindings_from(namespace, &exchange.name).len(),
        exchange,
    }
}

fn shown(entry: &Entry) -> ExchangeStatus {
    let is = &entry.exchange.is;
    let (kind, hash_on) = match &is.kind {
        ExchangeKind::ByName => (Kind::Default, None),
        ExchangeKind::Direct => (Kind::Direct, None),
        ExchangeKind::FanOut => (Kind::FanOut, None),
        ExchangeKind::Topic => (Kind::Topic, None),
        ExchangeKind::Headers => (Kind::Headers, None),
        ExchangeKind::Hashed(on) => (Kind::Hash, Some(word(on))),
    };
    ExchangeStatus {
        name: entry.exchange.name.to_string(),
        namespace: entry.namespace.to_string(),
        kind,
        durable: is.durable,
        auto_delete: is.auto_delete,
        internal: is.internal,
        alternate: is.alternate.as_deref().map(str::to_owned),
        delays: is.delays,
        hash_on,
        bindings: entry.bindings,
        counters: entry.counters,
        rates: entry.rates,
    }
}

fn word(on: &HashOn) -> String {
    match on {
        HashOn::Key => "key".to_owned(),
        HashOn::Header(name) => format!("{HEADER}{name}"),
        HashOn::Property(Property::MessageId) => "message-id".to_owned(),
        HashOn::Property(Property::CorrelationId) => "correlation-id".to_owned(),
        HashOn::Property(Property::Timestamp) => "timestamp".to_owned(),
    }
}

fn hash_on(word: Option<&str>) -> Result<HashOn, Problem> {
    match word {
        None | Some("key") => Ok(HashOn::Key),
        Some("message-id") => Ok(HashOn::Property(Property::MessageId)),
        Some("correlation-id") => Ok(HashOn::Property(Property::CorrelationId)),
        Some("timestamp") => Ok(HashOn::Property(Property::Timestamp)),
        Some(other) => match other.strip_prefix(HEADER) {
            Some(name) if !name.is_empty() => Ok(HashOn::Header(name.into())),
            _ => Err(Problem::bad_request(format!(
                "hash_on is key, message-id, correlation-id, timestamp or {HEADER}NAME, not {other:?}"
            ))),
        },
    }
}

impl Definition {
    fn exchange(self) -> Result<NewExchange, Problem> {
        let kind = match self.kind {
            Kind::Default => {
                let why = "kind: there is one default exchange, and it is there";
                return Err(Problem::bad_request(why));
            }
            Kind::Direct => ExchangeKind::Direct,
            Kind::FanOut => ExchangeKind::FanOut,
            Kind::Topic => ExchangeKind::Topic,
            Kind::Headers => ExchangeKind::Headers,
            Kind::Hash => ExchangeKind::Hashed(hash_on(self.hash_on.as_deref())?),
        };
        if self.hash_on.is_some() && self.kind != Kind::Hash {
            return Err(Problem::bad_request("hash_on is for exchanges of kind hash"));
        }
        Ok(NewExchange {
            durable: self.durable,
            auto_delete: self.auto_delete,
            internal: self.internal,
            alternate: self.alternate.map(Into::into),
            delays: self.delays,
            arguments: declared(self.declared.as_deref())?.unwrap_or_default(),
            ..NewExchange::new(kind)
        })
    }
}
