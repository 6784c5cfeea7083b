//! A record as answers show it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use stafett_model::StoredRecord;

use crate::content::{Form, Text};
use crate::time::rfc3339;

/// Header with the type of a value.
const CONTENT_TYPE: &[u8] = b"content-type";

/// A stored record.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Record")]
pub(crate) struct RecordShown {
    partition: u32,
    offset: u64,
    /// Null if the record has none.
    timestamp: Option<String>,
    /// Null if there is no key, or if it is not UTF-8.
    key: Option<String>,
    /// The key, if it is not UTF-8 or `as` is `base64`.
    key_base64: Option<String>,
    /// A text, or JSON if the header content-type says so. Null if there is no value, or if it is neither.
    #[schemars(with = "Option<serde_json::Value>")]
    value: Option<Box<RawValue>>,
    value_base64: Option<String>,
    /// Of several headers with one name, the last.
    headers: BTreeMap<String, Option<Text>>,
    /// Bytes of the value.
    bytes: usize,
}

impl RecordShown {
    pub(crate) fn of(partition: u32, record: &StoredRecord, form: Form) -> Self {
        let kind = record.headers.last(CONTENT_TYPE).flatten();
        let kind = kind.and_then(|kind| std::str::from_utf8(kind).ok());
        let value = record.value.as_ref();
        let (value, value_base64) = value.map_or((None, None), |value| form.show(value, kind));
        let key = record.key.as_ref();
        let text = key.and_then(|key| std::str::from_utf8(key).ok());
        let text = text.filter(|_| form != Form::Base64);
        let key_base64 = key.filter(|_| text.is_none());
        let headers = record.headers.iter().map(|(name, value)| {
            let name = String::from_utf8_lossy(name).into_owned();
            (name, value.map(Text::of))
        });
        Self {
            partition,
            offset: record.offset.0,
            timestamp: (record.timestamp >= 0).then(|| rfc3339(record.timestamp)),
            key: text.map(str::to_owned),
            key_base64: key_base64.map(|key| STANDARD.encode(key)),
            value,
            value_base64,
            headers: headers.collect(),
            bytes: record.value.as_ref().map_or(0, Bytes::len),
        }
    }
}

/// Returns the bytes of a record that an answer shows.
pub(crate) fn size(record: &StoredRecord) -> usize {
    let bytes = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers = headers.map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len));
    bytes(&record.key) + bytes(&record.value) + headers.sum::<usize>()
}
