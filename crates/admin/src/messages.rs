//! Shows the ready messages of a queue without any effect on them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::delivery::DeliveryId;
use stafett_model::StoredMessage;

use crate::queues::{NAMESPACE, find};
use crate::{Routes, answer_text, namespace};

/// Prefix of keys that name a message header.
const HEADER: &str = "header.";
/// Maximum and default of `count`.
const COUNT_MAX: u64 = 1000;
const COUNT: u64 = 10;
/// Limits on the messages examined for one response, and on their bytes.
const LOOKED_AT_MAX: u64 = 100_000;
const LOOKED_AT_BYTES_MAX: usize = 256 << 20;
/// Bytes of a response after which no further message is added.
const BYTES_MAX: usize = 4 << 20;
/// Limit on the shown bytes of a value, of a key, and of all headers of a message.
const SHOWN_BYTES_MAX: usize = 256 << 10;

/// A message that waits in a queue.
#[derive(Debug, Serialize, JsonSchema)]
struct ReadyMessage {
    /// Lane and offset are its place in the queue.
    lane: u32,
    offset: u64,
    exchange: String,
    routing_key: String,
    priority: u8,
    /// Milliseconds since 1970.
    timestamp_ms: i64,
    ttl_ms: Option<u64>,
    persistent: bool,
    headers: BTreeMap<String, Option<Bytes>>,
    /// True if there are further headers, which are too large to be shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    headers_cut: bool,
    key: Option<Bytes>,
    value: Bytes,
    /// Bytes of the whole value, of which the front is shown.
    bytes: usize,
}

/// Bytes: a text where they are UTF-8.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Bytes {
    Text(String),
    Other { base64: String },
}

/// Messages from the front of a queue.
#[derive(Debug, Serialize, JsonSchema)]
struct ReadyMessages {
    messages: Vec<ReadyMessage>,
}

/// Returns the routes of messages.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/queues/{queue}/messages",
            "Shows messages that wait, without any effect on them.",
        )
        .query(&[
            NAMESPACE,
            Parameter::number(
                "count",
                COUNT_MAX,
                "Messages to show at most; 10 if it is absent.",
            ),
            Parameter::number("priority", 255, "Only messages of this priority."),
            Parameter::text(
                HEADER,
                "Only messages with this value of the header NAME. May be there for several names.",
            ),
        ])
        .answers::<ReadyMessages>(200)
        .refuses(&[Code::NotServing, Code::NoSuchQueue]),
        peek,
    )
}

/// Response being built. Messages are kept as JSON text, and only their shown parts.
struct Answer {
    text: Vec<u8>,
    messages: u64,
    looked_at: u64,
    looked_at_bytes: usize,
}

async fn peek(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
    let priority = query.number("priority", u8::MAX.into())?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    let headers: Vec<(&str, &str)> = query
        .pairs()
        .filter_map(|(key, value)| Some((key.strip_prefix(HEADER)?, value)))
        .collect();
    let wanted = |message: &StoredMessage| {
        let has = |(name, value): &(&str, &str)| {
            message.header(name.as_bytes()).flatten() == Some(value.as_bytes())
        };
        priority.is_none_or(|wanted| u64::from(message.priority()) == wanted) && headers.iter().all(has)
    };
    let mut answer = Answer {
        text: b"{\"messages\":[".to_vec(),
        messages: 0,
        looked_at: 0,
        looked_at_bytes: 0,
    };
    if count > 0 {
        let visit = |id, message: &StoredMessage| answer.visit(count, wanted(message).then_some(id), message);
        queue.peek(visit).await;
    }
    answer.text.extend_from_slice(b"]}");
    let text = String::from_utf8(answer.text).unwrap_or_default();
    Ok(answer_text(StatusCode::OK, text))
}

impl Answer {
    /// Adds a message if it is to be shown, then decides whether to continue.
    fn visit(&mut self, count: u64, shown: Option<DeliveryId>, message: &StoredMessage) -> ControlFlow<()> {
        self.looked_at += 1;
        self.looked_at_bytes += message.bytes();
        if let Some(id) = shown {
            if self.messages > 0 {
                self.text.push(b',');
            }
            self.messages += 1;
            // Neither writing to memory nor serializing such a value fails.
            let _ = serde_json::to_writer(&mut self.text, &told(id, message));
        }
        let is_enough = self.messages >= count
            || self.text.len() >= BYTES_MAX
            || self.looked_at >= LOOKED_AT_MAX
            || self.looked_at_bytes >= LOOKED_AT_BYTES_MAX;
        if is_enough {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

fn told(id: DeliveryId, message: &StoredMessage) -> ReadyMessage {
    let mut bytes = 0;
    let (mut headers, mut headers_cut) = (BTreeMap::new(), false);
    for (name, value) in message.headers() {
        bytes += name.len() + value.map_or(0, <[u8]>::len);
        if bytes > SHOWN_BYTES_MAX {
            headers_cut = true;
            break;
        }
        headers.insert(String::from_utf8_lossy(name).into_owned(), value.map(shown));
    }
    let value = message.value();
    ReadyMessage {
        lane: id.lane,
        offset: id.offset,
        exchange: message.exchange().to_owned(),
        routing_key: message.routing_key().to_owned(),
        priority: message.priority(),
        timestamp_ms: message.timestamp_ms(),
        ttl_ms: message.ttl_ms(),
        persistent: message.persistent(),
        headers,
        headers_cut,
        key: message.key().map(|key| shown(front_of(key))),
        value: shown(front_of(value)),
        bytes: value.len(),
    }
}

fn front_of(bytes: &[u8]) -> &[u8] {
    bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes)
}

fn shown(bytes: &[u8]) -> Bytes {
    match std::str::from_utf8(bytes) {
        Ok(text) => Bytes::Text(text.to_owned()),
        Err(_) => Bytes::Other {
            base64: STANDARD.encode(bytes),
        },
    }
}
