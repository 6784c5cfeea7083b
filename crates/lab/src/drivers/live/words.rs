//! Commands and broadcasts (`docs/live.md`), in JSON and in MessagePack.
//!
//! In MessagePack a message's content is bytes. In JSON it is a text: base64 of the content, cut to as many
//! letters as the message is to have bytes; the lab's own bytes at the front survive that, and nothing else
//! is looked at.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, Serializer};

use crate::drivers::DriverError;
use crate::experiment::LiveFormat;
use crate::workload::{HEADER_BYTES, Received};

/// The lab's own bytes in base64.
const HEADER_LETTERS: usize = HEADER_BYTES.div_ceil(3) * 4;

/// A command.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Order<'a> {
    pub(super) command: &'a str,
    pub(super) client_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outbox_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topic: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) all: Option<bool>,
}

/// Publishing of one message, or of several that are answered together.
#[derive(Debug, Default, Serialize)]
struct Publish<'a> {
    command: &'static str,
    client_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ack: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Payload<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [Entry<'a>]>,
}

/// A message to a topic.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: Payload<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Payload<'a> {
    pub(super) content: &'a [u8],
    pub(super) format: LiveFormat,
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.format {
            LiveFormat::Json => to.serialize_str(std::str::from_utf8(self.content).unwrap_or_default()),
            LiveFormat::Msgpack => to.serialize_bytes(self.content),
        }
    }
}

/// Writes a message in place of the content of `into`.
pub(super) fn write(
    message: &impl Serialize,
    format: LiveFormat,
    into: &mut Vec<u8>,
) -> Result<(), DriverError> {
    into.clear();
    let failed = |error: String| DriverError::Failed(error);
    match format {
        LiveFormat::Json => serde_json::to_writer(into, message).map_err(|error| failed(error.to_string())),
        LiveFormat::Msgpack => {
            rmp_serde::encode::write_named(into, message).map_err(|error| failed(error.to_string()))
        }
    }
}

/// The publishing of messages: one command with an answer, or one each without; `visit` is given each of
/// them.
pub(super) fn publish(
    entries: &[Entry<'_>],
    format: LiveFormat,
    is_answered: bool,
    scratch: &mut Vec<u8>,
    mut visit: impl FnMut(&[u8]),
) -> Result<(), DriverError> {
    let publish = || Publish {
        command: "publish",
        client_id: "lab",
        ..Publish::default()
    };
    if is_answered {
        let all = Publish {
            ack: Some(true),
            messages: Some(entries),
            ..publish()
        };
        write(&all, format, scratch)?;
        visit(scratch);
        return Ok(());
    }
    for Entry { topic, payload } in entries {
        let one = Publish {
            topic: Some(topic),
            payload: Some(*payload),
            ..publish()
        };
        write(&one, format, scratch)?;
        visit(scratch);
    }
    Ok(())
}

/// Adds a message's content as it is sent.
pub(super) fn add_content(bytes: &[u8], format: LiveFormat, into: &mut Vec<u8>) {
    match format {
        LiveFormat::Msgpack => into.extend_from_slice(bytes),
        LiveFormat::Json => {
            let start = into.len();
            let letters = bytes.len().div_ceil(3) * 4;
            into.resize(start + letters, 0);
            // The space is as large as it has to be.
            if let Some(space) = into.get_mut(start..) {
                let _ = STANDARD.encode_slice(bytes, space);
            }
            into.truncate(start + bytes.len().max(HEADER_LETTERS));
        }
    }
}

/// Message of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    Message(Received),
    /// To a command; the error is the broker's reason.
    Answer(Result<(), String>),
    /// Number of messages that were dropped for this slow reader.
    Dropped(u64),
    /// Nothing that matters here.
    Other,
}

#[derive(Debug, Deserialize)]
struct Said<'a, B> {
    #[serde(default = "Option::default")]
    broadcast: Option<B>,
    #[serde(borrow, default)]
    result: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    info: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    notice: Option<Cow<'a, str>>,
    #[serde(default)]
    count: Option<u64>,
}

/// Reads a message of the broker.
pub(super) fn hear(message: &[u8], format: LiveFormat) -> Result<Heard, DriverError> {
    let failed = |error: String| {
        let start: String = String::from_utf8_lossy(message).chars().take(100).collect();
        DriverError::Failed(format!(
            "what the broker said is not understood: {error}: {start}"
        ))
    };
    match format {
        LiveFormat::Json => {
            let said: Said<'_, &str> =
                serde_json::from_slice(message).map_err(|error| failed(error.to_string()))?;
            Ok(sort(&said, of_text))
        }
        LiveFormat::Msgpack => {
            let said: Said<'_, &[u8]> =
                rmp_serde::from_slice(message).map_err(|error| failed(error.to_string()))?;
            Ok(sort(&said, Received::read))
        }
    }
}

