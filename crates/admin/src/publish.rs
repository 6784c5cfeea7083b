//! Publishing to exchanges.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Path, Problem, Query, Slot, body, stamp};
use stafett_messaging::{Preview, Publish};
use stafett_model::{Message, Namespace};
use stafett_store::wall_ms;

use crate::caller::Caller;
use crate::content::{self, Headers, JSON};
use crate::exchanges::NAMESPACE;
use crate::key::{self, Key};
use crate::message::{CONTENT_TYPE, CONTEXT, MESSAGE_ID, REPLY_TO};
use crate::refusals::{self, of_outcome, of_publishing};
use crate::sender::{CONTEXT_MAX, Sender};
use crate::{Routes, answer, namespace};

/// A message to be published.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Publication {
    routing_key: String,
    /// Decides the partition of a topic.
    key: Option<String>,
    /// A text stands for itself, any other value for its JSON.
    #[schemars(with = "Option<serde_json::Value>")]
    content: Option<Box<RawValue>>,
    content_base64: Option<String>,
    priority: u8,
    /// Context of the request to which this is the response.
    #[schemars(range(max = 0x20_0000_0000_0000_u64))]
    context: Option<u64>,
    /// Longest time in a queue.
    ttl_ms: Option<u64>,
    /// Time before an exchange that delays routes it.
    delay_ms: Option<u64>,
    content_type: Option<String>,
    /// One is made if it is absent.
    message_id: Option<String>,
    /// Queue for responses.
    reply_to: Option<String>,
    headers: Headers,
}

/// Targets of a message.
#[derive(Debug, Serialize, JsonSchema)]
struct Routed {
    /// Null if nothing was stored.
    message_id: Option<String>,
    /// Names of queues.
    #[serde(rename = "routed")]
    queues: Vec<String>,
    /// Names of topics.
    topics: Vec<String>,
    /// Exchanges at which the message waits for its delay to end.
    delayed_at: Vec<String>,
    /// True if an earlier request with the same Idempotency-Key stored the message.
    repeated: bool,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post(
                "/v1/exchanges/{exchange}/publish",
                "Publishes a message. The answer comes once all queues and topics to which it is routed have it. \
                 With the header Idempotency-Key, sending again stores once.",
            )
            .query(&[NAMESPACE])
            .headers(&[key::HEADER])
            .body::<Publication>()
            .answers::<Routed>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&refusals::PUBLISHING),
            publish,
        )
        .route(
            post(
                "/v1/exchanges/{exchange}/route",
                "Says where a message would go. Nothing is stored.",
            )
            .query(&[NAMESPACE])
            .body::<Publication>()
            .answers::<Routed>(200)
            .refuses(&[
                Code::NotServing,
                Code::NoSuchNamespace,
                Code::NoSuchExchange,
                Code::InternalExchange,
                Code::NotRegistered,
            ]),
            route,
        )
}

async fn publish(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let space = namespace(&query);
    let key = Key::of(request.headers(), &caller, &["exchange", space.as_str(), &name])?;
    let (broker, namespace, message) = message(&broker, &name, caller, &query, (request, key)).await?;
    let messaging = broker.messaging();
    let targets = messaging
        .preview(&namespace, &name, &message)
        .map_err(of_publishing)?;
    let id = message
        .message
        .headers
        .iter()
        .find(|(name, _)| name == MESSAGE_ID);
    let id = id.and_then(|(_, id)| Some(String::from_utf8_lossy(id.as_ref()?).into_owned()));
    let ticket = messaging.publish_once(&namespace, &name, vec![message], key.map(Key::request));
    let mut ticket = ticket.map_err(of_publishing)?;
    let outcomes = stamp::storing(&mut ticket).await;
    outcomes.into_iter().try_for_each(of_outcome)?;
    let routed = Routed {
        repeated: ticket.is_repeated(),
        ..routed(id, targets)
    };
    Ok(answer(StatusCode::CREATED, &routed))
}

async fn route(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let (broker, namespace, message) = message(&broker, &name, caller, &query, (request, None)).await?;
    let targets = broker.messaging().preview(&namespace, &name, &message);
    let targets = targets.map_err(of_publishing)?;
    Ok(answer(StatusCode::OK, &routed(None, targets)))
}

/// Reads the message of a request to an exchange.
async fn message(
    broker: &Slot<Broker>,
    exchange: &str,
    caller: Caller,
    query: &Query,
    (request, key): (Request, Option<Key>),
) -> Result<(Arc<Broker>, Namespace, Publish), Problem> {
    let given: Publication = body::json(request).await?;
    let broker = broker.get()?;
    let namespace = namespace(query);
    let sender = Sender::new(&broker, caller, namespace.clone())?;
    let (value, is_json) = content::read(given.content.as_deref(), given.content_base64.as_deref())?;
    if given.context.is_some_and(|context| context >= CONTEXT_MAX) {
        return Err(Problem::bad_request("context is a number below 2^53"));
    }
    let id = given.message_id.unwrap_or_else(|| key::message_id(key));
    let fields = [
        (CONTEXT, given.context.map(|context| context.to_string())),
        (REPLY_TO, given.reply_to),
        (
            CONTENT_TYPE,
            given.content_type.or_else(|| is_json.then(|| JSON.to_owned())),
        ),
        (MESSAGE_ID, Some(id)),
    ];
    let message = Message {
        exchange: exchange.into(),
        routing_key: given.routing_key.into(),
        key: given.key.map(Bytes::from),
        value,
        timestamp_ms: wall_ms(),
        priority: given.priority,
        ttl_ms: given.ttl_ms,
        delay_ms: given.delay_ms,
        persistent: true,
        headers: sender.headers(&given.headers, fields)?,
        ..Message::default()
    };
    Ok((broker, namespace, message.into()))
}

fn routed(message_id: Option<String>, targets: Preview) -> Routed {
    let names = |names: Vec<Arc<str>>| names.iter().map(ToString::to_string).collect();
    Routed {
        message_id,
        queues: names(targets.queues),
        topics: names(targets.topics),
        delayed_at: names(targets.delayed_at),
        repeated: false,
    }
}
