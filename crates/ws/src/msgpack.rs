//! MessagePack in binary frames: messages have the same fields as in JSON.
//!
//! Received messages are turned into JSON, so that there is one parser of commands. Bytes in a field take the
//! place of text in base64 under its name with `_base64` behind it, in both directions.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::frame::put_binary;

/// Maximum nesting of lists and maps, about as in JSON.
const DEPTH_MAX: usize = 128;

/// Converts a command to JSON. The error is a text.
pub fn to_json(bytes: &[u8]) -> Result<String, String> {
    let mut rest = bytes;
    let mut reader = rmp_serde::Deserializer::new(&mut rest);
    reader.set_max_depth(DEPTH_MAX);
    let mut json = String::with_capacity(bytes.len() + 64);
    let written = Json(&mut json).deserialize(&mut reader);
    match written {
        Ok(_) if rest.is_empty() => Ok(json),
        Ok(_) => Err("there is more behind the message".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes any value as JSON; the result is true for bytes.
struct Json<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }
}

impl Json<'_> {
    /// Writes a plain value; returns false, because it is not bytes.
    fn put(self, value: impl Into<Value>) -> bool {
        self.0.push_str(&value.into().to_string());
        false
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what JSON knows, or bytes")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(self.put(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        Ok(self.put(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        Ok(self.put(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        Ok(self.put(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        Ok(self.put(value))
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(self.put(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        Ok(self.put(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<bool, E> {
        self.put(STANDARD.encode(value));
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        self.0.push('[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push(',');
            }
            if items.next_element_seed(Json(self.0))?.is_none() {
                self.0.truncate(before);
                break;
            }
        }
        self.0.push(']');
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        self.0.push('{');
        let mut is_first = true;
        while let Some(name) = fields.next_key::<String>()? {
            if !std::mem::take(&mut is_first) {
                self.0.push(',');
            }
            let mut value = String::new();
            let is_bytes = fields.next_value_seed(Json(&mut value))?;
            let name = if is_bytes { name + "_base64" } else { name };
            self.0.push_str(&Value::from(name).to_string());
            self.0.push(':');
            self.0.push_str(&value);
        }
        self.0.push('}');
        Ok(false)
    }
}

/// Appends a message, given as JSON, in a binary frame.
pub fn put_packed(json: &[u8], out: &mut BytesMut) {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    put_binary(&packed(&Packed(&value)), out);
}

/// A value of JSON in MessagePack: text in base64 is bytes, and an absent one is left out.
struct Packed<'a>(&'a Value);

/// Bytes of MessagePack.
struct Binary(Vec<u8>);

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                items
                    .iter()
                    .try_for_each(|item| list.serialize_element(&Packed(item)))?;
                list.end()
            }
            Value::Object(fields) => {
                let bytes_of = |name: &str| fields.get(&format!("{name}_base64")).and_then(decoded);
                let is_bytes = |name: &str, value: &Value| {
                    name.ends_with("_base64") && (value.is_null() || decoded(value).is_some())
                };
                let shown: Vec<_> = fields
                    .iter()
                    .filter(|(name, value)| !is_bytes(name, value))
                    .collect();
                let lone = fields.iter().filter_map(|(name, value)| {
                    let name = name
                        .strip_suffix("_base64")
                        .filter(|name| !fields.contains_key(*name))?;
                    Some((name, decoded(value)?))
                });
                let lone: Vec<_> = lone.collect();
                let mut map = to.serialize_map(Some(shown.len() + lone.len()))?;
                for (name, value) in shown {
                    match bytes_of(name).filter(|_| value.is_null()) {
                        Some(bytes) => map.serialize_entry(name, &Binary(bytes))?,
                        None => map.serialize_entry(name, &Packed(value))?,
                    }
                }
                for (name, bytes) in lone {
                    map.serialize_entry(name, &Binary(bytes))?;
                }
                map.end()
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                plain.serialize(to)
            }
        }
    }
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

/// Encodes a value. Writing to memory does not fail.
pub fn packed(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    struct Bytes(&'static [u8]);

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(self.0)
        }
    }

    #[test]
    fn base64_of_an_answer_is_bytes_and_reads_back() {
        let json = json!({"a": [{"content": null, "content_base64": "AP8=", "key": 7, "key_base64": null}], "b_base64": "AA=="});
        let mut out = BytesMut::new();
        put_packed(json.to_string().as_bytes(), &mut out);
        let read: Value = serde_json::from_str(&to_json(&out[2..]).unwrap()).unwrap();
        assert_eq!(
            read,
            json!({"a": [{"content_base64": "AP8=", "key": 7}], "b_base64": "AA=="})
        );
    }

    #[test]
    fn commands_are_what_they_are_in_json_and_bytes_are_base64() {
        #[derive(Serialize)]
        struct Command {
            topic: Vec<&'static str>,
            payload: Bytes,
            timestamp: i64,
            none: Option<bool>,
        }
        let command = Command {
            topic: vec!["a\"", "é"],
            payload: Bytes(b"\x00\xff"),
            timestamp: -5,
            none: None,
        };
        let json: Value = serde_json::from_str(&to_json(&packed(&command)).unwrap()).unwrap();
        let expected =
            json!({"topic": ["a\"", "é"], "payload_base64": "AP8=", "timestamp": -5, "none": null});
        assert_eq!(json, expected);
    }

    #[test]
    fn nesting_and_what_follows_are_bounded() {
        assert!(to_json(&vec![0x91; 100_000]).is_err());
        assert!(to_json(&[0xc0, 0xc0]).is_err());
        assert!(to_json(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(to_json(&[0xc6, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(to_json(&[]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_become_json_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(json) = to_json(&bytes) {
                prop_assert!(serde_json::from_str::<Value>(&json).is_ok(), "{}", json);
            }
        }
    }
}
