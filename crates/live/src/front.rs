//! What the routes share: the broker's live topics once they are there, the settings, the end.

use std::sync::{Arc, OnceLock};

use stafett_live_topics::Live;
use stafett_net::Shutdown;
use tokio_util::task::TaskTracker;

use crate::connection::Ending;
use crate::settings::LiveFrontSettings;

/// The front end of live topics. Clones are the same one.
#[derive(Debug, Clone)]
pub struct LiveFront(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    live: OnceLock<Arc<Live>>,
    settings: LiveFrontSettings,
    shutdown: Shutdown,
    /// Connections that are waited for when the front ends drain, although HTTP goes on.
    connections: TaskTracker,
}

impl LiveFront {
    /// Its connections end with `shutdown`, and `connections` knows when they have.
    pub fn new(settings: LiveFrontSettings, shutdown: Shutdown, connections: TaskTracker) -> Self {
        Self(Arc::new(Shared {
            live: OnceLock::new(),
            settings,
            shutdown,
            connections,
        }))
    }

    /// Begins to serve; requests before are answered that it is too early.
    pub fn open(&self, live: Arc<Live>) {
        // Opened twice it stays as it was.
        drop(self.0.live.set(live));
    }

    /// The live topics, unless it is too early or too late for them.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.0
            .live
            .get()
            .filter(|_| !self.0.shutdown.draining().is_cancelled())
    }

    pub(crate) fn settings(&self) -> &LiveFrontSettings {
        &self.0.settings
    }

    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.0.connections
    }

    /// For one connection.
    pub(crate) fn ending(&self) -> Ending {
        Ending {
            drain: self.0.shutdown.draining().child_token(),
            abort: self.0.shutdown.aborting().child_token(),
        }
    }
}
