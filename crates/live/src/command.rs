//! Parses commands from JSON.
//!
//! Every command has `command` and `client_id`, and may have `id`, which is repeated in the answer. Unknown
//! fields are ignored. Errors name the invalid field.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use stafett_live_topics::{
    CLIENT_NAME_BYTES_MAX, ClientName, NameList, Overflow, Pattern, PatternError, StartFrom, TopicHash,
};

use crate::fault::Fault;

/// Maximum bytes of an `id`.
const ID_BYTES_MAX: usize = 256;
/// Default number of items in a page.
const PAGE_DEFAULT: usize = 1000;
const PAGE_MAX: usize = 10_000;

/// Limits on commands.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub topic_bytes_max: usize,
    pub outbox_bytes_max: usize,
}

/// One command of one client.
#[derive(Debug)]
pub struct Request<'a> {
    /// As given: JSON.
    pub id: Option<&'a str>,
    pub client: ClientName,
    pub command: Command<'a>,
}

#[derive(Debug)]
pub enum Command<'a> {
    Listen {
        outbox_bytes: Option<usize>,
        overflow: Option<Overflow>,
        /// Condition on deliveries.
        filter: Option<Cow<'a, str>>,
    },
    Leave,
    Subscribe(Names),
    /// Subscription from a position in the log; topics only.
    SubscribeFrom(NameList, StartFrom),
    Unsubscribe(Option<Names>),
    Publish {
        messages: Vec<Publish<'a>>,
        ack: bool,
    },
    List(PageWanted),
    Presence(PresenceOf<'a>, PageWanted),
    Ping,
}

/// Subject of a presence request.
#[derive(Debug)]
pub enum PresenceOf<'a> {
    Clients,
    Listening,
    Topics,
    Topic(Cow<'a, str>),
    Pattern(Pattern),
}

#[derive(Debug)]
pub enum Names {
    Topics(NameList),
    Patterns(Vec<Pattern>),
}

#[derive(Debug, Clone, Copy)]
pub struct PageWanted {
    pub from: u64,
    pub count: usize,
}

#[derive(Debug)]
pub struct Publish<'a> {
    pub topic: Cow<'a, str>,
    pub payload: Content<'a>,
    pub timestamp: Option<i64>,
    pub message_id: Option<Cow<'a, str>>,
    /// Hash of the topic's name, if its lookup has begun.
    pub foreseen: Option<TopicHash>,
}

#[derive(Debug)]
pub enum Content<'a> {
    Json(&'a str),
    Bytes(Vec<u8>),
}

impl Content<'_> {
    /// Returns its bytes as they were given.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// Fields of all commands, unparsed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    client_id: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    topic: Option<&'a RawValue>,
    pattern: Option<&'a RawValue>,
    all: Option<&'a RawValue>,
    of: Option<&'a RawValue>,
    #[serde(deserialize_with = "any")]
    payload: Option<&'a RawValue>,
    payload_base64: Option<&'a RawValue>,
    timestamp: Option<&'a RawValue>,
    message_id: Option<&'a RawValue>,
    messages: Option<&'a RawValue>,
    ack: Option<&'a RawValue>,
    from: Option<&'a RawValue>,
    count: Option<&'a RawValue>,
    outbox_bytes: Option<&'a RawValue>,
    overflow: Option<&'a RawValue>,
    filter: Option<&'a RawValue>,
}

/// Reads a field so that an explicit `null` counts as present.
fn any<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Parses a command. An error comes with the `id` for the answer.
pub fn read(text: &str, bounds: Bounds) -> Result<Request<'_>, (Option<&str>, Fault)> {
    let fields = Fields::read(text).map_err(|fault| (None, fault))?;
    let id = fields.id.map(RawValue::get);
    if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        let expected = "at most 256 bytes of JSON";
        return Err((None, Fault::Value { key: "id", expected }));
    }
    let read = || -> Result<Request<'_>, Fault> {
        let client = fields
            .client_id
            .ok_or(Fault::Missing("client_id"))
            .and_then(client_of)?;
        let name = fields.command.ok_or(Fault::Missing("command"))?;
        let name = text_of("command", name)?;
        Ok(Request {
            id,
            client,
            command: fields.command(&name, bounds)?,
        })
    };
    read().map_err(|fault| (id, fault))
}

