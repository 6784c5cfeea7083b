//! Namespaces: isolated sets of queues and exchanges.

use std::fmt;
use std::sync::Arc;

/// The name of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

/// Bytes of the longest name of a namespace, an exchange or a queue, and of a binding key.
pub const NAME_BYTES_MAX: usize = 255;

impl Namespace {
    /// The namespace that is always there.
    pub const DEFAULT: &'static str = "/";

    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl std::borrow::Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
