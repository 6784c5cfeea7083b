//! MessagePack in binary frames, for clients that request the subprotocol `stafett.live.msgpack`
//! ([`stafett_ws::msgpack`]): bytes in a field `payload` or `broadcast` take the place of `payload_base64`
//! and `broadcast_base64` of JSON.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use stafett_live_topics::{Format, Message, Payload};
use stafett_ws::frame::message_frame;
use stafett_ws::msgpack::packed;

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
