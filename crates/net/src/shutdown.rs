//! The end of a process in two steps: *drain*, in which nothing new is accepted and what was begun is
//! finished, and *abort*, in which whatever is left is dropped.
//!
//! Both steps only go forward. Who decides when is not the business of this crate.

use tokio_util::sync::CancellationToken;

/// A handle on the two steps; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins to drain.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Drops what is left. Implies that draining has begun.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Cancelled once draining has begun.
    #[must_use]
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled once what is left is dropped.
    #[must_use]
    pub fn aborting(&self) -> &CancellationToken {
        &self.abort
    }
}
