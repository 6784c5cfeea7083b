//! Switching a connection to another protocol than that of its listener.
//!
//! The first protocol attaches a [`Handover`] to its requests; the handler of a request may put the next
//! protocol into it. After the response is sent, the first protocol gives the connection away within the same
//! task, so the connection is still counted, drained and dropped like any other.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::connection::Connection;
use crate::lock::lock;

/// Runs the next protocol on a connection.
pub type Next = Box<dyn FnOnce(Connection, Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Slot for the next protocol of a connection. Clones share it.
#[derive(Clone, Default)]
pub struct Handover(Arc<Mutex<Option<Next>>>);

impl Handover {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the connection continue as `next`, which also gets the bytes that were received already.
    pub fn give(&self, next: Next) {
        *lock(&self.0) = Some(next);
    }

    /// Takes the next protocol. `None` if the connection does not switch.
    pub fn take(&self) -> Option<Next> {
        lock(&self.0).take()
    }
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handover")
    }
}
