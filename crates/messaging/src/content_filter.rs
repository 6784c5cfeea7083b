//! Filter of a consumer: a condition on the content of messages.

use std::borrow::Cow;
use std::cell::OnceCell;

use prometheus_client::metrics::counter::Counter;
use stafett_delivery::MessageFilter;
use stafett_expr::{Found, NoJson, Paths, Record, Value, Variable};
use stafett_model::{Message, StoredMessage};
use stafett_routing::{AttributeReaders, Filter, FilterWork};

use crate::exchanges::routed_message::{FilteredMessage, time_of};

/// Condition on stored messages, with the same meaning as that of a binding.
#[derive(Debug)]
pub(crate) struct ContentFilter {
    pub(crate) filter: Filter,
    pub(crate) facts: AttributeReaders,
    /// Evaluations that failed.
    pub(crate) errors: Counter,
}

impl MessageFilter for ContentFilter {
    fn source(&self) -> &str {
        self.filter.source()
    }

    fn is_true_of(&self, message: &StoredMessage) -> bool {
        let content = StoredContent {
            message,
            facts: &self.facts,
            copy: OnceCell::new(),
        };
        let verdict = self.filter.is_true(&content, &mut FilterWork::default());
        if verdict.is_err() {
            self.errors.inc();
        }
        verdict.unwrap_or(false)
    }
}

/// A stored message as a filter sees it. It is copied if the filter looks at headers, and not otherwise.
struct StoredContent<'a> {
    message: &'a StoredMessage,
    facts: &'a AttributeReaders,
    copy: OnceCell<Message>,
}

impl StoredContent<'_> {
    fn with_headers(&self) -> FilteredMessage<'_> {
        FilteredMessage {
            key: self.message.routing_key(),
            message: self.copy.get_or_init(|| self.message.to_message()),
            facts: self.facts,
        }
    }
}

impl Record for StoredContent<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let message = self.message;
        match variable {
            Variable::Key => message.key().map_or(Value::Null, Value::of_bytes),
            Variable::Timestamp => time_of(message.timestamp_ms()),
            Variable::Exchange => Value::Text(Cow::Borrowed(message.exchange())),
            Variable::RoutingKey => Value::Text(Cow::Borrowed(message.routing_key())),
            Variable::Priority => Value::Int(message.priority().into()),
            Variable::Value
            | Variable::Headers
            | Variable::Topic
            | Variable::Partition
            | Variable::Offset => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        self.with_headers().owned_header(name)
    }

    fn header_work(&self) -> usize {
        self.with_headers().header_work()
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let text = std::str::from_utf8(self.message.value()).map_err(|_| NoJson)?;
        paths.read(text, found)
    }
}
