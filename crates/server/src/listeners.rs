//! Listeners of this process.

use std::sync::Arc;
use std::time::Duration;

use stafett_net::{Listener, Protocol, Shared};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::cluster::Doors;

/// Time for accept loops to end. They do so at once, unless the runtime has no thread for them.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// Listeners that end together.
pub(crate) struct Listeners {
    pub(crate) shared: Shared,
    pub(crate) tasks: TaskTracker,
    /// In a cluster: doors for connections that came to this node or another one before.
    doors: Option<Doors>,
}

impl Listeners {
    pub(crate) fn new(shared: Shared, doors: Option<Doors>) -> Self {
        Self {
            shared,
            tasks: TaskTracker::new(),
            doors,
        }
    }

    /// Serves a protocol on listeners until these drain.
    pub(crate) fn serve<P: Protocol>(&self, listeners: impl IntoIterator<Item = Listener>, protocol: P) {
        let protocol = Arc::new(protocol);
        for listener in listeners {
            self.open_door(&listener, &protocol);
            self.accept(listener, Arc::clone(&protocol));
        }
    }

    /// Serves a protocol to connections that are handed over, and accepts none.
    pub(crate) fn open_doors<P: Protocol>(&self, listeners: &[Listener], protocol: &Arc<P>) {
        for listener in listeners {
            self.open_door(listener, protocol);
        }
    }

    /// Accepts connections of a listener.
    pub(crate) fn accept<P: Protocol>(&self, listener: Listener, protocol: Arc<P>) {
        let shared = self.shared.clone();
        self.tasks.spawn(stafett_net::serve(listener, protocol, shared));
    }

    fn open_door<P: Protocol>(&self, listener: &Listener, protocol: &Arc<P>) {
        let Some(doors) = &self.doors else { return };
        let handed = doors.open(listener.name());
        let (listener, protocol) = (listener.clone(), Arc::clone(protocol));
        let shared = self.shared.clone();
        self.tasks
            .spawn(stafett_net::serve_handed(listener, handed, protocol, shared));
    }

    /// Closes the listeners, drains their connections, and aborts these after `limit` or when `hurry` is done.
    pub(crate) async fn end(&self, limit: Duration, hurry: impl Future<Output = ()>) {
        if (timeout(CLOSE_MAX, self.shared.shutdown.close()).await).is_err() {
            tracing::warn!("listeners are not closed yet");
        }
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
