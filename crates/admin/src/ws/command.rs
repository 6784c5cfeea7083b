//! Commands of a WebSocket: `{"id": 1, "op": "send", …}`.
//!
//! The fields of a command are those of the route that does the same. Its `id` is any JSON of bounded length,
//! and comes back with the answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Problem};

use crate::sender::Outgoing;

/// Bound on the bytes of an id.
const ID_BYTES_MAX: usize = 256;

/// Operation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Register,
    Send,
    Call,
    Receive,
    Peek,
    Settle,
    Pending,
    Publish,
    Produce,
    Consume,
    Cancel,
    Watch,
    Unwatch,
    Ping,
}

/// Fields of a command besides `id` and `op`.
pub type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// A command as it came.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// As JSON.
    pub id: Option<&'a str>,
    pub op: Op,
    text: &'a str,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    op: Op,
}

/// A message to be sent, with the options of its command.
#[derive(Debug, Default)]
pub(crate) struct SendCommand {
    pub(crate) message: Outgoing,
    pub(crate) namespace: Option<String>,
}

impl<'a> Command<'a> {
    /// Reads a command. A refusal has the id if that could be read.
    pub fn read(text: &'a str) -> Result<Self, (Option<&'a str>, Problem)> {
        let read: Result<Object<Head<'a>>, _> = serde_json::from_str(text);
        let Object(Head { id, op }) = match read {
            Ok(head) => head,
            Err(why) => return Err((id_of(text), refused(&why))),
        };
        let id = id.map(RawValue::get);
        if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
            let why = format!("id has at most {ID_BYTES_MAX} bytes");
            return Err((None, Problem::bad_request(why)));
        }
        Ok(Self { id, op, text })
    }

    /// Returns the fields.
    pub fn fields(&self) -> Result<Fields<'a>, Problem> {
        let read: Result<Fields<'a>, _> = serde_json::from_str(self.text);
        let mut fields = read.map_err(|why| refused(&why))?;
        fields.remove("id");
        fields.remove("op");
        fields.retain(|_, value| value.get() != "null");
        Ok(fields)
    }

    /// Reads the command as a value of a type that refuses unknown fields.
    pub(crate) fn value<T: Deserialize<'a>>(&self) -> Result<T, Problem> {
        self.value_in(&mut None)
    }

    /// Reads the message of a `send`; true if it is one.
    pub fn read_message(&self) -> bool {
        self.send().is_ok()
    }

    pub(crate) fn send(&self) -> Result<SendCommand, Problem> {
        let mut namespace = None;
        let message = self.value_in(&mut namespace)?;
        Ok(SendCommand { message, namespace })
    }

    /// Reads the command like [`Self::value`], and its namespace.
    pub(crate) fn value_in<T: Deserialize<'a>>(&self, namespace: &mut Option<String>) -> Result<T, Problem> {
        let mut reader = serde_json::Deserializer::from_str(self.text);
        let read = reader.deserialize_map(RestVisitor {
            namespace,
            read: std::marker::PhantomData,
        });
        read.map_err(|why| refused(&why))
    }
}

fn refused(why: &serde_json::Error) -> Problem {
    body::refused("the command", why)
}

/// Returns the id of a command that could not be read, for its refusal.
fn id_of(text: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let Object(Id { id }) = serde_json::from_str(text).ok()?;
    Some(id.get()).filter(|id| id.len() <= ID_BYTES_MAX)
}

/// Reads a value from the fields of a command that are its own.
struct RestVisitor<'n, T> {
    namespace: &'n mut Option<String>,
    read: std::marker::PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for RestVisitor<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Rest {
            fields,
            namespace: self.namespace,
        }))
    }
}

/// Fields without those of every command.
struct Rest<'n, A> {
    fields: A,
    namespace: &'n mut Option<String>,
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Name(name)) = self.fields.next_key()? {
            match &*name {
                "id" | "op" => drop(self.fields.next_value::<serde::de::IgnoredAny>()?),
                "namespace" => *self.namespace = self.fields.next_value()?,
                _ => return seed.deserialize(CowStrDeserializer::new(name)).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}

/// Returns the refusal of a message that is no text.
pub(super) fn unreadable(why: &str) -> Problem {
    Problem::new(Code::BadJson, format!("the command: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_an_id_an_operation_and_fields() {
        let text = r#"{"op": "receive", "queue": "a\"b", "id": [1, "x"], "count": 2, "sender": null}"#;
        let command = Command::read(text).unwrap();
        assert_eq!((command.id, command.op), (Some(r#"[1, "x"]"#), Op::Receive));
        let fields = command.fields().unwrap();
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (&**name, value.get()))
            .collect();
        assert_eq!(fields, [("count", "2"), ("queue", r#""a\"b""#)]);
        let text = r#"{"op":"send","id":7,"to":{"queues":["q"]},"content":{"a": 1.50},"namespace":"n"}"#;
        let SendCommand { message, namespace } = Command::read(text).unwrap().send().unwrap();
        assert_eq!(message.content.unwrap().get(), r#"{"a": 1.50}"#);
        assert_eq!(namespace.as_deref(), Some("n"));
    }

    #[test]
    fn refusals_have_the_id_where_it_can_be_read() {
        let long = format!(r#"{{"op": "ping", "id": "{}"}}"#, "x".repeat(ID_BYTES_MAX));
        for (text, id, code) in [
            ("", None, "bad_json"),
            ("[]", None, "bad_request"),
            (r#"[1, "ping"]"#, None, "bad_request"),
            (r#"{"id": 1}"#, Some("1"), "bad_request"),
            (r#"{"id": 1, "op": "sing"}"#, Some("1"), "bad_request"),
            (r#"{"id": 1, "op": []}"#, Some("1"), "bad_json"),
            (r#"{"id": 1, "op": "ping""#, None, "bad_json"),
            (&long, None, "bad_request"),
        ] {
            let (found, problem) = Command::read(text).unwrap_err();
            assert_eq!((found, problem.code.word()), (id, code), "{text}");
        }
        let unknown = Command::read(r#"{"op": "send", "two": {}}"#).unwrap();
        assert_eq!(unknown.send().unwrap_err().code, Code::UnknownField);
        let nested = format!(r#"{{"op": "send", "headers": {}"#, "{\"a\":".repeat(5000));
        assert!(Command::read(&nested).is_err());
    }
}
