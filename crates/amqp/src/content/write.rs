//! From stored messages to the properties of a delivery.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use stafett_amqp_wire::{Properties, PropertiesBuilder, TableBuilder, Value};
use stafett_model::{Death, DeathReason, Message, StoredMessage};

use super::{
    APP_ID, CONTENT_ENCODING, CONTENT_TYPE, CORRELATION_ID, KEY, MESSAGE_ID, PERSISTENT, PROPERTIES,
    REPLY_TO, TYPE, USER_ID, carbon_keys,
};

/// Header for the offset of a message in a stream.
const STREAM_OFFSET: &str = "x-stream-offset";
const PARTITION: &str = "x-stafett-partition";
/// RabbitMQ's header for a time in milliseconds.
const TIME_MS: &str = "timestamp_in_ms";

/// Returns the properties of a message that is returned to its publisher.
pub(crate) fn properties_of(message: &Message) -> Properties {
    let came = message.headers.iter().find(|(name, _)| name == PROPERTIES);
    if let Some((_, Some(came))) = came {
        return Properties::decode(came.clone()).unwrap_or_default();
    }
    PropertiesBuilder {
        delivery_mode: message.persistent.then_some(PERSISTENT),
        ..PropertiesBuilder::default()
    }
    .finish()
}

/// Headers that a delivery adds to a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Additions {
    /// Number of times the message was returned. `None` if it is 0 or the queue type does not report it.
    pub delivery_count: Option<u32>,
    /// Offset in the stream. `None` if the source is a queue.
    pub stream_offset: Option<u64>,
    /// Partition of the stream. `None` if it has only one.
    pub partition: Option<u32>,
}

impl Additions {
    fn is_empty(self) -> bool {
        self.delivery_count.is_none() && self.stream_offset.is_none() && self.partition.is_none()
    }
}

/// Writes the flags and properties of a stored message.
pub(crate) fn write_properties(message: &StoredMessage, additions: Additions, out: &mut BytesMut) {
    let came = message.header(PROPERTIES.as_bytes()).flatten();
    let deaths = message.deaths();
    if additions.is_empty() && deaths.is_empty() {
        if let Some(came) = came {
            out.extend_from_slice(came);
            return;
        }
        if message.persistent()
            && message.key().is_none()
            && message.headers().next().is_none()
            && is_ours(message)
        {
            out.extend_from_slice(&[0x10, 0, PERSISTENT]);
            return;
        }
        if message.headers().next().is_none() && is_ours(message) {
            out.extend_from_slice(&[0, 0]);
            return;
        }
    }
    let mut read = match came.map(|came| Properties::decode(Bytes::copy_from_slice(came))) {
        Some(Ok(properties)) => properties.read(),
        Some(Err(_)) | None => from_others(message),
    };
    add(&mut read, message, &deaths, additions);
    out.extend_from_slice(read.finish().as_bytes());
}

/// Returns true if the message was published through an exchange: a record written by a log client has
/// neither name.
fn is_ours(message: &StoredMessage) -> bool {
    !message.exchange().is_empty() || !message.routing_key().is_empty()
}

/// Builds the properties of a message that another protocol published.
fn from_others(message: &StoredMessage) -> PropertiesBuilder {
    let mut read = PropertiesBuilder {
        delivery_mode: message.persistent().then_some(PERSISTENT),
        priority: Some(message.priority()).filter(|priority| *priority > 0),
        expiration: message.ttl_ms().map(|ms| ms.to_string().into()),
        ..PropertiesBuilder::default()
    };
    let is_foreign = !is_ours(message);
    let mut headers = TableBuilder::new();
    if let Some(key) = message.key() {
        headers.push(KEY, &Value::Bytes(Bytes::copy_from_slice(key)));
    }
    if is_foreign && message.timestamp_ms() >= 0 {
        read.timestamp = u64::try_from(message.timestamp_ms() / 1000).ok();
        headers.push(TIME_MS, &Value::I64(message.timestamp_ms()));
    }
    for (name, value) in message.headers() {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        if !property(&mut read, name, value) && name.len() <= 255 {
            headers.push(name, &typed(value));
        }
    }
    let headers = headers.finish();
    if !headers.is_empty() {
        read.headers = Some(headers);
    }
    read
}

