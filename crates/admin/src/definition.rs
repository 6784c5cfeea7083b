//! Definitions of queues: making one, and its settings in answers.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::api::put;
use stafett_http::{Code, Path, Problem, Query, Slot, body, stamp};
use stafett_messaging::queues::{
    DeadLetter, Declare, DeclareError, Overflow, Queue, QueueSettings, TopicQueueSpec,
};
use stafett_model::{Durability, Namespace};

use crate::access;
use crate::caller::OnlyIfAbsent;
use crate::queues::{NAMESPACE, QueueStatus, shown};
use crate::refusals::{self, of_storage};
use crate::{Routes, answer, namespace};

/// Bound on the bytes of a queue's name.
const NAME_BYTES_MAX: usize = 255;
/// Bound on the bytes of a declaration by another protocol.
const DECLARED_BYTES_MAX: usize = 64 << 10;

/// Definition of a queue. All fields are optional.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "NewQueue")]
struct Definition {
    /// True, the default, if it survives a restart with its messages.
    durable: bool,
    /// True if it goes with its last consumer.
    auto_delete: bool,
    /// Highest priority; 0, the default, if messages have none.
    priority_max: u8,
    /// `sync`, `os`, `memory` or `interval:…`; that of the broker if it is absent.
    durability: Option<String>,
    /// Longest time of a message in the queue.
    ttl_ms: Option<u64>,
    /// Time without use after which the queue is deleted.
    #[schemars(range(min = 1))]
    expires_ms: Option<u64>,
    length_max: Option<u64>,
    bytes_max: Option<u64>,
    overflow: OverflowWord,
    dead_letter: Option<DeadLetterTo>,
    /// Number of returns after which a message dies.
    delivery_limit: Option<u32>,
    single_active_consumer: bool,
    /// Number of settled messages that are kept, to be read as a topic.
    retain: u64,
    /// Lays the queue over a stored topic.
    over: Option<Over>,
    /// Properties that clients of other protocols give their queues.
    traits: Vec<Trait>,
    /// Declaration by another protocol, in base64, as definitions show it.
    declared: Option<String>,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            durable: true,
            auto_delete: false,
            priority_max: 0,
            durability: None,
            ttl_ms: None,
            expires_ms: None,
            length_max: None,
            bytes_max: None,
            overflow: OverflowWord::Reject,
            dead_letter: None,
            delivery_limit: None,
            single_active_consumer: false,
            retain: 0,
            over: None,
            traits: Vec::new(),
            declared: None,
        }
    }
}

/// Property of a queue that clients of other protocols give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "QueueTrait")]
enum Trait {
    /// Two priorities, normal and high.
    TwoPriorities,
    /// The delivery limit is one that no declaration names: a policy may raise it.
    DefaultDeliveryLimit,
    /// The active consumer makes way for one of a higher priority.
    ActiveYields,
    /// Transient messages survive a restart.
    KeepsTransient,
}

impl Trait {
    const ALL: [Self; 4] = [
        Self::TwoPriorities,
        Self::DefaultDeliveryLimit,
        Self::ActiveYields,
        Self::KeepsTransient,
    ];

    fn of(self, settings: &mut QueueSettings) -> &mut bool {
        match self {
            Self::TwoPriorities => &mut settings.two_priorities,
            Self::DefaultDeliveryLimit => &mut settings.has_default_delivery_limit,
            Self::ActiveYields => &mut settings.active_yields,
            Self::KeepsTransient => &mut settings.keeps_transient,
        }
    }
}

/// Fate of messages beyond `length_max` or `bytes_max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Overflow")]
pub(crate) enum OverflowWord {
    /// The oldest message is dropped or dead-lettered.
    DropHead,
    /// The new message is refused.
    #[default]
    Reject,
    /// The new message is refused and dead-lettered.
    RejectDeadLetter,
}

/// Target of dead letters.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterTo {
    /// Exchange; empty for the default exchange, whose routing keys are names of queues.
    #[serde(default)]
    exchange: String,
    /// Routing key; that of the message if it is absent.
    routing_key: Option<String>,
}

/// Target of dead letters of a queue.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetter")]
struct DeadLetterOf {
    /// Exchange; empty for the default exchange, whose routing keys are names of queues.
    exchange: String,
    /// Routing key; null if it is that of the message.
    routing_key: Option<String>,
}

/// Stored topic under a queue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Over {
    topic: String,
    /// `earliest`, the default, or `latest`.
    from: Option<String>,
}

/// Settings of a queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Settings {
    /// `sync`, `os`, `memory` or `interval:…`.
    durability: Option<String>,
    priority_max: u8,
    ttl_ms: Option<u64>,
    expires_ms: Option<u64>,
    length_max: Option<u64>,
    bytes_max: Option<u64>,
    overflow: OverflowWord,
    dead_letter: Option<DeadLetterOf>,
    delivery_limit: Option<u32>,
    single_active_consumer: bool,
    retain: u64,
}