/// Parses messages to publish that have no command around them: one, or a list.
pub fn read_messages(text: &str, bounds: Bounds) -> Result<Vec<Publish<'_>>, Fault> {
    if text.trim_start().starts_with('[') {
        let items: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| Fault::NotJson(error.to_string()))?;
        return items
            .into_iter()
            .map(|item| Fields::read(item.get())?.message(bounds))
            .collect();
    }
    let fields = Fields::read(text)?;
    match fields.messages {
        Some(list) => messages_of(list, bounds),
        None => Ok(vec![fields.message(bounds)?]),
    }
}

impl<'a> Fields<'a> {
    /// Parses an object. Serde would also accept a list, as the fields in their order.
    fn read(text: &'a str) -> Result<Self, Fault> {
        if text.trim_start().starts_with('[') {
            return Err(Fault::NotJson("expected an object, found a list".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| Fault::NotJson(error.to_string()))
    }

    fn command(&self, name: &str, bounds: Bounds) -> Result<Command<'a>, Fault> {
        match name {
            "publish" => {
                let messages = match self.messages {
                    Some(list) => messages_of(list, bounds)?,
                    None => vec![self.message(bounds)?],
                };
                let ack = self
                    .ack
                    .map(|raw| bool_of("ack", raw))
                    .transpose()?
                    .unwrap_or(false);
                Ok(Command::Publish { messages, ack })
            }
            "subscribe" => {
                let names = self.names(bounds)?;
                let from = self.from.map(from_of).transpose()?.unwrap_or_default();
                match (names, from) {
                    (names, StartFrom::New) => Ok(Command::Subscribe(names)),
                    (Names::Topics(names), from) => Ok(Command::SubscribeFrom(names, from)),
                    (Names::Patterns(_), _) => Err(Fault::Both("pattern", "from")),
                }
            }
            "unsubscribe" => {
                let all = self.all.map(|raw| bool_of("all", raw)).transpose()?;
                if all == Some(true) {
                    return Ok(Command::Unsubscribe(None));
                }
                Ok(Command::Unsubscribe(Some(self.names(bounds)?)))
            }
            "listen" => {
                let max = bounds.outbox_bytes_max as u64;
                let expected = "a number of bytes that the settings allow";
                let read = |raw: &RawValue| whole_of("outbox_bytes", raw.get(), expected, max);
                let outbox_bytes = self.outbox_bytes.map(read).transpose()?;
                Ok(Command::Listen {
                    outbox_bytes: outbox_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
                    overflow: self.overflow.map(overflow_of).transpose()?,
                    filter: self.filter.map(|raw| text_of("filter", raw)).transpose()?,
                })
            }
            "leave" => Ok(Command::Leave),
            "list" => Ok(Command::List(self.page()?)),
            "presence" => Ok(Command::Presence(self.presence_of(bounds)?, self.page()?)),
            "ping" => Ok(Command::Ping),
            _ => Err(Fault::Command),
        }
    }

    fn message(&self, bounds: Bounds) -> Result<Publish<'a>, Fault> {
        let topic = self.topic.ok_or(Fault::Missing("topic"))?;
        let payload = match (self.payload, self.payload_base64) {
            (Some(payload), _) => Content::Json(payload.get()),
            (None, Some(encoded)) => Content::Bytes(bytes_of("payload_base64", encoded)?),
            (None, None) => return Err(Fault::Missing("payload")),
        };
        let timestamp = self.timestamp.filter(|raw| raw.get() != "null");
        let message_id = self
            .message_id
            .map(|raw| text_of("message_id", raw))
            .transpose()?;
        Ok(Publish {
            topic: name_of("topic", topic, bounds)?,
            payload,
            timestamp: timestamp.map(timestamp_of).transpose()?,
            message_id,
            foreseen: None,
        })
    }

    fn names(&self, bounds: Bounds) -> Result<Names, Fault> {
        match (self.topic, self.pattern) {
            (Some(topic), None) => {
                let mut names = NameList::default();
                each_name("topic", topic, bounds, |name| {
                    names.push(name);
                    Ok(())
                })?;
                Ok(Names::Topics(names))
            }
            (None, Some(pattern)) => {
                let mut patterns = Vec::new();
                each_name("pattern", pattern, bounds, |text| {
                    patterns.push(Pattern::parse(text).map_err(pattern_fault)?);
                    Ok(())
                })?;
                Ok(Names::Patterns(patterns))
            }
            (Some(_), Some(_)) => Err(Fault::Both("topic", "pattern")),
            (None, None) => Err(Fault::Missing("topic")),
        }
    }

