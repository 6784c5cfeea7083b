//! Publishes a message, and takes messages of a queue.

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use bytestring::ByteString;
use serde_json::{Map, Value, json};
use stafett_amqp_wire::methods::{basic, confirm};
use stafett_amqp_wire::{Properties, PropertiesBuilder};

use super::call::{Call, Fields, ok, short};
use super::client::{Client, ClientError, Got, Outcome};
use super::queues::Entry;
use super::refusal::{Answered, Refusal};
use super::{exchanges, values};

/// Bounds on an answer with messages.
const COUNT_MAX: i64 = 10_000;
const GOT_BYTES_MAX: usize = 32 << 20;

pub(super) async fn publish(call: &Call, vhost: &str, path: &str) -> Answered {
    call.allow(&[Method::POST])?;
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_vhost)?;
    let name = exchanges::name_of(path);
    if exchanges::find(call, &vhost, name).is_none() {
        return Err(Refusal::not_found("exchange_not_found"));
    }
    let fields = call.fields()?;
    fields.require(&["routing_key", "properties", "payload", "payload_encoding"])?;
    let routing_key = fields.text("routing_key")?;
    let body = payload(&fields)?;
    let properties = properties(fields.get("properties"))?;
    let publish = basic::Publish {
        exchange: short(name, "exchange")?.into(),
        routing_key: short(&routing_key, "routing_key")?.into(),
        mandatory: true,
        ..basic::Publish::default()
    };
    let opened = Client::open(call, &vhost, body.len()).await;
    let mut client = opened.map_err(ClientError::of_messages)?;
    let confirms = client.call(confirm::Select::default()).await;
    confirms.map_err(ClientError::of_messages)?;
    let published = client.publish(publish, properties, body).await;
    match published.map_err(ClientError::of_messages)? {
        Outcome::Routed => Ok(ok(&json!({ "routed": true }))),
        Outcome::Unroutable => Ok(ok(&json!({ "routed": false }))),
        Outcome::Refused => Err(Refusal::bad_request(
            "rejected Unable to publish message. Check queue limits.",
        )),
    }
}

fn payload(fields: &Fields) -> Result<Bytes, Refusal> {
    let Some(Value::String(payload)) = fields.get("payload") else {
        return Err(Refusal::bad_request("payload_not_string"));
    };
    match fields.get("payload_encoding").and_then(Value::as_str) {
        Some("string") => Ok(Bytes::copy_from_slice(payload.as_bytes())),
        Some("base64") => match STANDARD.decode(payload.trim()) {
            Ok(bytes) => Ok(bytes.into()),
            Err(_) => Err(Refusal::bad_request(json!(["not_base64", payload]))),
        },
        _ => {
            let given = fields.get("payload_encoding");
            Err(Refusal::bad_request(json!(["unsupported_encoding", given])))
        }
    }
}

/// Reads properties. Unknown ones are passed over.
fn properties(given: Option<&Value>) -> Result<Properties, Refusal> {
    let fields = match given {
        Some(Value::Object(fields)) => fields,
        Some(Value::Array(items)) if items.is_empty() => return Ok(Properties::NONE),
        _ => return Err(Refusal::bad_request("properties_not_an_object")),
    };
    let headers = match fields.get("headers") {
        None => None,
        Some(Value::Array(items)) if items.is_empty() => None,
        Some(Value::Object(headers)) => Some(values::table(headers, 0)?),
        Some(_) => return Err(Refusal::bad_request(json!(["not_object", "headers"]))),
    };
    let built = PropertiesBuilder {
        content_type: text(fields, "content_type")?,
        content_encoding: text(fields, "content_encoding")?,
        headers,
        delivery_mode: number(fields, "delivery_mode")?,
        priority: number(fields, "priority")?,
        correlation_id: text(fields, "correlation_id")?,
        reply_to: text(fields, "reply_to")?,
        expiration: text(fields, "expiration")?,
        message_id: text(fields, "message_id")?,
        timestamp: number(fields, "timestamp")?,
        kind: text(fields, "type")?,
        user_id: text(fields, "user_id")?,
        app_id: text(fields, "app_id")?,
        cluster_id: text(fields, "cluster_id")?,
    };
    Ok(built.finish())
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<ByteString>, Refusal> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(short(text, name)?.into())),
        Some(_) => Err(Refusal::bad_request(json!(["not_string", name]))),
    }
}

fn number<T: TryFrom<u64>>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, Refusal> {
    let Some(given) = fields.get(name) else {
        return Ok(None);
    };
    let number = given.as_u64().and_then(|number| T::try_from(number).ok());
    let wrong = || Refusal::bad_request(json!(["not_int", name]));
    number.map(Some).ok_or_else(wrong)
}

/// End of messages that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckMode {
    /// They are settled.
    Ack,
    /// They return to their places.
    Requeue,
    /// They are rejected, which may dead-letter them.
    Reject,
}

