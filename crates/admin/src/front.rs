//! Where the broker is, while it serves.

use std::sync::Arc;

use axum::http::StatusCode;
use stafett_broker::Broker;
use stafett_model::SharedLock;

use crate::{Refusal, refuse};

/// The broker, from when what is stored was read until the process ends; clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct AdminFront(Arc<SharedLock<Option<Arc<Broker>>>>);

impl AdminFront {
    /// From now on it answers.
    pub fn open(&self, broker: Arc<Broker>) {
        *self.0.write() = Some(broker);
    }

    /// From now on it does not.
    pub fn close(&self) {
        *self.0.write() = None;
    }

    pub(crate) fn broker(&self) -> Result<Arc<Broker>, Refusal> {
        let broker = self.0.read().clone();
        broker.ok_or_else(|| refuse(StatusCode::SERVICE_UNAVAILABLE, "the broker does not serve now"))
    }
}