/// Definition of a queue that is there, by the fields that make it.
#[derive(Debug, Serialize)]
struct Defined {
    name: String,
    namespace: String,
    durable: bool,
    auto_delete: bool,
    #[serde(flatten)]
    settings: Settings,
    over: Option<OverOf>,
    traits: Option<Vec<Trait>>,
    declared: Option<String>,
    /// Changes since the declaration, as `PATCH` takes them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    changed: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct OverOf {
    topic: String,
}

/// Returns the definition of a queue, without the effects of policies.
pub(crate) fn defined(broker: &Broker, queue: &Queue) -> impl Serialize + use<> {
    let mut declared = (*queue.declared).clone();
    let own = queue.own_settings();
    let own = Settings::with(&own, own.durability.map(|level| level.to_string()));
    let settings = Settings::with(&declared, declared.durability.map(|level| level.to_string()));
    let mut traits = Trait::ALL.to_vec();
    traits.retain(|known| *known.of(&mut declared));
    let topic = queue.over.and_then(|topic| broker.topics().with_id(topic));
    Defined {
        name: queue.name.to_string(),
        namespace: queue.namespace.to_string(),
        durable: queue.durable,
        auto_delete: queue.auto_delete,
        changed: changes(&settings, &own),
        settings,
        over: topic.map(|topic| OverOf {
            topic: topic.name.to_string(),
        }),
        traits: Some(traits).filter(|traits| !traits.is_empty()),
        declared: queue.arguments.as_deref().map(|bytes| STANDARD.encode(bytes)),
    }
}

/// Returns the settings that differ from those of the declaration.
fn changes(declared: &Settings, own: &Settings) -> Map<String, Value> {
    let declared = json!(declared);
    let Value::Object(mut own) = json!(own) else {
        return Map::new();
    };
    own.retain(|name, value| declared.get(name) != Some(value));
    own
}

impl Settings {
    /// Returns the settings in force.
    pub(crate) fn of(queue: &Queue) -> Self {
        let durability = queue.durability().map(|level| level.to_string());
        Self::with(&queue.settings(), durability)
    }

    fn with(settings: &QueueSettings, durability: Option<String>) -> Self {
        let dead_letter = settings.dead_letter.as_ref();
        Self {
            durability,
            priority_max: settings.priority_max,
            ttl_ms: settings.ttl_ms,
            expires_ms: settings.expires_ms,
            length_max: settings.length_max,
            bytes_max: settings.bytes_max,
            overflow: settings.overflow.into(),
            dead_letter: dead_letter.map(|to| DeadLetterOf {
                exchange: to.exchange.to_string(),
                routing_key: to.routing_key.as_ref().map(ToString::to_string),
            }),
            delivery_limit: settings.delivery_limit,
            single_active_consumer: settings.single_active_consumer,
            retain: settings.retain,
        }
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        put(
            "/v1/queues/{queue}",
            "Makes a queue. One that is there with the same definition stays as it is.",
        )
        .event("queue.made")
        .query(&[NAMESPACE])
        .body::<Definition>()
        .answers::<QueueStatus>(201)
        .answers::<QueueStatus>(200)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::NoSuchNamespace,
            Code::NoSuchTopic,
            Code::LimitReached,
            Code::ExistsDifferently,
            Code::Exclusive,
            Code::OutOfRange,
        ]),
        make,
    )
}

async fn make(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let wanted: Definition = body::json(request).await?;
    let is_reserved = name.starts_with("amq.") || name.contains(|letter: char| letter.is_control());
    if name.is_empty() || name.len() > NAME_BYTES_MAX || is_reserved {
        let why = format!(
            "a queue's name has 1 to {NAME_BYTES_MAX} bytes, no control characters, and does not begin with amq."
        );
        return Err(Problem::bad_request(why));
    }
    let broker = broker.get()?;
    let namespace = namespace(&query);
    let queues = broker.messaging().queues();
    if let Some(to) = &wanted.dead_letter {
        to.check(&broker, &namespace, &name)?;
    }
    let mut declare = wanted.declare(&broker)?;
    if let Some(existing) = queues.get(&namespace, &name) {
        // Of a queue that is there, the settings are compared.
        declare.arguments.clone_from(&existing.arguments);
    }
    let refused = |why: DeclareError| match why {
        DeclareError::NotStored(why) => of_storage(why, why),
        DeclareError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, why),
        DeclareError::NoSuchTopic => Problem::new(Code::NoSuchTopic, why),
        DeclareError::TooMany { .. } => Problem::new(Code::LimitReached, why),
        DeclareError::Locked => Problem::new(Code::Exclusive, why),
        DeclareError::Differs { what } => Problem::new(Code::ExistsDifferently, why).with("field", what),
    };
    let declared = queues
        .begin_declaring(&namespace, &name, declare)
        .map_err(refused)?;
    OnlyIfAbsent::check(declared.is_new() || !only_if_absent)?;
    let status = if declared.is_new() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let queue = stamp::storing(declared.stored()).await.map_err(refused)?;
    Ok(answer(status, &shown(&queue)))
}

