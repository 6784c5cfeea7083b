//! Encodes answers, errors, broadcasts and notices as JSON.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use stafett_live_topics::{ClientName, Format, GapNotice, GapReason, Message, Payload};
use stafett_ws::frame::text_frame;

use crate::fault::Fault;

/// Encodes a broadcast, `{"key": topic, "broadcast": payload}`, in a text frame.
#[derive(Debug)]
pub struct JsonFormat;

impl Format for JsonFormat {
    fn number(&self) -> usize {
        0
    }

    fn encode(&self, message: &Message<'_>) -> Bytes {
        text_frame(most_of(message), |out| put_broadcast(message, out))
    }
}

/// Encodes a broadcast: `{"key": topic, "broadcast": payload}`, with `broadcast_base64` for bytes, and with
/// `offset` and `timestamp` if the topic has a log.
pub fn broadcast(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(most_of(message));
    put_broadcast(message, &mut out);
    out
}

/// Estimates the bytes of a broadcast; most are no longer.
fn most_of(message: &Message<'_>) -> usize {
    let payload = match message.payload {
        Payload::Json(json) => json.len(),
        Payload::Bytes(bytes) => bytes.len().div_ceil(3) * 4,
    };
    let offset = if message.offset.is_some() { 64 } else { 0 };
    48 + message.topic.len() + payload + offset
}

fn put_broadcast(message: &Message<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"key\":");
    put_text(message.topic, out);
    match message.payload {
        Payload::Json(json) => {
            out.extend_from_slice(b",\"broadcast\":");
            out.extend_from_slice(json.as_bytes());
        }
        Payload::Bytes(bytes) => {
            out.extend_from_slice(b",\"broadcast_base64\":\"");
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
    }
    if let Some(offset) = message.offset {
        // Writing to memory does not fail.
        let _ = write!(out, ",\"offset\":{offset}");
        if let Some(timestamp) = message.timestamp {
            let _ = write!(out, ",\"timestamp\":{timestamp}");
        }
    }
    out.push(b'}');
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    // A text can always be encoded.
    drop(serde_json::to_writer(out, text));
}

/// Begins an answer, with the `id` of its command if there is one.
fn begin(id: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(b'{');
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.as_bytes());
        out.push(b',');
    }
    out
}

/// Encodes `{"result": "success"}` with more fields.
pub fn success(id: Option<&str>, more: &[(&str, Value)]) -> Vec<u8> {
    let mut out = begin(id);
    out.extend_from_slice(b"\"result\":\"success\"");
    put_fields(more, &mut out);
    out
}

/// Encodes `{"error": kind, "message": …, "info": …}`.
pub fn error(id: Option<&str>, fault: &Fault) -> Vec<u8> {
    let mut out = begin(id);
    out.extend_from_slice(b"\"error\":");
    put_text(fault.kind(), &mut out);
    put_fields(
        &[
            ("message", fault.message().into()),
            ("info", fault.to_string().into()),
        ],
        &mut out,
    );
    out
}

/// Encodes a notice: a message that the client did not ask for.
pub fn notice(kind: &str, more: &[(&str, Value)]) -> Vec<u8> {
    let mut out = b"{\"notice\":".to_vec();
    put_text(kind, &mut out);
    put_fields(more, &mut out);
    out
}

/// Encodes the notice that a client misses a part of a log.
pub fn missed(missed: &GapNotice) -> Vec<u8> {
    let why = match missed.why {
        GapReason::Expired => "expired",
        GapReason::Damaged => "damaged",
        GapReason::Unreadable => "unreadable",
    };
    let more = [
        ("client_id", client_id(&missed.client)),
        ("stored_topic", (*missed.topic).into()),
        ("partition", missed.partition.into()),
        ("from", missed.from.0.into()),
        ("to", missed.to.0.into()),
        ("why", why.into()),
    ];
    notice("missed", &more)
}

fn put_fields(fields: &[(&str, Value)], out: &mut Vec<u8>) {
    for (name, value) in fields {
        out.push(b',');
        put_text(name, out);
        out.push(b':');
        drop(serde_json::to_writer(&mut *out, value));
    }
    out.push(b'}');
}

/// Returns a client's id as the client wrote it.
pub fn client_id(client: &ClientName) -> Value {
    match client {
        ClientName::Number(number) => (*number).into(),
        ClientName::Text(text) => (**text).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn broadcasts_answers_errors_and_notices_have_their_form() {
        let mut message = Message {
            topic: "So \"me\"",
            payload: Payload::Json("{\"a\": 1}"),
            timestamp: Some(5),
            id: None,
            offset: None,
        };
        assert_eq!(
            text(broadcast(&message)),
            r#"{"key":"So \"me\"","broadcast":{"a": 1}}"#
        );
        message.payload = Payload::Bytes(b"\x00\xff");
        message.offset = Some(7);
        let expected = r#"{"key":"So \"me\"","broadcast_base64":"AP8=","offset":7,"timestamp":5}"#;
        assert_eq!(text(broadcast(&message)), expected);
        assert_eq!(text(success(None, &[])), r#"{"result":"success"}"#);
        assert_eq!(
            text(success(Some("[1]"), &[("receivers", 2.into())])),
            r#"{"id":[1],"result":"success","receivers":2}"#
        );
        assert_eq!(
            text(error(None, &Fault::Missing("topic"))),
            r#"{"error":"bad_state","message":"Error","info":"Key 'topic' not specified"}"#
        );
        assert_eq!(
            text(notice("dropped", &[("count", 3.into())])),
            r#"{"notice":"dropped","count":3}"#
        );
    }
}