    fn presence_of(&self, bounds: Bounds) -> Result<PresenceOf<'a>, Fault> {
        let text = |key, raw: Option<&'a RawValue>| raw.map(|raw| text_of(key, raw)).transpose();
        PresenceOf::new(
            text("topic", self.topic)?,
            text("pattern", self.pattern)?,
            text("of", self.of)?.as_deref(),
            bounds,
        )
    }

    fn page(&self) -> Result<PageWanted, Fault> {
        PageWanted::new(self.from.map(RawValue::get), self.count.map(RawValue::get))
    }
}

impl<'a> PresenceOf<'a> {
    pub(crate) fn new(
        topic: Option<Cow<'a, str>>,
        pattern: Option<Cow<'a, str>>,
        of: Option<&str>,
        bounds: Bounds,
    ) -> Result<Self, Fault> {
        match (topic, pattern, of) {
            (Some(topic), None, None) => {
                check_name("topic", &topic, bounds.topic_bytes_max)?;
                Ok(Self::Topic(topic))
            }
            (None, Some(pattern), None) => {
                check_name("pattern", &pattern, bounds.topic_bytes_max)?;
                Ok(Self::Pattern(Pattern::parse(&pattern).map_err(pattern_fault)?))
            }
            (None, None, None | Some("clients")) => Ok(Self::Clients),
            (None, None, Some("listening")) => Ok(Self::Listening),
            (None, None, Some("topics")) => Ok(Self::Topics),
            (None, None, Some(_)) => Err(Fault::Value {
                key: "of",
                expected: "clients, listening or topics",
            }),
            (Some(_), Some(_), _) => Err(Fault::Both("topic", "pattern")),
            (Some(_), None, Some(_)) => Err(Fault::Both("topic", "of")),
            (None, Some(_), Some(_)) => Err(Fault::Both("pattern", "of")),
        }
    }
}

impl PageWanted {
    /// Parses whole numbers.
    pub(crate) fn new(from: Option<&str>, count: Option<&str>) -> Result<Self, Fault> {
        let expected = "what `next` of the page before says";
        let from = from
            .map(|text| whole_of("from", text, expected, u64::MAX))
            .transpose()?;
        let (key, expected) = ("count", "1 to 10000");
        let count = count
            .map(|text| whole_of(key, text, expected, PAGE_MAX as u64))
            .transpose()?;
        if count == Some(0) {
            return Err(Fault::Value { key, expected });
        }
        Ok(Self {
            from: from.unwrap_or(0),
            count: count
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(PAGE_DEFAULT),
        })
    }
}

fn messages_of(list: &RawValue, bounds: Bounds) -> Result<Vec<Publish<'_>>, Fault> {
    let expected = "a list of objects with topic and payload";
    let items: Vec<&RawValue> = serde_json::from_str(list.get()).map_err(|_| Fault::Value {
        key: "messages",
        expected,
    })?;
    items
        .into_iter()
        .map(|item| Fields::read(item.get())?.message(bounds))
        .collect()
}

/// Parses a whole number or a text; the number 1 and the text "1" are two clients.
pub(crate) fn client_of(raw: &RawValue) -> Result<ClientName, Fault> {
    let expected = "a whole number, or a text of at most 256 bytes";
    let wrong = Fault::Value {
        key: "client_id",
        expected,
    };
    if let Ok(number) = raw.get().parse() {
        return Ok(ClientName::Number(number));
    }
    let text = text_of("client_id", raw).map_err(|_| wrong.clone())?;
    if text.len() > CLIENT_NAME_BYTES_MAX {
        return Err(wrong);
    }
    Ok(ClientName::Text(text.into()))
}

fn text_of<'a>(key: &'static str, raw: &'a RawValue) -> Result<Cow<'a, str>, Fault> {
    let json = raw.get();
    // Fast path: most texts contain no escapes.
    let plain = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
    if let Some(plain) = plain
        && !plain.contains('\\')
    {
        return Ok(Cow::Borrowed(plain));
    }
    let text: Result<String, _> = serde_json::from_str(json);
    let expected = "a text";
    text.map(Cow::Owned).map_err(|_| Fault::Value { key, expected })
}