impl Definition {
    fn declare(self, broker: &Broker) -> Result<Declare, Problem> {
        let over = self.over.as_ref().map(|over| over.spec(broker)).transpose()?;
        if over.is_some() && (self.priority_max > 0 || self.length_max.or(self.bytes_max).is_some()) {
            let why = "a queue over a topic has neither priorities nor limits: its messages are the topic's";
            return Err(Problem::bad_request(why));
        }
        check_expires(self.expires_ms)?;
        let durability = self.durability.as_deref().map(level);
        let declared = declared(self.declared.as_deref())?;
        let has_limit = self.length_max.or(self.bytes_max).is_some();
        let mut settings = QueueSettings {
            ttl_ms: self.ttl_ms,
            expires_ms: self.expires_ms,
            length_max: self.length_max,
            bytes_max: self.bytes_max,
            // Without a limit, a declaration of another protocol does not name it.
            overflow: if has_limit || declared.is_some() {
                self.overflow.into()
            } else {
                Overflow::default()
            },
            dead_letter: self.dead_letter.map(Into::into),
            priority_max: self.priority_max,
            delivery_limit: self.delivery_limit,
            single_active_consumer: self.single_active_consumer,
            durability: durability.transpose()?,
            retain: self.retain,
            ..QueueSettings::default()
        };
        for given in self.traits {
            *given.of(&mut settings) = true;
        }
        Ok(Declare {
            durable: self.durable,
            auto_delete: self.auto_delete,
            settings,
            arguments: declared,
            over,
            ..Declare::default()
        })
    }
}

impl From<OverflowWord> for Overflow {
    fn from(word: OverflowWord) -> Self {
        match word {
            OverflowWord::DropHead => Self::DropHead,
            OverflowWord::Reject => Self::RejectPublish,
            OverflowWord::RejectDeadLetter => Self::RejectPublishDeadLetter,
        }
    }
}

impl From<Overflow> for OverflowWord {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::DropHead => Self::DropHead,
            Overflow::RejectPublish => Self::Reject,
            Overflow::RejectPublishDeadLetter => Self::RejectDeadLetter,
        }
    }
}

impl From<DeadLetterTo> for DeadLetter {
    fn from(to: DeadLetterTo) -> Self {
        Self {
            exchange: to.exchange.into(),
            routing_key: to.routing_key.map(Into::into),
        }
    }
}

/// Reads a declaration by another protocol, which is opaque here.
pub(crate) fn declared(base64: Option<&str>) -> Result<Option<Bytes>, Problem> {
    let bytes = base64.map(|text| STANDARD.decode(text)).transpose();
    let bytes = bytes.ok().filter(|bytes| {
        bytes
            .as_ref()
            .is_none_or(|bytes| bytes.len() <= DECLARED_BYTES_MAX)
    });
    let bytes = bytes.ok_or_else(|| {
        let why = format!("declared is base64 of {DECLARED_BYTES_MAX} bytes at most");
        Problem::bad_request(why).with("field", "declared")
    })?;
    Ok(bytes.map(Bytes::from))
}

/// Reads a durability.
pub(crate) fn level(word: &str) -> Result<Durability, Problem> {
    let level = word.parse().map_err(|why| format!("durability: {why}"));
    level.map_err(Problem::bad_request)
}

/// Refuses a time without use that ends as it begins.
pub(crate) fn check_expires(ms: Option<u64>) -> Result<(), Problem> {
    if ms != Some(0) {
        return Ok(());
    }
    let why = "expires_ms is at least 1: with 0 the queue would be deleted at once";
    let problem = Problem::new(Code::OutOfRange, why).with("field", "expires_ms");
    Err(problem.with("min", 1).with("max", u64::MAX))
}

impl DeadLetterTo {
    /// Dead letters are read from the queue and written to the exchange.
    pub(crate) fn check(&self, broker: &Broker, namespace: &Namespace, queue: &str) -> Result<(), Problem> {
        access::check_queue(broker, Action::Read, namespace, queue)?;
        access::check_forwarding(broker, namespace, &self.exchange, self.routing_key.as_deref())
    }
}

impl Over {
    fn spec(&self, broker: &Broker) -> Result<TopicQueueSpec, Problem> {
        let from_end = match self.from.as_deref() {
            None | Some("earliest") => false,
            Some("latest") => true,
            Some(other) => {
                let why = format!("over.from is earliest or latest, not {other:?}");
                return Err(Problem::bad_request(why));
            }
        };
        access::check(broker, Action::Read, &Resource::topic(&self.topic))?;
        let topic = broker.topics().named(&self.topic);
        let topic = topic.ok_or_else(|| {
            let why = format!("there is no topic {:?}", self.topic);
            Problem::new(Code::NoSuchTopic, why)
        })?;
        Ok(TopicQueueSpec {
            topic: topic.id,
            from_end,
        })
    }
}
