//! Targets of routing, by name.

use std::sync::Arc;

/// A queue or a stored topic. Routing needs its name only; it is looked up when a message is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Queue(Arc<str>),
    Topic(Arc<str>),
}

impl stafett_routing::Target for Target {
    fn identity(&self) -> Vec<u8> {
        match self {
            Self::Queue(name) => [b"queue:", name.as_bytes()].concat(),
            Self::Topic(name) => [b"topic:", name.as_bytes()].concat(),
        }
    }
}