/// Parses the name of a topic, or a pattern.
fn name_of<'a>(key: &'static str, raw: &'a RawValue, bounds: Bounds) -> Result<Cow<'a, str>, Fault> {
    let name = text_of(key, raw)?;
    check_name(key, &name, bounds.topic_bytes_max)?;
    Ok(name)
}

pub(crate) fn check_name(key: &'static str, name: &str, max: usize) -> Result<(), Fault> {
    if name.len() > max {
        return Err(Fault::TooLong { key, max });
    }
    Ok(())
}

/// Visits one name, or each name of a list.
fn each_name(
    key: &'static str,
    raw: &RawValue,
    bounds: Bounds,
    mut visit: impl FnMut(&str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if !raw.get().starts_with('[') {
        return visit(&name_of(key, raw, bounds)?);
    }
    let expected = "a text or a list of texts";
    let names: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| Fault::Value { key, expected })?;
    for name in names {
        let name = text_of(key, name).map_err(|_| Fault::Value { key, expected })?;
        check_name(key, &name, bounds.topic_bytes_max)?;
        visit(&name)?;
    }
    Ok(())
}

fn bool_of(key: &'static str, raw: &RawValue) -> Result<bool, Fault> {
    let expected = "true or false";
    raw.get().parse().map_err(|_| Fault::Value { key, expected })
}

fn whole_of(key: &'static str, json: &str, expected: &'static str, max: u64) -> Result<u64, Fault> {
    let number = json.parse().ok().filter(|number| *number <= max);
    number.ok_or(Fault::Value { key, expected })
}

fn timestamp_of(raw: &RawValue) -> Result<i64, Fault> {
    let key = "timestamp";
    let expected = "a whole number: milliseconds since 1970";
    raw.get().parse().map_err(|_| Fault::Value { key, expected })
}

pub(crate) fn from_of(raw: &RawValue) -> Result<StartFrom, Fault> {
    let key = "from";
    let expected = "new, earliest, resume or an offset";
    if let Ok(offset) = raw.get().parse() {
        return Ok(StartFrom::Offset(offset));
    }
    match &*text_of(key, raw).map_err(|_| Fault::Value { key, expected })? {
        "new" => Ok(StartFrom::New),
        "earliest" => Ok(StartFrom::Earliest),
        "resume" => Ok(StartFrom::Resume),
        _ => Err(Fault::Value { key, expected }),
    }
}

fn overflow_of(raw: &RawValue) -> Result<Overflow, Fault> {
    let key = "overflow";
    let expected = "drop-oldest, drop-newest or disconnect";
    match &*text_of(key, raw)? {
        "drop-oldest" => Ok(Overflow::DropOldest),
        "drop-newest" => Ok(Overflow::DropNewest),
        "disconnect" => Ok(Overflow::Disconnect),
        _ => Err(Fault::Value { key, expected }),
    }
}

fn bytes_of(key: &'static str, raw: &RawValue) -> Result<Vec<u8>, Fault> {
    use base64::Engine;
    let text = text_of(key, raw)?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(&*text);
    let expected = "base64 (RFC 4648, with padding)";
    bytes.map_err(|_| Fault::Value { key, expected })
}

