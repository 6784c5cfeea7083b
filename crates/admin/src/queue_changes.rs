//! Changes of queues while they are there: settings, and pauses.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use stafett_broker::Broker;
use stafett_http::api::{patch, post};
use stafett_http::{Code, Path, Problem, Query, Slot, body};
use stafett_messaging::queues::{ChangeError, Overflow, QueueSettings, Setting};

use crate::definition::{DeadLetterTo, OverflowWord, check_expires, level};
use crate::queues::{NAMESPACE, QueueStatus, find, shown};
use crate::refusals::{self, of_storage};
use crate::{Routes, answer, namespace};

/// New settings of a queue. Absent ones stay as they are; null is the default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    /// `sync`, `os`, `memory` or `interval:…`.
    #[serde(deserialize_with = "given")]
    durability: Given<String>,
    /// Longest time of a message in the queue.
    #[serde(deserialize_with = "given")]
    ttl_ms: Given<u64>,
    /// Time without use after which the queue is deleted.
    #[serde(deserialize_with = "given")]
    #[schemars(range(min = 1))]
    expires_ms: Given<u64>,
    #[serde(deserialize_with = "given")]
    length_max: Given<u64>,
    #[serde(deserialize_with = "given")]
    bytes_max: Given<u64>,
    #[serde(deserialize_with = "given")]
    overflow: Given<OverflowWord>,
    #[serde(deserialize_with = "given")]
    dead_letter: Given<DeadLetterTo>,
    /// Number of returns after which a message dies.
    #[serde(deserialize_with = "given")]
    delivery_limit: Given<u32>,
    /// Number of settled messages that are kept, to be read as a topic.
    #[serde(deserialize_with = "given")]
    retain: Given<u64>,
    // Fields of a definition that do not change are refused as such.
    #[schemars(skip)]
    durable: Option<Value>,
    #[schemars(skip)]
    auto_delete: Option<Value>,
    #[schemars(skip)]
    priority_max: Option<Value>,
    #[schemars(skip)]
    single_active_consumer: Option<Value>,
    #[schemars(skip)]
    over: Option<Value>,
}

/// A field that may be there, with a value or null.
type Given<T> = Option<Option<T>>;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            patch(
                "/v1/queues/{queue}",
                "Changes settings of a queue, for messages that wait too. Declarations of other protocols are compared \
                 with those that the queue was made with.",
            )
            .event("queue.changed")
            .query(&[NAMESPACE])
            .body::<Changes>()
            .answers::<QueueStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchQueue, Code::Immutable, Code::OutOfRange]),
            change,
        )
        .route(
            post(
                "/v1/queues/{queue}/pause",
                "Stops the hand-out: messages are still accepted, and wait.",
            )
            .event("queue.paused")
            .query(&[NAMESPACE])
            .answers::<QueueStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchQueue]),
            pause,
        )
        .route(
            post("/v1/queues/{queue}/resume", "Ends a pause.")
                .event("queue.resumed")
                .query(&[NAMESPACE])
                .answers::<QueueStatus>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchQueue]),
            resume,
        )
}

/// Reads a field that is present, so that null is not absent.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(reader: D) -> Result<Given<T>, D::Error> {
    Option::deserialize(reader).map(Some)
}

async fn change(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Changes = body::json(request).await?;
    wanted.check()?;
    let durability = match &wanted.durability {
        Some(Some(word)) => Some(Some(level(word)?)),
        Some(None) => Some(None),
        None => None,
    };
    let broker = broker.get()?;
    let namespace = namespace(&query);
    if let Some(Some(to)) = &wanted.dead_letter {
        to.check(&broker, &namespace, &name)?;
    }
    let queue = find(&broker, &namespace, &name)?;
    let change = |in_force: &QueueSettings| {
        let mut settings = wanted.settings(in_force);
        settings.extend(durability.map(Setting::Durability));
        settings
    };
    let queues = broker.messaging().queues();
    queues.change_settings(&queue, change).await.map_err(refused)?;
    Ok(answer(StatusCode::OK, &shown(&queue)))
}

fn refused(error: ChangeError) -> Problem {
    match error {
        ChangeError::Gone => Problem::new(Code::NoSuchQueue, error),
        ChangeError::Immutable { what } => Problem::new(Code::Immutable, error).with("field", what),
        ChangeError::NotStored(why) => of_storage(why, why),
    }
}

async fn pause(broker: State<Slot<Broker>>, name: Path<String>, query: Query) -> Result<Response, Problem> {
    set_paused(broker, name, query, true).await
}

async fn resume(broker: State<Slot<Broker>>, name: Path<String>, query: Query) -> Result<Response, Problem> {
    set_paused(broker, name, query, false).await
}

async fn set_paused(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    is_paused: bool,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queue = find(&broker, &namespace(&query), &name)?;
    let queues = broker.messaging().queues();
    queues.pause(&queue, is_paused).await.map_err(refused)?;
    Ok(answer(StatusCode::OK, &shown(&queue)))
}

impl Changes {
    fn check(&self) -> Result<(), Problem> {
        let fields = [
            ("durable", &self.durable),
            ("auto_delete", &self.auto_delete),
            ("priority_max", &self.priority_max),
            ("single_active_consumer", &self.single_active_consumer),
            ("over", &self.over),
        ];
        if let Some((field, _)) = fields.iter().find(|(_, value)| value.is_some()) {
            let why =
                format!("{field} of a queue does not change: make another queue, and move the messages");
            return Err(Problem::new(Code::Immutable, why).with("field", *field));
        }
        check_expires(self.expires_ms.flatten())
    }

    /// Returns the new settings, without the durability.
    fn settings(&self, in_force: &QueueSettings) -> Vec<Setting> {
        let mut settings = Vec::new();
        settings.extend(self.ttl_ms.map(Setting::TtlMs));
        settings.extend(self.expires_ms.map(Setting::ExpiresMs));
        settings.extend(self.length_max.map(Setting::LengthMax));
        settings.extend(self.bytes_max.map(Setting::BytesMax));
        settings.extend(self.delivery_limit.map(Setting::DeliveryLimit));
        settings.extend(self.retain.map(|count| Setting::Retain(count.unwrap_or(0))));
        let dead_letter = self.dead_letter.clone();
        settings.extend(dead_letter.map(|to| Setting::DeadLetter(to.map(Into::into))));
        let overflow = self.overflow.map(Option::unwrap_or_default);
        let has_limits = in_force.with(&settings).has_limits();
        let overflow = match overflow {
            Some(word) => Some(word.into()),
            // A queue that gets its first limit loses no message by a field that was forgotten.
            None if has_limits && !in_force.has_limits() => Some(Overflow::RejectPublish),
            None => None,
        };
        settings.extend(overflow.map(Setting::Overflow));
        settings
    }
}
