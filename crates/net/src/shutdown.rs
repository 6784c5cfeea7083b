//! Shutdown of a process in three steps: *close*, after which nothing new is accepted, *drain*, in which work
//! in progress is finished, and *abort*, in which all remaining work is dropped.
//!
//! All steps only go forward, and each begins those before. When they happen is decided outside this crate.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Handle to the steps; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    close: CancellationToken,
    drain: CancellationToken,
    abort: CancellationToken,
    accepting: TaskTracker,
}

impl Shutdown {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops accepting connections. Waits until no socket does any more, so that no client that is sent away
    /// comes back here.
    pub async fn close(&self) {
        self.close.cancel();
        self.accepting.close();
        self.accepting.wait().await;
    }

    /// Begins to drain.
    pub fn drain(&self) {
        self.close.cancel();
        self.drain.cancel();
    }

    /// Drops all remaining work. Also begins to drain.
    pub fn abort(&self) {
        self.drain();
        self.abort.cancel();
    }

    /// Returns the token that is cancelled when nothing is accepted any more.
    #[must_use]
    pub fn closing(&self) -> &CancellationToken {
        &self.close
    }

    /// Returns a token to keep for as long as a socket accepts connections.
    pub fn accepting(&self) -> TaskTrackerToken {
        self.accepting.token()
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
