//! Publishing to live topics.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stafett_access::{Action, Kind, Resource};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::body::Object;
use stafett_http::{Code, Problem, Slot, body, stamp};
use stafett_live_topics::{Live, Message, NotStored, Outcome, Payload, PendingAppends, Published};

use crate::refusals::{self, of_storage};
use crate::{Routes, access, answer};

/// Bound on the messages of a body.
const MESSAGES_MAX: usize = 10_000;
/// Longest name of a topic.
const TOPIC_BYTES_MAX: usize = 1024;
const LIMIT: body::Limit = body::Limit {
    bytes_max: 1 << 20,
    setting: "of a body with messages to live topics",
};

/// A message to a live topic.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LiveMessage")]
struct Posted<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    /// Any JSON, delivered as it was written.
    #[serde(borrow, default, deserialize_with = "any")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<&'a RawValue>,
    /// Bytes instead of JSON.
    payload_base64: Option<String>,
    /// Milliseconds since 1970.
    timestamp: Option<i64>,
    /// Id of the message, for the filter of duplicates.
    #[serde(borrow)]
    message_id: Option<Cow<'a, str>>,
}

/// One message, or a list of them.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "LiveMessages")]
#[expect(dead_code, reason = "describes the body, which is read by its first byte")]
enum Body {
    One(Posted<'static>),
    Several(Vec<Posted<'static>>),
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("read by `read`"))
    }
}

/// Outcome of the messages of a request.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "LivePublished")]
struct Counts {
    /// Clients that listen and got a message, summed over the messages.
    receivers: usize,
    /// Messages that the filter of duplicates dropped.
    duplicates: usize,
    /// Messages stored in the topics behind theirs, for delivery from there.
    stored: usize,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            "/v1/live/publish",
            "Publishes a message to a live topic, or a list of messages. Those of topics with a log behind them are \
             stored when it is answered.",
        )
        .body::<Body>()
        .answers::<Counts>(200)
        .refuses(&refusals::STORAGE)
        .refuses(&[Code::TooLarge, Code::SlowBody, Code::BadJson, Code::UnknownField]),
        publish,
    )
}

/// Reads a field so that an explicit `null` counts as present.
fn any<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

async fn publish(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let posted = body::read(request, LIMIT).await?;
    let broker = broker.get()?;
    let live = broker.live_topics();
    let messages = read(posted.text()?)?;
    for message in &messages {
        let topic = Resource::new(Kind::LiveTopic, &message.topic);
        access::check(&broker, Action::Write, &topic)?;
    }
    let (counts, staged) = publish_all(live, &messages)?;
    if let Some(ticket) = live.store(staged) {
        stored(stamp::storing(ticket).await)?;
    }
    Ok(answer(StatusCode::OK, &counts))
}

fn read(text: &str) -> Result<Vec<Posted<'_>>, Problem> {
    if text.trim_start().starts_with('[') {
        let items: Vec<&RawValue> = body::parse(text.as_bytes())?;
        if items.len() > MESSAGES_MAX {
            let why = format!("a body has {MESSAGES_MAX} messages at most");
            return Err(Problem::bad_request(why));
        }
        let items = items.into_iter().enumerate();
        return items
            .map(|(at, item)| one(item.get()).map_err(|why| why.with("line", at + 1)))
            .collect();
    }
    Ok(vec![one(text)?])
}

fn one(text: &str) -> Result<Posted<'_>, Problem> {
    let Object::<Posted<'_>>(posted) = body::parse(text.as_bytes())?;
    if posted.topic.len() > TOPIC_BYTES_MAX {
        let why = format!("the name of a topic has {TOPIC_BYTES_MAX} bytes at most");
        return Err(Problem::bad_request(why));
    }
    if posted.payload.is_some() == posted.payload_base64.is_some() {
        return Err(Problem::bad_request("there is one of payload and payload_base64"));
    }
    Ok(posted)
}

/// Publishes messages that are all well formed. Those with a log are only staged.
fn publish_all(live: &Live, posted: &[Posted<'_>]) -> Result<(Counts, PendingAppends), Problem> {
    let bytes = |posted: &Posted<'_>| {
        let decoded = posted.payload_base64.as_deref().map(|text| STANDARD.decode(text));
        decoded
            .transpose()
            .map_err(|why| Problem::bad_request(format!("payload_base64: {why}")))
    };
    let decoded = posted.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    let (mut counts, mut staged) = (Counts::default(), PendingAppends::default());
    for (posted, bytes) in posted.iter().zip(&decoded) {
        let payload = match (posted.payload, bytes) {
            (Some(json), _) => Payload::Json(json.get()),
            (None, bytes) => Payload::Bytes(bytes.as_deref().unwrap_or_default()),
        };
        let message = Message {
            topic: &posted.topic,
            payload,
            timestamp: posted.timestamp,
            id: posted.message_id.as_deref(),
            offset: None,
        };
        match live.publish(message, &mut staged) {
            Published::To(count) => counts.receivers += count,
            Published::Duplicate => counts.duplicates += 1,
            Published::Staged => counts.stored += 1,
        }
    }
    Ok((counts, staged))
}

fn stored(outcomes: impl IntoIterator<Item = Outcome>) -> Result<(), Problem> {
    for outcome in outcomes {
        match outcome {
            Outcome::Committed(_) => {}
            Outcome::Refused(why) => return Err(of_storage(NotStored::Refused(why), why)),
            Outcome::Unknown => return Err(of_storage(NotStored::Unknown, NotStored::Unknown)),
        }
    }
    Ok(())
}
