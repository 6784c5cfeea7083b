//! Shared handle to the broker while it serves.

use std::sync::Arc;

use axum::http::StatusCode;
use stafett_broker::Broker;
use stafett_model::SharedLock;

use crate::{Refusal, refuse};

/// Holds the broker from the end of recovery until shutdown; clones share it.
#[derive(Debug, Clone, Default)]
pub struct AdminFront(Arc<SharedLock<Option<Arc<Broker>>>>);

impl AdminFront {
    /// Makes the routes use `broker`.
    pub fn open(&self, broker: Arc<Broker>) {
        *self.0.write() = Some(broker);
    }

    /// Makes the routes answer with 503.
    pub fn close(&self) {
        *self.0.write() = None;
    }

    pub(crate) fn broker(&self) -> Result<Arc<Broker>, Refusal> {
        let broker = self.0.read().clone();
        broker.ok_or_else(|| refuse(StatusCode::SERVICE_UNAVAILABLE, "the broker does not serve now"))
    }
}
