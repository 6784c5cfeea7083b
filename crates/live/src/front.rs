//! State shared by the routes: the broker's live topics once they are available, the settings, the shutdown.

use std::sync::Arc;

use stafett_http::{Problem, Slot, slot};
use stafett_live_topics::Live;
use stafett_net::Shutdown;
use stafett_ws::connection::Ending;
use tokio_util::task::TaskTracker;

use crate::settings::LiveFrontSettings;

/// Front end of live topics. Clones share it.
#[derive(Debug, Clone)]
pub struct LiveFront(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    live: Slot<Live>,
    settings: LiveFrontSettings,
    shutdown: Shutdown,
    /// Connections to wait for when the front ends drain, although HTTP continues.
    connections: TaskTracker,
}

impl LiveFront {
    /// Creates the front end. Its connections end with `shutdown` and are tracked in `connections`.
    pub fn new(settings: LiveFrontSettings, shutdown: Shutdown, connections: TaskTracker) -> Self {
        Self(Arc::new(Shared {
            live: Slot::default(),
            settings,
            shutdown,
            connections,
        }))
    }

    /// Begins to serve. Earlier requests are answered with 503.
    pub fn open(&self, live: Arc<Live>) {
        let tenure = live.settings.tenure.clone();
        self.0.live.open_while(live, tenure);
    }

    /// Returns the live topics. Fails before [`Self::open`] and while draining.
    pub(crate) fn live(&self) -> Result<Arc<Live>, Problem> {
        if self.0.shutdown.draining().is_cancelled() {
            return Err(slot::closed());
        }
        self.0.live.get()
    }

    pub(crate) fn settings(&self) -> &LiveFrontSettings {
        &self.0.settings
    }

    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.0.connections
    }

    /// Returns the shutdown tokens for one connection.
    pub(crate) fn ending(&self) -> Ending {
        Ending {
            drain: self.0.shutdown.draining().child_token(),
            abort: self.0.shutdown.aborting().child_token(),
        }
    }
}
