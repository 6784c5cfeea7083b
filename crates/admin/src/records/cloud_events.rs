//! `CloudEvents` 1.0 as records, as the binding for Kafka has them in binary mode: the data is the value,
//! each attribute a header `ce_NAME`, `datacontenttype` the header `content-type`, and `partitionkey` also
//! the key.
//!
//! They come as JSON (one event, or a list), or with the attributes in the headers `ce-NAME` of the request.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;
use stafett_http::{Problem, body};

use super::incoming::Format;
use crate::content::JSON;

/// Attributes that every event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
const NAME_BYTES_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 64;

/// Parts of a record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CloudEvent {
    pub(super) key: Option<Bytes>,
    pub(super) data: Option<Bytes>,
    pub(super) headers: Vec<(Bytes, Option<Bytes>)>,
}

impl CloudEvent {
    /// Reads an event in JSON.
    pub(super) fn read(document: &RawValue) -> Result<Self, Problem> {
        let mut fields: BTreeMap<String, &RawValue> = body::parse(document.get().as_bytes())?;
        fields.retain(|_, value| value.get() != "null");
        let data = fields.remove("data");
        let base64 = fields.remove("data_base64");
        let mut attributes = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let text = match body::parse::<Value>(value.get().as_bytes())? {
                Value::String(text) => text,
                Value::Bool(_) | Value::Number(_) => value.get().to_owned(),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(bad(format!(
                        "the attribute {name:?} is neither a text, a number nor a truth value"
                    )));
                }
            };
            attributes.push((name, text));
        }
        if attributes.is_empty() {
            return Err(bad("the attribute specversion is missing"));
        }
        let mut event = Self::of_attributes(attributes)?;
        event.data = match (data, base64) {
            (None, None) => None,
            (Some(_), Some(_)) => return Err(bad("data and data_base64 are both given")),
            (Some(json), None) => Some(event.read_data(json)?),
            (None, Some(text)) => {
                let text: String = body::parse(text.get().as_bytes())?;
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|why| bad(format!("data_base64: {why}")))?;
                Some(bytes.into())
            }
        };
        Ok(event)
    }

    /// Makes the headers and the key of an event without data. Without attributes there is no event.
    pub(super) fn of_attributes(attributes: Vec<(String, String)>) -> Result<Self, Problem> {
        let mut event = Self::default();
        if attributes.is_empty() {
            return Ok(event);
        }
        if attributes.len() > ATTRIBUTES_MAX {
            return Err(bad(format!("an event has {ATTRIBUTES_MAX} attributes at most")));
        }
        let value = |wanted: &str| {
            let mut found = attributes.iter().filter(|(name, _)| name == wanted);
            found.next().map(|(_, text)| text.as_str())
        };
        for name in REQUIRED {
            if value(name).is_none_or(str::is_empty) {
                return Err(bad(format!("the attribute {name} is missing")));
            }
        }
        if let Some(version) = value("specversion").filter(|version| *version != "1.0") {
            return Err(bad(format!("specversion is 1.0, not {version:?}")));
        }
        event.key = value("partitionkey").map(|key| Bytes::copy_from_slice(key.as_bytes()));
        for (name, text) in attributes {
            let is_known_form = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_known_form) {
                return Err(bad(format!(
                    "the name of an attribute has lower-case letters and digits alone: {name:?}"
                )));
            }
            let header = match name.as_str() {
                "datacontenttype" => "content-type".to_owned(),
                other => format!("ce_{other}"),
            };
            event.headers.push((header.into(), Some(text.into())));
        }
        Ok(event)
    }

    /// Returns data in JSON as bytes: a text stands for itself if it is of another type.
    fn read_data(&mut self, json: &RawValue) -> Result<Bytes, Problem> {
        let kind = self.headers.iter().find(|(name, _)| name == "content-type");
        let kind = kind.and_then(|(_, kind)| kind.as_deref());
        let is_json = kind.is_none_or(|kind| {
            let kind = kind
                .split(|byte| *byte == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            kind.ends_with(b"/json") || kind.ends_with(b"+json")
        });
        if kind.is_none() {
            let header = (
                Bytes::from_static(b"content-type"),
                Some(Bytes::from_static(JSON.as_bytes())),
            );
            self.headers.push(header);
        }
        if !is_json && json.get().starts_with('"') {
            return Ok(body::parse::<String>(json.get().as_bytes())?.into());
        }
        Ok(Bytes::copy_from_slice(json.get().as_bytes()))
    }
}

