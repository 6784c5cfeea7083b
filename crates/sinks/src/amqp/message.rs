//! A message of a queue as a record: key, value and headers as when a topic takes it over.

use bytes::Bytes;
use stafett_amqp_wire::{PropertiesBuilder, Value};
use stafett_model::{BatchBuilder, BatchError, Record};

/// Header that is the key of a record.
const KEY: &str = "stafett-key";
const TIME_MS: &str = "timestamp_in_ms";

/// Adds the record of a message.
pub(super) fn push(
    records: &mut BatchBuilder,
    properties: &PropertiesBuilder,
    value: &[u8],
) -> Result<(), BatchError> {
    let mut headers: Vec<(Bytes, Option<Bytes>)> = Vec::new();
    let texts = [
        ("content-type", &properties.content_type),
        ("content-encoding", &properties.content_encoding),
        ("correlation-id", &properties.correlation_id),
        ("reply-to", &properties.reply_to),
        ("message-id", &properties.message_id),
        ("type", &properties.kind),
        ("user-id", &properties.user_id),
        ("app-id", &properties.app_id),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            headers.push((
                Bytes::from_static(name.as_bytes()),
                Some(Bytes::copy_from_slice(text.as_bytes())),
            ));
        }
    }
    let mut timestamp = properties
        .timestamp
        .and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000));
    let mut key = None;
    for (name, value) in properties.headers.iter().flat_map(|table| table.iter()) {
        let bytes = bytes_of(&value);
        if &*name == KEY {
            key = bytes.flatten();
            continue;
        }
        if let (TIME_MS, Value::I64(ms)) = (&*name, &value) {
            timestamp = Some(*ms);
        }
        // Tables, lists and decimals are no header of a record.
        if let Some(bytes) = bytes {
            headers.push((Bytes::copy_from_slice(name.as_bytes()), bytes));
        }
    }
    let headers: Vec<(&[u8], Option<&[u8]>)> = headers
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()))
        .collect();
    records.push(&Record {
        key: key.as_deref(),
        value: Some(value),
        headers: &headers,
        timestamp: timestamp.unwrap_or(-1),
    })
}

/// Returns a value as bytes. `None` for one that is none, `Some(None)` for one without a value.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "values of all other kinds are left out"
)]
fn bytes_of(value: &Value) -> Option<Option<Bytes>> {
    let text = |text: String| Some(Some(Bytes::from(text)));
    match value {
        Value::LongString(bytes) | Value::Bytes(bytes) => Some(Some(bytes.clone())),
        Value::Void => Some(None),
        Value::Bool(it) => text(it.to_string()),
        Value::I8(it) => text(it.to_string()),
        Value::U8(it) => text(it.to_string()),
        Value::I16(it) => text(it.to_string()),
        Value::U16(it) => text(it.to_string()),
        Value::I32(it) => text(it.to_string()),
        Value::U32(it) => text(it.to_string()),
        Value::I64(it) => text(it.to_string()),
        Value::F32(it) => text(it.to_string()),
        Value::F64(it) => text(it.to_string()),
        Value::Timestamp(it) => text(it.to_string()),
        _ => None,
    }
}
