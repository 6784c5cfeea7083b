//! What an exchange is, and what a binding asks for.

use std::sync::Arc;

use bytes::Bytes;

use crate::view::HeaderValue;

/// How an exchange chooses among its bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Has no bindings: the routing key is the name of the target.
    ByName,
    /// Bindings whose key is the routing key.
    Direct,
    /// All bindings.
    FanOut,
    /// Bindings whose key is a pattern of words: `*` is one word, `#` is any number of them.
    Topic,
    /// Bindings whose headers the message has.
    Headers,
    /// One of the bindings, always the same for the same value; a binding's key is its weight.
    Hashed(HashOn),
}

/// What decides among the bindings of an exchange that spreads by hash.
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

/// What an exchange is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub kind: Kind,
    /// Messages with a delay wait here before they are routed.
    pub delays: bool,
    /// Takes messages from other exchanges only.
    pub internal: bool,
    /// Gets what no binding of this exchange matches.
    pub alternate: Option<Arc<str>>,
}

/// What a binding asks for. Which part counts depends on the exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pattern {
    pub key: Bytes,
    pub headers: HeaderMatch,
}

/// The headers that a binding asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderMatch {
    pub mode: Mode,
    /// Names and values; without a value any will do. A name may stand here once.
    pub pairs: Vec<(Bytes, Option<HeaderValue>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// All pairs; a binding without pairs matches everything.
    #[default]
    All,
    /// At least one pair; a binding without pairs matches nothing.
    Any,
}

/// An exchange does not take such a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("the binding key is the binding's weight here: a whole number from 1 to {max}, not '{given}'")]
    Weight { given: String, max: u32 },
    #[error("an exchange that spreads by hash has at most {max} bindings")]
    TooMany { max: usize },
    #[error("this exchange has no bindings: the routing key is the name of the target")]
    ByName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such exchange")]
pub struct NoSuchExchange;

impl Spec {
    pub fn new(kind: Kind) -> Self {
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
