//! From published messages of AMQP to messages of the core.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::{Properties, PropertiesBuilder, Table, TableBuilder, Value};
use stafett_model::Message;

use super::{
    APP_ID, CONTENT_ENCODING, CONTENT_TYPE, CORRELATION_ID, KEY, MESSAGE_ID, PERSISTENT, PROPERTIES,
    REPLY_TO, TYPE, USER_ID,
};
use crate::arguments::TIME_MS_MAX;
use crate::exception::Exception;
use crate::session::assembly::Content;

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
