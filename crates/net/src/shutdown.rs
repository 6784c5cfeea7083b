//! Shutdown of a process in two steps: *drain*, in which nothing new is accepted and work in progress is
//! finished, and *abort*, in which all remaining work is dropped.
//!
//! Both steps only go forward. When they happen is decided outside this crate.

use tokio_util::sync::CancellationToken;

/// Handle to the two steps; clones share them.
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

    /// Drops all remaining work. Also begins to drain.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Returns the token that is cancelled when draining begins.
    #[must_use]
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Returns the token that is cancelled when remaining work is dropped.
    #[must_use]
    pub fn aborting(&self) -> &CancellationToken {
        &self.abort
    }
}
