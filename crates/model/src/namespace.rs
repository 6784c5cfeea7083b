//! Names of namespaces.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Bytes of the longest name of a namespace, an exchange or a queue, and of the longest binding key.
pub const NAME_BYTES_MAX: usize = 255;

/// The name of a namespace: an isolated set of queues and exchanges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The namespace that always exists.
    pub const DEFAULT: &'static str = "/";

    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Id of a namespace, to tell it from earlier ones of its name. The default one has 0, as have those stored
/// by versions without ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceId(pub u64);

impl Default for Namespace {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
