//! Settings of exchanges and bindings.

use std::sync::Arc;

use bytes::Bytes;

use crate::filter::Filter;
use crate::message_view::HeaderValue;

/// Rule by which an exchange selects bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeKind {
    /// No bindings: the routing key is the name of the target.
    ByName,
    /// Bindings whose key equals the routing key.
    Direct,
    /// All bindings.
    FanOut,
    /// Bindings whose key, a pattern of words, matches: `*` is one word, `#` any number of words.
    Topic,
    /// Bindings whose headers the message has.
    Headers,
    /// One binding, always the same for the same value; a binding's key is its weight.
    Hashed(HashOn),
}

/// Value that a hash exchange hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashOn {
    Key,
    Header(Arc<str>),
    Property(Property),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    MessageId,
    CorrelationId,
    Timestamp,
}

/// Settings of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub kind: ExchangeKind,
    /// True if messages with a delay wait here before they are routed.
    pub delays: bool,
    /// True if it accepts messages from other exchanges only.
    pub internal: bool,
    /// Alternate exchange, for messages that no binding matches.
    pub alternate: Option<Arc<str>>,
}

/// Condition of a binding. The kind of exchange decides which part is used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pattern {
    pub key: Bytes,
    pub headers: HeaderMatch,
}

/// Headers that a binding requires, and its condition on the content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderMatch {
    pub mode: Mode,
    /// Names and values; `None` accepts any value. A name occurs at most once.
    pub pairs: Vec<(Bytes, Option<HeaderValue>)>,
    /// Condition beside the rule of the exchange, of any kind but one that spreads by hash.
    pub filter: Option<Arc<Filter>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// All pairs; a binding without pairs matches everything.
    #[default]
    All,
    /// At least one pair; a binding without pairs matches nothing.
    Any,
}

/// Reason why an exchange refuses a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("the binding key is the binding's weight here: a whole number from 1 to {max}, not '{given}'")]
    Weight { given: String, max: u32 },
    #[error("an exchange that spreads by hash has at most {max} destinations")]
    TooMany { max: usize },
    #[error("an exchange that spreads by hash takes no filters")]
    Filtered,
    #[error("this exchange has no bindings: the routing key is the name of the target")]
    ByName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such exchange")]
pub struct NoSuchExchange;

impl Spec {
    pub fn new(kind: ExchangeKind) -> Self {
        Self {
            kind,
            delays: false,
            internal: false,
            alternate: None,
        }
    }
}

impl Pattern {
    pub fn key(key: impl AsRef<[u8]>) -> Self {
        Self {
            key: Bytes::copy_from_slice(key.as_ref()),
            headers: HeaderMatch::default(),
        }
    }
}
