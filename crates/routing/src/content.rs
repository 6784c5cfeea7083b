//! Messages as filters see them: one that is being routed, and one that is stored.

use std::borrow::Cow;
use std::cell::OnceCell;

use stafett_expr::{Found, NoJson, Paths, Record, Value, Variable};
use stafett_model::{Message, StoredMessage};

use crate::attributes::AttributeReaders;
use crate::message_view::HeaderValue;

/// Work of a look at one header that is kept as it is.
const HEADER_WORK: usize = 16;

/// A message of a publisher.
#[derive(Debug)]
pub struct Content<'a> {
    /// Routing key.
    pub key: &'a str,
    pub message: &'a Message,
    pub readers: &'a AttributeReaders,
}

/// A stored message. It is copied if a filter looks at headers, and not otherwise.
#[derive(Debug)]
pub struct StoredContent<'a> {
    message: &'a StoredMessage,
    readers: &'a AttributeReaders,
    copy: OnceCell<Message>,
}

impl Content<'_> {
    /// Visits the headers, each name once.
    pub fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        if let Some((reader, kept)) = self.readers.of(self.message) {
            reader.headers(kept, visit);
            return;
        }
        for (name, value) in &self.message.headers {
            let value = value.clone().map_or(HeaderValue::Nothing, HeaderValue::Text);
            visit(name.as_bytes(), value);
        }
    }

    fn value_of(&self, header: &str) -> Option<Value<'static>> {
        let mut found = None;
        self.headers(&mut |known, value| {
            if known == header.as_bytes() {
                found = Some(value.into_value());
            }
        });
        found
    }
}

impl<'a> StoredContent<'a> {
    pub fn new(message: &'a StoredMessage, readers: &'a AttributeReaders) -> Self {
        Self {
            message,
            readers,
            copy: OnceCell::new(),
        }
    }

    fn copied(&self) -> Content<'_> {
        Content {
            key: self.message.routing_key(),
            message: self.copy.get_or_init(|| self.message.to_message()),
            readers: self.readers,
        }
    }
}

/// Fields of a message that are variables.
struct Fields<'a> {
    key: Option<&'a [u8]>,
    timestamp_ms: i64,
    exchange: &'a str,
    routing_key: &'a str,
    priority: u8,
}

impl<'a> Fields<'a> {
    fn variable(self, variable: Variable) -> Value<'a> {
        match variable {
            Variable::Key => self.key.map_or(Value::Null, Value::of_bytes),
            Variable::Timestamp => Value::of_millis(self.timestamp_ms),
            Variable::Exchange => Value::Text(Cow::Borrowed(self.exchange)),
            Variable::RoutingKey => Value::Text(Cow::Borrowed(self.routing_key)),
            Variable::Priority => Value::Int(self.priority.into()),
            Variable::Value
            | Variable::Headers
            | Variable::Topic
            | Variable::Partition
            | Variable::Offset => Value::Null,
        }
    }
}

fn read<'r>(value: &'r [u8], paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
    let text = std::str::from_utf8(value).map_err(|_| NoJson)?;
    paths.read(text, found)
}

impl Record for Content<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let fields = Fields {
            key: self.message.key.as_deref(),
            timestamp_ms: self.message.timestamp_ms,
            exchange: &self.message.exchange,
            routing_key: self.key,
            priority: self.message.priority,
        };
        fields.variable(variable)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.value_of(name)
    }

    /// Headers that a front end keeps in a form of its own are decoded each time.
    fn header_work(&self) -> usize {
        let kept = self.readers.of(self.message).map_or(0, |(_, kept)| kept.len());
        kept + self.message.headers.iter().count() * HEADER_WORK
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        read(&self.message.value, paths, found)
    }
}

impl Record for StoredContent<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let fields = Fields {
            key: self.message.key(),
            timestamp_ms: self.message.timestamp_ms(),
            exchange: self.message.exchange(),
            routing_key: self.message.routing_key(),
            priority: self.message.priority(),
        };
        fields.variable(variable)
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.copied().value_of(name)
    }

    fn header_work(&self) -> usize {
        self.copied().header_work()
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        read(self.message.value(), paths, found)
    }
}
