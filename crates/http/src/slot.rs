//! The part of the process behind a router. Routes answer from before it is there until after it is gone.

use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::watch;

use crate::code::Code;
use crate::problem::Problem;

/// Holds a `T` while it serves; clones share it.
#[derive(Debug)]
pub struct Slot<T>(watch::Sender<Option<Arc<T>>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<T> Slot<T> {
    /// Makes the routes use `served`.
    pub fn open(&self, served: Arc<T>) {
        self.0.send_replace(Some(served));
    }

    /// Makes the routes answer with 503.
    pub fn close(&self) {
        self.0.send_replace(None);
    }

    pub fn get(&self) -> Result<Arc<T>, Problem> {
        self.0.borrow().clone().ok_or_else(closed)
    }
}

/// Refuses requests that cannot be served now.
pub fn not_serving(why: impl Display) -> Problem {
    Problem::new(Code::NotServing, why)
}

/// Returns the refusal of a router whose slot is not open.
#[must_use]
pub fn closed() -> Problem {
    not_serving("the broker is starting or stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_not_serving_before_it_is_opened_and_after_it_is_closed() {
        let slot = Slot::default();
        let shared = slot.clone();
        assert_eq!(shared.get(), Err(closed()));
        slot.open(Arc::new(7));
        assert_eq!(shared.get(), Ok(Arc::new(7)));
        slot.close();
        assert_eq!(shared.get().unwrap_err().code, Code::NotServing);
    }
}
