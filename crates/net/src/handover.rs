//! A connection that goes on under another protocol than the one that its listener speaks.
//!
//! The first protocol lets its requests see a [`Handover`]; who answers a request may leave in it what the
//! connection goes on as. When that answer is sent, the first protocol gives the connection away, in the same
//! task: so it is still counted, drained and dropped like any other.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::connection::Connection;

/// What a connection goes on as.
pub type Next = Box<dyn FnOnce(Connection, Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Where the next protocol of a connection is left. Clones share it.
#[derive(Clone, Default)]
pub struct Handover(Arc<Mutex<Option<Next>>>);

impl Handover {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the connection go on as `next`, which is also given what was received already.
    pub fn give(&self, next: Next) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// What the connection goes on as, if it does.
    pub fn take(&self) -> Option<Next> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handover")
    }
}
