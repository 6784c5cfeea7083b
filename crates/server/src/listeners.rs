//! Listeners of this process.

use std::sync::Arc;
use std::time::Duration;

use stafett_net::{Listener, Protocol, Shared};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

/// Listeners that end together.
pub(crate) struct Listeners {
    pub(crate) shared: Shared,
    pub(crate) tasks: TaskTracker,
}

impl Listeners {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            tasks: TaskTracker::new(),
        }
    }

    /// Serves a protocol on listeners until these drain.
    pub(crate) fn serve<P: Protocol>(&self, listeners: impl IntoIterator<Item = Listener>, protocol: P) {
        let protocol = Arc::new(protocol);
        for listener in listeners {
            let (protocol, shared) = (Arc::clone(&protocol), self.shared.clone());
            self.tasks.spawn(stafett_net::serve(listener, protocol, shared));
        }
    }

    /// Drains the listeners, and aborts them after `limit` or when `hurry` is done.
    pub(crate) async fn end(&self, limit: Duration, hurry: impl Future<Output = ()>) {
        self.shared.shutdown.drain();
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => return,
            () = sleep(limit) => {}
            () = hurry => {}
        }
        tracing::warn!("connections that did not end in time are cut off");
        self.shared.shutdown.abort();
        self.tasks.wait().await;
    }
}