/// Returns the attributes in the headers of a request. A body without `ce-specversion` is no event, and one
/// in lines or in the JSON of events has no attributes in headers.
pub(super) fn attributes(headers: &HeaderMap, format: Format) -> Result<Vec<(String, String)>, Problem> {
    let is_data = matches!(format, Format::Raw | Format::Json);
    if !is_data || !headers.contains_key("ce-specversion") {
        return Ok(Vec::new());
    }
    let named = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().strip_prefix("ce-")?, value)));
    named
        .map(|(name, value)| {
            // Other characters than those of ASCII are percent-encoded.
            let text = value
                .to_str()
                .ok()
                .and_then(|text| percent_decode_str(text).decode_utf8().ok());
            let text = text.ok_or_else(|| bad(format!("the header ce-{name} is not text")))?;
            Ok((name.to_owned(), text.into_owned()))
        })
        .collect()
}

fn bad(why: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!("CloudEvents: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CloudEvent, Problem> {
        CloudEvent::read(serde_json::from_str(json).unwrap())
    }

    fn headers(event: &CloudEvent) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let shown = event.headers.iter();
        shown
            .map(|(name, value)| format!("{}={}", text(name), text(value.as_ref().unwrap())))
            .collect()
    }

    const ATTRIBUTES: &str = r#""specversion": "1.0", "id": "7", "source": "/shop", "type": "order""#;

    #[test]
    fn attributes_are_headers_and_the_data_is_the_value() {
        let event = read(&format!(
            r#"{{{ATTRIBUTES}, "partitionkey": "k", "big": 7, "subject": null, "data": {{"a":  1}}}}"#
        ));
        let event = event.unwrap();
        assert_eq!(event.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(event.data.as_deref(), Some(&br#"{"a":  1}"#[..]));
        let expected = [
            "ce_big=7",
            "ce_id=7",
            "ce_partitionkey=k",
            "ce_source=/shop",
            "ce_specversion=1.0",
            "ce_type=order",
            "content-type=application/json",
        ];
        assert_eq!(headers(&event), expected);
    }

    #[test]
    fn data_is_json_text_or_bytes_by_its_type() {
        for (data, expected) in [
            (r#""data": "a\u00e9""#, Some("\"a\\u00e9\"")),
            (
                r#""data": "a\u00e9", "datacontenttype": "text/plain""#,
                Some("a\u{e9}"),
            ),
            (
                r#""data": "x", "datacontenttype": "application/cloud+json; charset=utf-8""#,
                Some("\"x\""),
            ),
            (
                r#""data_base64": "eHk=", "datacontenttype": "image/png""#,
                Some("xy"),
            ),
            (r#""data": null"#, None),
        ] {
            let event = read(&format!("{{{ATTRIBUTES}, {data}}}")).unwrap();
            assert_eq!(event.data.as_deref(), expected.map(str::as_bytes), "{data}");
        }
    }

    #[test]
    fn events_without_what_they_need_are_refused() {
        for json in [
            "{}",
            "[]",
            r#"{"specversion": "1.0", "id": "7", "source": "/shop"}"#,
            r#"{"specversion": "0.3", "id": "7", "source": "/shop", "type": "order"}"#,
            r#"{"specversion": "1.0", "id": "", "source": "/shop", "type": "order"}"#,
            &format!(r#"{{{ATTRIBUTES}, "Upper": "x"}}"#),
            &format!(r#"{{{ATTRIBUTES}, "list": []}}"#),
            &format!(r#"{{{ATTRIBUTES}, "data": 1, "data_base64": ""}}"#),
            &format!(r#"{{{ATTRIBUTES}, "data_base64": "?"}}"#),
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    #[test]
    fn attributes_of_headers_are_undone() {
        let mut headers = HeaderMap::new();
        headers.insert("ce-id", "a%20%E2%82%AC".parse().unwrap());
        assert_eq!(attributes(&headers, Format::Raw).unwrap(), [], "it is no event");
        headers.insert("ce-specversion", "1.0".parse().unwrap());
        let found = attributes(&headers, Format::Raw).unwrap();
        assert!(
            found.contains(&("id".to_owned(), "a \u{20ac}".to_owned())),
            "{found:?}"
        );
        assert!(CloudEvent::of_attributes(found).is_err(), "it has no source");
    }
}