/// Sets the property that a header stands for. Returns false if there is none, it is set already, or the
/// value is not a short string.
fn property(read: &mut PropertiesBuilder, name: &str, value: Option<&[u8]>) -> bool {
    let place = match name {
        CONTENT_TYPE => &mut read.content_type,
        CONTENT_ENCODING => &mut read.content_encoding,
        CORRELATION_ID => &mut read.correlation_id,
        REPLY_TO => &mut read.reply_to,
        MESSAGE_ID => &mut read.message_id,
        TYPE => &mut read.kind,
        USER_ID => &mut read.user_id,
        APP_ID => &mut read.app_id,
        _ => return false,
    };
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    match text {
        Some(text) if text.len() <= 255 && place.is_none() => {
            *place = Some(text.into());
            true
        }
        _ => false,
    }
}

fn typed(value: Option<&[u8]>) -> Value {
    match value {
        None => Value::Void,
        Some(value) if std::str::from_utf8(value).is_ok() => Value::LongString(Bytes::copy_from_slice(value)),
        Some(value) => Value::Bytes(Bytes::copy_from_slice(value)),
    }
}

/// Headers about the deaths of a message.
const DEATH_HEADERS: [&str; 7] = [
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
];

fn add(read: &mut PropertiesBuilder, message: &StoredMessage, deaths: &[Death], additions: Additions) {
    let mut headers = TableBuilder::new();
    let replaced = |name: &str| {
        (!deaths.is_empty() && DEATH_HEADERS.contains(&name))
            || (additions.delivery_count.is_some() && name == "x-delivery-count")
            || (additions.stream_offset.is_some() && name == STREAM_OFFSET)
            || (additions.partition.is_some() && name == PARTITION)
    };
    let came = read.headers.take();
    for (name, value) in came.clone().unwrap_or_default().iter() {
        if !replaced(&name) {
            headers.push(&name, &value);
        }
    }
    if !deaths.is_empty() {
        let first = deaths
            .iter()
            .find(|death| death.is_first)
            .or_else(|| deaths.last());
        let more_keys = came.as_ref().map(carbon_keys).unwrap_or_default();
        // A queue's own dead-letter routing key replaces all keys of a message. Older versions did not store
        // that this happened, so the keys are compared too.
        let keys_of = |death: &Death| match first {
            Some(first) if !death.keys_were_lost && first.routing_key == death.routing_key => {
                more_keys.as_slice()
            }
            _ => &[],
        };
        let told = deaths.iter().map(|death| death_entry(death, keys_of(death)));
        headers.push("x-death", &Value::Array(told.collect()));
        for (prefix, death) in [("x-first-death", first), ("x-last-death", deaths.first())] {
            let Some(death) = death else { continue };
            headers.push(&format!("{prefix}-exchange"), &death.exchange.clone().into());
            headers.push(&format!("{prefix}-queue"), &death.queue.clone().into());
            headers.push(&format!("{prefix}-reason"), &reason(death.reason).into());
        }
        // An expired message has no time to live any more; otherwise it would expire again.
        read.expiration = message.ttl_ms().map(|ms| ms.to_string().into());
    }
    if let Some(count) = additions.delivery_count {
        headers.push("x-delivery-count", &Value::I64(count.into()));
    }
    if let Some(offset) = additions.stream_offset {
        headers.push(
            STREAM_OFFSET,
            &Value::I64(i64::try_from(offset).unwrap_or(i64::MAX)),
        );
    }
    if let Some(partition) = additions.partition {
        headers.push(PARTITION, &Value::I64(partition.into()));
    }
    let headers = headers.finish();
    if !headers.is_empty() {
        read.headers = Some(headers);
    }
}

/// Encodes one entry of `x-death`.
fn death_entry(death: &Death, more_keys: &[ByteString]) -> Value {
    let keys = std::iter::once(&death.routing_key).chain(more_keys);
    let keys = keys.map(|key| Value::from(key.clone())).collect();
    let mut entry = TableBuilder::new()
        .with(
            "count",
            Value::I64(i64::try_from(death.count).unwrap_or(i64::MAX)),
        )
        .with("reason", reason(death.reason))
        .with("queue", death.queue.clone())
        .with(
            "time",
            Value::Timestamp(u64::try_from(death.first_ms / 1000).unwrap_or(0)),
        )
        .with("exchange", death.exchange.clone())
        .with("routing-keys", Value::Array(keys));
    if let Some(ttl_ms) = death.ttl_ms {
        entry = entry.with("original-expiration", ByteString::from(ttl_ms.to_string()));
    }
    entry.finish().into()
}

fn reason(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Expired => "expired",
        DeathReason::Length => "maxlen",
        DeathReason::Rejected => "rejected",
        DeathReason::DeliveryLimit => "delivery_limit",
    }
}
