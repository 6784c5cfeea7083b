//! Conversion between messages of AMQP and messages of the core.
//!
//! Properties that the core acts on are extracted. The properties themselves are kept unchanged in one header
//! of our own, unless they can be derived from the message. For readers of other protocols, properties and
//! simple headers are repeated as ordinary headers; the table is in `docs/conversions.md`.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use stafett_amqp_wire::{Properties, PropertiesBuilder, Table, TableBuilder, Value};
use stafett_model::{Death, DeathReason, Message, StoredMessage};

use crate::arguments::TIME_MS_MAX;
use crate::exception::Exception;
use crate::session::assembly::Content;

/// Header with the original properties.
pub(crate) const PROPERTIES: &str = "stafett.amqp";
/// Name of the AMQP header for a record's key.
pub(crate) const KEY: &str = "stafett-key";
/// Header for the offset of a message in a stream.
const STREAM_OFFSET: &str = "x-stream-offset";
const PARTITION: &str = "x-stafett-partition";
/// RabbitMQ's header for a time in milliseconds.
const TIME_MS: &str = "timestamp_in_ms";
const PERSISTENT: u8 = 2;

const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";
const CORRELATION_ID: &str = "correlation-id";
const REPLY_TO: &str = "reply-to";
const MESSAGE_ID: &str = "message-id";
const TYPE: &str = "type";
const USER_ID: &str = "user-id";
const APP_ID: &str = "app-id";

/// A published message, converted for the core, and properties that decide its route.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub message: Message,
    pub properties: Properties,
    /// Further routing keys, from `CC` and `BCC`.
    pub more_keys: Vec<ByteString>,
}

impl Incoming {
    /// Returns the address for replies. `None` if there is none.
    pub(crate) fn reply_to(&self) -> Option<ByteString> {
        if self.properties.is_plain() {
            None
        } else {
            self.properties.read().reply_to
        }
    }

    /// Replaces the address for replies.
    pub(crate) fn set_reply_to(&mut self, address: ByteString) {
        let mut read = self.properties.read();
        for (name, value) in &mut self.message.headers {
            if name == REPLY_TO {
                *value = Some(address.as_bytes().clone());
            }
        }
        read.reply_to = Some(address);
        self.properties = read.finish();
        for (name, value) in &mut self.message.headers {
            if name == PROPERTIES {
                *value = Some(self.properties.as_bytes().clone());
            }
        }
    }
}

/// The user that publishes, and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publisher<'a> {
    pub user: &'a str,
    pub now_ms: i64,
}

/// Converts a received message.
pub(crate) fn receive(content: Content, publisher: Publisher<'_>) -> Result<Incoming, Exception> {
    let Content {
        publish,
        properties,
        body,
        memory: _,
    } = content;
    let mut message = Message {
        exchange: publish.exchange,
        routing_key: publish.routing_key,
        value: body,
        timestamp_ms: publisher.now_ms,
        ..Message::default()
    };
    let mut more_keys = Vec::new();
    if properties.is_plain() {
        let mode = properties.plain_delivery_mode();
        message.persistent = mode == Some(PERSISTENT);
        if mode.is_some() && !message.persistent {
            message
                .headers
                .push((PROPERTIES.into(), Some(properties.as_bytes().clone())));
        }
        return Ok(Incoming {
            message,
            properties,
            more_keys,
        });
    }
    let mut read = properties.read();
    let mut properties = properties;
    if let Some(user) = &read.user_id
        && user != publisher.user
    {
        return Err(Exception::precondition(format!(
            "user_id property set to '{user}' but authenticated user was '{}'",
            publisher.user
        )));
    }
    message.persistent = read.delivery_mode == Some(PERSISTENT);
    message.priority = read.priority.unwrap_or(0);
    message.ttl_ms = read.expiration.as_deref().map(expiration).transpose()?;
    if let Some(seconds) = read.timestamp {
        message.timestamp_ms = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(1000))
            .unwrap_or(publisher.now_ms);
    }
    if let Some(headers) = &read.headers {
        let carbon = CarbonCopyHeaders::read(headers)?;
        message.delay_ms = carbon.delay_ms;
        message.key = carbon.key;
        more_keys = carbon.keys;
        if let Some(kept) = carbon.without_blind {
            read.headers = Some(kept);
            properties = read.finish();
        }
    }
    let copied = Bytes::copy_from_slice(properties.as_bytes());
    message.headers.push((PROPERTIES.into(), Some(copied)));
    for_others(&read, &mut message);
    Ok(Incoming {
        message,
        properties,
        more_keys,
    })
}

