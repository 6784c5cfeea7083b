//! MessagePack in binary frames, for clients that request the subprotocol `stafett.live.msgpack`.
//!
//! Messages have the same fields as in JSON. Bytes in a field `payload` or `broadcast` take the place of
//! `payload_base64` and `broadcast_base64` of JSON. Received messages are turned into JSON, so that there is
//! one parser of commands.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use stafett_live_topics::{Format, Message, Payload};

use stafett_ws::frame::{message_frame, put_binary};

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
    put_binary(&packed(&value), out);
}

/// Encodes a value. Writing to memory does not fail.
fn packed(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap_or_default()
}

/// Encodes a broadcast as a map in a binary frame.
#[derive(Debug)]
pub struct MsgpackFormat;

#[derive(Serialize)]
struct Outgoing<'a> {
    key: &'a str,
    broadcast: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
}

enum Content<'a> {
    Value(Value),
    Bytes(&'a [u8]),
}

impl Serialize for Content<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(to),
            Self::Bytes(bytes) => to.serialize_bytes(bytes),
        }
    }
}

impl Format for MsgpackFormat {
    fn number(&self) -> usize {
        2
    }

    fn encode(&self, message: &Message<'_>) -> Bytes {
        let broadcast = match message.payload {
            // JSON that does not fit MessagePack's numbers is sent as text.
            Payload::Json(json) => Content::Value(serde_json::from_str(json).unwrap_or_else(|_| json.into())),
            Payload::Bytes(bytes) => Content::Bytes(bytes),
        };
        let message = Outgoing {
            key: message.topic,
            broadcast,
            offset: message.offset,
            timestamp: message.timestamp.filter(|_| message.offset.is_some()),
        };
        message_frame(false, &packed(&message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_are_what_they_are_in_json_and_bytes_are_base64() {
        #[derive(Serialize)]
        struct Command {
            topic: Vec<&'static str>,
            payload: Content<'static>,
            timestamp: i64,
            none: Option<bool>,
        }
        let command = Command {
            topic: vec!["a\"", "é"],
            payload: Content::Bytes(b"\x00\xff"),
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
