//! A message as exchanges and filters see it.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;
use jiff::Timestamp;
use stafett_expr::{Found, NoJson, Paths, Record, Value, Variable};
use stafett_model::Message;
use stafett_routing::{AttributeReaders, Filter, FilterWork, HeaderValue, MessageView, Property};

use super::metrics::ExchangeMetrics;

/// Work of a look at one header that is kept as it is.
const HEADER_WORK: usize = 16;

/// A message as seen by exchanges.
#[derive(Debug)]
pub(crate) struct RoutedMessage<'a> {
    pub(crate) key: &'a str,
    pub(crate) more_keys: &'a [ByteString],
    pub(crate) message: &'a Message,
    pub(crate) facts: &'a AttributeReaders,
    /// True if the message still has to wait at a delaying exchange.
    pub(crate) delayed: bool,
    pub(crate) metrics: &'a ExchangeMetrics,
}

/// A message as seen by filters.
#[derive(Debug)]
pub(crate) struct FilteredMessage<'a> {
    pub(crate) key: &'a str,
    pub(crate) message: &'a Message,
    pub(crate) facts: &'a AttributeReaders,
}

impl MessageView for RoutedMessage<'_> {
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn more_keys(&self) -> &[ByteString] {
        self.more_keys
    }

    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        self.content().headers(visit);
    }

    fn property(&self, property: Property) -> Option<Bytes> {
        let (reader, kept) = self.facts.of(self.message)?;
        reader.property(kept, property)
    }

    fn admits(&self, filter: &Filter, work: &mut FilterWork) -> bool {
        let verdict = filter.is_true(&self.content(), work);
        if verdict.is_err() {
            self.metrics.filter_errors.inc();
        }
        verdict.unwrap_or(false)
    }

    fn is_delayed(&self) -> bool {
        self.delayed
    }
}

impl RoutedMessage<'_> {
    fn content(&self) -> FilteredMessage<'_> {
        FilteredMessage {
            key: self.key,
            message: self.message,
            facts: self.facts,
        }
    }
}

impl FilteredMessage<'_> {
    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        if let Some((reader, kept)) = self.facts.of(self.message) {
            reader.headers(kept, visit);
            return;
        }
        for (name, value) in &self.message.headers {
            let value = value.clone().map_or(HeaderValue::Nothing, HeaderValue::Text);
            visit(name.as_bytes(), value);
        }
    }

    pub(crate) fn owned_header(&self, name: &str) -> Option<Value<'static>> {
        let mut found = None;
        self.headers(&mut |known, value| {
            if known == name.as_bytes() {
                found = Some(value.into_value());
            }
        });
        found
    }
}

/// Returns the time of a message, from milliseconds since 1970; null if it has none.
pub(crate) fn time_of(timestamp_ms: i64) -> Value<'static> {
    let time = Timestamp::from_millisecond(timestamp_ms).ok();
    time.filter(|_| timestamp_ms >= 0)
        .map_or(Value::Null, Value::Time)
}

impl Record for FilteredMessage<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let message = self.message;
        match variable {
            Variable::Key => message.key.as_deref().map_or(Value::Null, Value::of_bytes),
            Variable::Timestamp => time_of(message.timestamp_ms),
            Variable::Exchange => Value::Text(Cow::Borrowed(&message.exchange)),
            Variable::RoutingKey => Value::Text(Cow::Borrowed(self.key)),
            Variable::Priority => Value::Int(message.priority.into()),
            Variable::Value
            | Variable::Headers
            | Variable::Topic
            | Variable::Partition
            | Variable::Offset => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.owned_header(name)
    }

    /// Headers that a front end keeps in a form of its own are decoded each time.
    fn header_work(&self) -> usize {
        let message = self.message;
        let kept = self.facts.of(message).map_or(0, |(_, kept)| kept.len());
        kept + message.headers.iter().count() * HEADER_WORK
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let text = std::str::from_utf8(&self.message.value).map_err(|_| NoJson)?;
        paths.read(text, found)
    }
}
