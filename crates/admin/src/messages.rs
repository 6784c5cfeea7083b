//! Messages that wait: looked at, without any effect on them.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use stafett_broker::queues::DeliveryId;
use stafett_model::StoredMessage;

use crate::front::AdminFront;
use crate::query::Query;
use crate::queues::find;
use crate::{Refusal, answer};

/// Messages of one answer, and what they are where nothing is said.
const COUNT_MAX: u64 = 1000;
const COUNT: u64 = 10;
/// Messages that are looked at for one answer.
const LOOKED_AT_MAX: usize = 100_000;
/// Bytes of messages in one answer: the last one may go beyond.
const BYTES_MAX: usize = 4 << 20;
/// Bytes of one value that are shown.
const VALUE_BYTES_MAX: usize = 256 << 10;

pub(crate) async fn peek(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace", "queue", "count", "priority", "header."])?;
    let broker = front.broker()?;
    let queue = find(&broker, &query, "queue")?;
    let count = query.number("count", COUNT_MAX)?.unwrap_or(COUNT);
    let priority = query.number("priority", u8::MAX.into())?;
    let headers = query.headers();
    let bytes = AtomicUsize::new(0);
    let wanted = |message: &StoredMessage| {
        let has = |(name, value): &(String, String)| {
            message.header(name.as_bytes()).flatten() == Some(value.as_bytes())
        };
        let is_it = priority.is_none_or(|wanted| u64::from(message.priority()) == wanted)
            && headers.iter().all(has)
            && bytes.load(Ordering::Relaxed) < BYTES_MAX;
        if is_it {
            let shown = message.bytes() - message.value_len().saturating_sub(VALUE_BYTES_MAX);
            bytes.fetch_add(shown, Ordering::Relaxed);
        }
        is_it
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = queue.peek(count, LOOKED_AT_MAX, wanted).await;
    let messages: Vec<Value> = found.iter().map(|(id, message)| told(*id, message)).collect();
    Ok(answer(StatusCode::OK, &json!({ "messages": messages })))
}

fn told(id: DeliveryId, message: &StoredMessage) -> Value {
    let headers = message.headers().map(|(name, value)| {
        let name = String::from_utf8_lossy(name).into_owned();
        (name, value.map_or(Value::Null, shown))
    });
    let value = message.value();
    json!({
        "lane": id.lane,
        "offset": id.offset,
        "exchange": message.exchange(),
        "routing_key": message.routing_key(),
        "priority": message.priority(),
        "timestamp_ms": message.timestamp_ms(),
        "ttl_ms": message.ttl_ms(),
        "persistent": message.persistent(),
        "headers": headers.collect::<Map<String, Value>>(),
        "key": message.key().map(shown),
        "value": shown(value.get(..VALUE_BYTES_MAX).unwrap_or(value)),
        "bytes": value.len(),
    })
}

/// Text as it is, other bytes in base64 within an object that says so.
fn shown(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}