pub(crate) fn pattern_fault(error: PatternError) -> Fault {
    let expected = match error {
        PatternError::Unfinished => "something behind the last \\",
        PatternError::TooMany => "at most 16 *",
    };
    Fault::Value {
        key: "pattern",
        expected,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        topic_bytes_max: 100,
        outbox_bytes_max: 1000,
    };

    fn fault(text: &str) -> String {
        read(text, BOUNDS).unwrap_err().1.to_string()
    }

    /// Invalid commands, and a part of the error text.
    const FAULTS: &[(&str, &str)] = &[
        (
            r#"{"command":"subscribe","client_id":1,"topic":"a","from":"then"}"#,
            "Key 'from'",
        ),
        (
            r#"{"command":"subscribe","client_id":1}"#,
            "Key 'topic' not specified",
        ),
        (
            r#"{"command":"publish","client_id":1,"topic":"a"}"#,
            "Key 'payload' not specified",
        ),
        (
            r#"{"command":"publish","client_id":1,"payload":1}"#,
            "Key 'topic' not specified",
        ),
        (r#"{"command":"listen"}"#, "Key 'client_id' not specified"),
        (r#"{"client_id":1}"#, "Key 'command' not specified"),
        (
            r#"{"command":"publish","client_id":1,"topic":5,"payload":1}"#,
            "Key 'topic'",
        ),
        (
            r#"{"command":"subscribe","client_id":1,"topic":["a",5]}"#,
            "Key 'topic'",
        ),
        (
            r#"{"command":"subscribe","client_id":1.5,"topic":"a"}"#,
            "Key 'client_id'",
        ),
        (
            r#"{"command":"subscribe","client_id":null,"topic":"a"}"#,
            "Key 'client_id'",
        ),
        (
            r#"{"command":"subscribe","client_id":[1],"topic":"a"}"#,
            "Key 'client_id'",
        ),
        (r#"{"command":5,"client_id":1}"#, "Key 'command'"),
        (
            r#"{"command":"publish","client_id":1,"topic":"a","payload":1,"timestamp":"x"}"#,
            "Key 'timestamp'",
        ),
        (
            r#"{"command":"publish","client_id":1,"topic":"a","payload_base64":"%"}"#,
            "Key 'payload_base64'",
        ),
        (
            r#"{"command":"publish","client_id":1,"messages":[{"topic":"a"}]}"#,
            "Key 'payload' not specified",
        ),
        (
            r#"{"command":"subscribe","client_id":1,"pattern":"\\"}"#,
            "Key 'pattern'",
        ),
        (
            r#"{"command":"listen","client_id":1,"overflow":"block"}"#,
            "Key 'overflow'",
        ),
        (
            r#"{"command":"listen","client_id":1,"outbox_bytes":1001}"#,
            "Key 'outbox_bytes'",
        ),
        (r#"{"command":"list","client_id":1,"count":0}"#, "Key 'count'"),
        ("[]", "expected"),
        ("nonsense", "expected"),
        ("", "EOF"),
    ];

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (text, expected) in FAULTS {
            let fault = fault(text);
            assert!(fault.contains(expected), "{text}: {fault}");
        }
        let long = format!(
            r#"{{"command":"subscribe","client_id":1,"topic":"{}"}}"#,
            "x".repeat(101)
        );
        assert!(fault(&long).contains("Key 'topic'"), "{}", fault(&long));
    }

    #[test]
    fn the_same_key_twice_is_refused() {
        let text = r#"{"command":"listen","client_id":1,"client_id":2}"#;
        assert!(fault(text).contains("duplicate field"), "{}", fault(text));
    }

    #[test]
    fn clients_are_numbers_or_texts() {
        for (id, expected) in [
            ("1", ClientName::Number(1)),
            ("-7", ClientName::Number(-7)),
            ("\"1\"", ClientName::Text("1".into())),
            ("\"\\u0031\"", ClientName::Text("1".into())),
        ] {
            let text = format!(r#"{{"command":"listen","client_id":{id}}}"#);
            assert_eq!(read(&text, BOUNDS).unwrap().client, expected);
        }
    }

    #[test]
    fn a_payload_is_passed_on_as_it_is_written() {
        for payload in ["null", "\"a\\nb\"", "{\"b\": 1, \"a\": [2 ]}", "1e400"] {
            let text = format!(r#"{{"command":"publish","client_id":1,"topic":"a","payload":{payload}}}"#);
            let request = read(&text, BOUNDS).unwrap();
            let Command::Publish { messages, .. } = request.command else {
                panic!("a publish")
            };
            assert!(matches!(messages[0].payload, Content::Json(json) if json == payload));
        }
    }

    #[test]
    fn a_payload_of_any_depth_passes_without_recursion() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(r#"{{"command":"publish","client_id":1,"topic":"a","payload":{deep}}}"#);
        assert!(read(&text, BOUNDS).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            drop(read(&text, BOUNDS));
            drop(read_messages(&text, BOUNDS));
        }

        #[test]
        fn names_are_what_they_were(names in proptest::collection::vec(".{0,20}", 0..10)) {
            let topics = serde_json::to_string(&names).unwrap();
            let text = format!(r#"{{"command":"subscribe","client_id":1,"topic":{topics}}}"#);
            let request = read(&text, BOUNDS).unwrap();
            let Command::Subscribe(Names::Topics(read)) = request.command else {
                panic!("topics")
            };
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), names.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
