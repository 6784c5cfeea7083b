//! Conversion of records to messages.
//!
//! A record's key is the name of the live topic, its value the payload. A valid JSON value is a JSON payload,
//! unless a header marks it as bytes.

use serde_json::value::RawValue;
use stafett_journal::LogSlice;
use stafett_model::Offset;
use stafett_topics::Batches;

use crate::message::{Message, Payload};

/// Header of records whose payload is bytes.
pub(crate) const BYTES_HEADER: &[u8] = b"stafett.bytes";
/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// Visits the messages of a run with offsets in `from..below` whose topics are wanted.
pub(crate) fn each(
    run: LogSlice,
    from: Offset,
    below: Offset,
    mut is_wanted: impl FnMut(&str, Offset) -> bool,
    mut visit: impl FnMut(&Message<'_>, Offset),
) {
    let mut batches = Batches::of(run);
    while let Some(records) = batches.next_records(BATCH_BYTES_MAX) {
        for record in records.map_while(Result::ok) {
            if record.offset < from || record.offset >= below {
                continue;
            }
            let Some(topic) = record
                .key
                .as_deref()
                .and_then(|key| std::str::from_utf8(key).ok())
            else {
                continue;
            };
            if !is_wanted(topic, record.offset) {
                continue;
            }
            let value = record.value.as_deref().unwrap_or(b"null");
            let payload = match json(value) {
                Some(text) if record.headers.last(BYTES_HEADER).is_none() => Payload::Json(text),
                _ => Payload::Bytes(value),
            };
            let message = Message {
                topic,
                payload,
                timestamp: Some(record.timestamp),
                id: None,
                offset: Some(record.offset.0),
            };
            visit(&message, record.offset);
        }
    }
}

fn json(value: &[u8]) -> Option<&str> {
    let raw: &RawValue = serde_json::from_slice(value).ok()?;
    Some(raw.get())
}
