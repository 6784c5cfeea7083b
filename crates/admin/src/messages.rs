//! Shows the ready messages of a queue without any effect on them.

use std::ops::ControlFlow;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use stafett_broker::Broker;
use stafett_http::{Problem, Query, Slot};
use stafett_messaging::delivery::DeliveryId;
use stafett_model::StoredMessage;

use crate::queues::find;
use crate::{answer_text, namespace};

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

/// Response being built. Messages are kept as JSON text, and only their shown parts.
struct Answer {
    text: Vec<u8>,
    messages: u64,
    looked_at: u64,
    looked_at_bytes: usize,
}

pub(crate) async fn peek(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace", "count", "priority", HEADER])?;
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

fn told(id: DeliveryId, message: &StoredMessage) -> Value {
    let mut bytes = 0;
    let (mut headers, mut is_cut) = (Map::new(), false);
    for (name, value) in message.headers() {
        bytes += name.len() + value.map_or(0, <[u8]>::len);
        if bytes > SHOWN_BYTES_MAX {
            is_cut = true;
            break;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        headers.insert(name, value.map_or(Value::Null, shown));
    }
    let value = message.value();
    let mut told = json!({
        "lane": id.lane,
        "offset": id.offset,
        "exchange": message.exchange(),
        "routing_key": message.routing_key(),
        "priority": message.priority(),
        "timestamp_ms": message.timestamp_ms(),
        "ttl_ms": message.ttl_ms(),
        "persistent": message.persistent(),
        "headers": headers,
        "key": message.key().map(|key| shown(front_of(key))),
        "value": shown(front_of(value)),
        "bytes": value.len(),
    });
    if let Some(told) = told.as_object_mut().filter(|_| is_cut) {
        told.insert("headers_cut".to_owned(), Value::Bool(true));
    }
    told
}

fn front_of(bytes: &[u8]) -> &[u8] {
    bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes)
}

/// Returns text as it is, and other bytes as an object with the key `base64`.
fn shown(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}
