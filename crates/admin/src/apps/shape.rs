//! Keys, offsets and values of apps in requests and answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use stafett_apps::Definition;
use stafett_http::Problem;

/// A key: a text, or base64 where it is not UTF-8.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged, rename = "AppKey")]
pub(super) enum Key {
    Text(String),
    Other(Base64),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or an object with base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
        Ok(Key::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Key, E> {
        Ok(Key::Text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Key, A::Error> {
        Base64::deserialize(MapAccessDeserializer::new(fields)).map(Key::Other)
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppKeyBytes")]
pub(super) struct Base64 {
    base64: String,
}

impl Key {
    pub(super) fn bytes(self) -> Result<Bytes, Problem> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Other(Base64 { base64 }) => decoded(&base64),
        }
    }
}

/// Bytes that are written as base64.
#[derive(Debug)]
pub(super) struct Decoded(pub(super) Bytes);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_str(DecodedVisitor)
    }
}

struct DecodedVisitor;

impl Visitor<'_> for DecodedVisitor {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text of base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Decoded, E> {
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(|why| E::custom(format_args!("base64: {why}")))?;
        Ok(Decoded(bytes.into()))
    }
}

pub(super) fn decoded(base64: &str) -> Result<Bytes, Problem> {
    let bytes = STANDARD.decode(base64);
    bytes
        .map(Bytes::from)
        .map_err(|why| Problem::bad_request(format!("base64: {why}")))
}

/// Offsets: by topic, or a number alone where the app has one topic.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "AppOffsets")]
pub(crate) enum Offsets {
    Only(u64),
    ByTopic(BTreeMap<String, u64>),
}

impl Offsets {
    /// Returns the offsets by input.
    pub(crate) fn by_input(self, field: &str, definition: &Definition) -> Result<Vec<Option<u64>>, Problem> {
        let mut inputs = vec![None; definition.topics.len()];
        match self {
            Self::Only(offset) => {
                let [only] = inputs.as_mut_slice() else {
                    let why = format!("{field}: the app has several topics, so offsets stand by topic");
                    return Err(Problem::bad_request(why).with("field", field));
                };
                *only = Some(offset);
            }
            Self::ByTopic(offsets) => {
                for (topic, offset) in offsets {
                    let input = definition.topics.iter().position(|known| **known == *topic);
                    let place = input.and_then(|input| inputs.get_mut(input)).ok_or_else(|| {
                        let why = format!("{field}: {topic:?} is not a topic of the app");
                        Problem::bad_request(why).with("field", field)
                    })?;
                    *place = Some(offset);
                }
            }
        }
        Ok(inputs)
    }
}

/// Offsets by topic, in an answer.
pub(crate) type ShownOffsets = BTreeMap<String, u64>;

pub(super) fn by_topic(definition: &Definition, offsets: &[u64]) -> ShownOffsets {
    let names = definition.topics.iter().map(ToString::to_string);
    names.zip(offsets.iter().copied()).collect()
}

/// A value: JSON as it was written, or base64 where it is not JSON.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppValue")]
pub(super) struct Value<'a> {
    #[schemars(with = "Option<serde_json::Value>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value_base64: Option<String>,
}

impl<'a> Value<'a> {
    /// Shows bytes as base64.
    pub(super) fn bytes(bytes: &[u8]) -> Self {
        let value_base64 = Some(STANDARD.encode(bytes));
        Self {
            value: None,
            value_base64,
        }
    }

    pub(super) fn into_owned(self) -> Value<'static> {
        Value {
            value: self.value.map(|value| Cow::Owned(value.into_owned())),
            value_base64: self.value_base64,
        }
    }

    /// Shows bytes as JSON if they are, else as a text if `or_text` says so and they are UTF-8, else as
    /// base64.
    pub(super) fn of(bytes: Option<&'a [u8]>, or_text: bool) -> Self {
        let Some(bytes) = bytes else {
            let value = None;
            return Self {
                value,
                value_base64: None,
            };
        };
        let text = std::str::from_utf8(bytes).ok();
        let json = text.and_then(|text| serde_json::from_str(text).ok());
        let json = json.map(Cow::Borrowed);
        let quoted = || serde_json::value::to_raw_value(text?).ok().map(Cow::Owned);
        match json.or_else(|| or_text.then(quoted).flatten()) {
            Some(value) => Self {
                value: Some(value),
                value_base64: None,
            },
            None => Self {
                value: None,
                value_base64: Some(STANDARD.encode(bytes)),
            },
        }
    }
}

/// Text of a session's number.
pub(super) fn token(session: u64) -> String {
    format!("{session:016x}")
}

pub(crate) fn read_token(token: &str) -> Option<u64> {
    u64::from_str_radix(token, 16).ok()
}