impl AckMode {
    fn of(fields: &Fields) -> Result<Self, Refusal> {
        match fields.get("ackmode").and_then(Value::as_str) {
            Some("ack_requeue_false") => Ok(Self::Ack),
            Some("ack_requeue_true" | "reject_requeue_true") => Ok(Self::Requeue),
            Some("reject_requeue_false") => Ok(Self::Reject),
            _ => {
                let reason = "Unsupported ackmode. Please use ack_requeue_true, ack_requeue_false, \
                              reject_requeue_true or reject_requeue_false.";
                Err(Refusal::bad_request(reason))
            }
        }
    }
}

pub(super) async fn get(call: &Call, vhost: &str, name: &str) -> Answered {
    call.allow(&[Method::POST])?;
    let vhost = call.vhost(vhost).ok_or_else(Refusal::no_vhost)?;
    if Entry::find(call, &vhost, name).is_none() {
        return Err(Refusal::not_found("queue_not_found"));
    }
    let fields = call.fields()?;
    fields.require(&["ackmode", "count", "encoding"])?;
    let mode = AckMode::of(&fields)?;
    // Every negative number means all, as in RabbitMQ.
    let count = match integer(fields.get("count"))? {
        count if count < 0 => COUNT_MAX,
        count => count.min(COUNT_MAX),
    };
    let only_base64 = match fields.get("encoding").and_then(Value::as_str) {
        Some("auto") => false,
        Some("base64") => true,
        _ => {
            return Err(Refusal::bad_request(
                "Unsupported encoding. Please use auto or base64.",
            ));
        }
    };
    let truncate = match fields.get("truncate") {
        Some(given) => usize::try_from(integer(Some(given))?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let opened = Client::open(call, &vhost, 0).await;
    let mut client = opened.map_err(ClientError::of_messages)?;
    let (mut bytes, mut messages) = (0, Vec::new());
    for _ in 0..count {
        let got = client.get(short(name, "queue")?, mode == AckMode::Ack).await;
        let Some(got) = got.map_err(ClientError::of_taking)? else {
            break;
        };
        bytes += got.body.len().min(truncate);
        messages.push(shown(&got, only_base64, truncate));
        if bytes >= GOT_BYTES_MAX {
            break;
        }
    }
    if mode != AckMode::Ack && !messages.is_empty() {
        let nack = basic::Nack {
            delivery_tag: 0,
            multiple: true,
            requeue: mode == AckMode::Requeue,
        };
        let settled = client.tell(nack).await;
        settled.map_err(ClientError::of_messages)?;
    }
    Ok(ok(&Value::Array(messages)))
}

/// Reads a number, which may be a text.
fn integer(given: Option<&Value>) -> Result<i64, Refusal> {
    let read = match given {
        Some(Value::Number(number)) => number.as_i64().or_else(|| number.as_u64().map(|_| i64::MAX)),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) | None => None,
    };
    read.ok_or_else(|| Refusal::bad_request(json!(["not_integer", given])))
}

fn shown(got: &Got, only_base64: bool, truncate: usize) -> Value {
    let body = got.body.get(..truncate.min(got.body.len())).unwrap_or_default();
    let (payload, encoding) = match std::str::from_utf8(body) {
        Ok(text) if !only_base64 => (text.to_owned(), "string"),
        Ok(_) | Err(_) => (STANDARD.encode(body), "base64"),
    };
    json!({
        "payload_bytes": got.body.len(),
        "redelivered": got.ok.redelivered,
        "exchange": &*got.ok.exchange,
        "routing_key": &*got.ok.routing_key,
        "message_count": got.ok.message_count,
        "properties": shown_properties(&got.properties),
        "payload": payload,
        "payload_encoding": encoding,
    })
}

/// Shows properties. None at all are an empty list, as in RabbitMQ.
fn shown_properties(properties: &Properties) -> Value {
    let read = properties.read();
    let text = |value: &Option<ByteString>| value.as_deref().map(|text| json!(text));
    let pairs = [
        ("type", text(&read.kind)),
        ("app_id", text(&read.app_id)),
        ("user_id", text(&read.user_id)),
        ("cluster_id", text(&read.cluster_id)),
        ("timestamp", read.timestamp.map(|number| json!(number))),
        ("message_id", text(&read.message_id)),
        ("expiration", text(&read.expiration)),
        ("reply_to", text(&read.reply_to)),
        ("correlation_id", text(&read.correlation_id)),
        ("priority", read.priority.map(|number| json!(number))),
        ("delivery_mode", read.delivery_mode.map(|number| json!(number))),
        ("headers", read.headers.as_ref().map(values::shown)),
        ("content_encoding", text(&read.content_encoding)),
        ("content_type", text(&read.content_type)),
    ];
    let there: Map<String, Value> = pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    if there.is_empty() {
        json!([])
    } else {
        Value::Object(there)
    }
}