/// Returns the further routing keys in the headers; none if a header is malformed.
pub(crate) fn carbon_keys(headers: &Table) -> Vec<ByteString> {
    CarbonCopyHeaders::read(headers)
        .map(|carbon| carbon.keys)
        .unwrap_or_default()
}

/// Values of headers that decide the route of a message.
#[derive(Default)]
struct CarbonCopyHeaders {
    keys: Vec<ByteString>,
    delay_ms: Option<u64>,
    key: Option<Bytes>,
    /// The headers without `BCC`. `None` if `BCC` was absent.
    without_blind: Option<Table>,
}

impl CarbonCopyHeaders {
    fn read(headers: &Table) -> Result<Self, Exception> {
        let mut carbon = Self::default();
        let mut is_blind = false;
        for (name, value) in headers.iter() {
            match name.as_ref() {
                "CC" | "BCC" => {
                    is_blind |= name == "BCC";
                    carbon.add_keys(&name, &value)?;
                }
                "x-delay" => carbon.delay_ms = value.integer().and_then(|delay| u64::try_from(delay).ok()),
                KEY => {
                    if let Value::LongString(key) | Value::Bytes(key) = value {
                        carbon.key = Some(key);
                    }
                }
                _ => {}
            }
        }
        if is_blind {
            let mut kept = TableBuilder::new();
            for (name, value) in headers.iter().filter(|(name, _)| name != "BCC") {
                kept.push(&name, &value);
            }
            carbon.without_blind = Some(kept.finish());
        }
        Ok(carbon)
    }

    fn add_keys(&mut self, name: &str, value: &Value) -> Result<(), Exception> {
        let wrong = || {
            let kind = value.type_name();
            Exception::precondition(format!(
                "invalid message: {{unacceptable_type_in_header,\"{name}\",{kind}}}"
            ))
        };
        let Value::Array(keys) = value else {
            return Err(wrong());
        };
        for key in keys.iter() {
            let Value::LongString(key) = key else { continue };
            self.keys.push(ByteString::try_from(key).map_err(|_| wrong())?);
        }
        Ok(())
    }
}

fn expiration(text: &str) -> Result<u64, Exception> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let behind = digits.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number = text.strip_suffix(behind).unwrap_or(text);
    let why = if behind.len() == digits.len() {
        "no_integer".to_owned()
    } else if !behind.is_empty() {
        format!("{{leftover_string,\"{behind}\"}}")
    } else if number.starts_with('-') && digits.contains(|letter| letter != '0') {
        format!("{{value_negative,{number}}}")
    } else {
        match digits.parse::<i64>() {
            Ok(ms) if ms <= TIME_MS_MAX => return Ok(ms.unsigned_abs()),
            _ => format!("{{value_too_large,{digits}}}"),
        }
    };
    Err(Exception::precondition(format!(
        "invalid expiration '{text}': {why}"
    )))
}

/// Adds headers for readers of other protocols.
fn for_others(read: &PropertiesBuilder, message: &mut Message) {
    let texts = [
        (CONTENT_TYPE, &read.content_type),
        (CONTENT_ENCODING, &read.content_encoding),
        (CORRELATION_ID, &read.correlation_id),
        (REPLY_TO, &read.reply_to),
        (MESSAGE_ID, &read.message_id),
        (TYPE, &read.kind),
        (USER_ID, &read.user_id),
        (APP_ID, &read.app_id),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            message.headers.push((name.into(), Some(text.as_bytes().clone())));
        }
    }
    let Some(headers) = &read.headers else { return };
    for (name, value) in headers.iter() {
        if name == KEY {
            continue;
        }
        let simple = simple(&value);
        if simple.is_some() || matches!(value, Value::Void) {
            message.headers.push((name, simple));
        }
    }
}

/// Converts a value to the bytes of a header: texts unchanged, numbers in decimal. `None` for void, decimals,
/// tables and arrays.
fn simple(value: &Value) -> Option<Bytes> {
    Some(match value {
        Value::LongString(bytes) | Value::Bytes(bytes) => bytes.clone(),
        Value::Bool(value) => Bytes::from_static(if *value { b"true" } else { b"false" }),
        Value::F32(number) => number.to_string().into(),
        Value::F64(number) => number.to_string().into(),
        Value::Timestamp(seconds) => seconds.to_string().into(),
        Value::I8(_)
        | Value::U8(_)
        | Value::I16(_)
        | Value::U16(_)
        | Value::I32(_)
        | Value::U32(_)
        | Value::I64(_) => value.integer()?.to_string().into(),
        Value::Void | Value::Decimal(..) | Value::Array(_) | Value::Table(_) => return None,
    })
}

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

#[cfg(test)]
mod tests;