fn sort<B: Copy>(said: &Said<'_, B>, read: impl FnOnce(B) -> Option<Received>) -> Heard {
    if let Some(broadcast) = said.broadcast {
        return read(broadcast).map_or(Heard::Other, Heard::Message);
    }
    if said.result.is_some() {
        return Heard::Answer(Ok(()));
    }
    if let Some(error) = &said.error {
        let info = said.info.as_deref().unwrap_or_default();
        return Heard::Answer(Err(format!("{error}: {info}")));
    }
    if said.notice.as_deref() == Some("dropped") {
        return Heard::Dropped(said.count.unwrap_or(0));
    }
    Heard::Other
}

fn of_text(text: &str) -> Option<Received> {
    let letters = text.as_bytes().get(..HEADER_LETTERS)?;
    let mut header = [0; HEADER_BYTES];
    STANDARD.decode_slice(letters, &mut header).ok()?;
    let mut received = Received::read(&header)?;
    received.size = u32::try_from(text.len()).ok()?;
    Some(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Message;
    use crate::workload::content::Contents;

    const BOTH: [LiveFormat; 2] = [LiveFormat::Json, LiveFormat::Msgpack];

    fn message(size: u32) -> Message {
        Message {
            priority: 0,
            stream: 1 << 20,
            reply: 7,
            sequence: 1 << 40,
            intended: 123_456_789,
            topic: 1,
            size,
        }
    }

    fn broadcast(content: &[u8], format: LiveFormat) -> Vec<u8> {
        #[derive(Serialize)]
        struct Delivered<'a> {
            key: &'a str,
            broadcast: Payload<'a>,
            offset: u64,
        }
        let broadcast = Delivered {
            key: "a \"topic\"",
            broadcast: Payload { content, format },
            offset: 5,
        };
        let mut out = Vec::new();
        write(&broadcast, format, &mut out).unwrap();
        out
    }

    #[test]
    fn messages_come_back_as_they_were_and_as_large_as_asked_for() {
        for format in BOTH {
            for size in [24, 32, 33, 100, 1000] {
                let mut bytes = Vec::new();
                Contents::constant().write(&message(size), &mut bytes);
                let mut content = b"before".to_vec();
                add_content(&bytes, format, &mut content);
                let content = &content[6..];
                let expected = match format {
                    LiveFormat::Json => size.max(32),
                    LiveFormat::Msgpack => size,
                };
                let Heard::Message(heard) = hear(&broadcast(content, format), format).unwrap() else {
                    panic!("it is a message");
                };
                assert_eq!((heard.stream, heard.reply), (1 << 20, 7));
                assert_eq!((heard.sequence, heard.intended), (1 << 40, 123_456_789));
                assert_eq!(heard.size, expected);
            }
        }
    }

    #[test]
    fn publishes_are_as_they_are_documented() {
        let mut seen = Vec::new();
        let mut scratch = Vec::new();
        let format = LiveFormat::Json;
        let entries = [("a", "one"), ("b", "two")].map(|(topic, content)| Entry {
            topic,
            payload: Payload {
                content: content.as_bytes(),
                format,
            },
        });
        for is_answered in [true, false] {
            publish(&entries, format, is_answered, &mut scratch, |message| {
                seen.push(String::from_utf8(message.to_vec()).unwrap());
            })
            .unwrap();
        }
        let all = r#"{"command":"publish","client_id":"lab","ack":true,"messages":[{"topic":"a","payload":"one"},{"topic":"b","payload":"two"}]}"#;
        let one = r#"{"command":"publish","client_id":"lab","topic":"a","payload":"one"}"#;
        assert_eq!(seen[..2], [all, one]);
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn answers_and_notices_are_told_apart() {
        for (said, expected) in [
            (r#"{"result":"success","receivers":3}"#, Heard::Answer(Ok(()))),
            (
                r#"{"error":"bad_state","message":"Error","info":"Key \"topic\""}"#,
                Heard::Answer(Err("bad_state: Key \"topic\"".to_owned())),
            ),
            (r#"{"notice":"dropped","count":17}"#, Heard::Dropped(17)),
            (r#"{"notice":"taken_over","client_id":1}"#, Heard::Other),
            (r#"{"key":"x","broadcast":"not of the lab"}"#, Heard::Other),
        ] {
            assert_eq!(hear(said.as_bytes(), LiveFormat::Json).unwrap(), expected);
        }
        assert!(hear(b"{", LiveFormat::Json).is_err());
        assert!(hear(b"\xc1", LiveFormat::Msgpack).is_err());
    }
}
