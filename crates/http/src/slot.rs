//! The part of the process behind a router. Routes answer from before it is there until after it is gone.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use stafett_model::Tenure;
use tokio::sync::watch;

use crate::code::Code;
use crate::problem::Problem;

/// Holds a `T` while it serves; clones share it.
pub struct Slot<T>(watch::Sender<Option<Served<T>>>);

struct Served<T> {
    part: Arc<T>,
    tenure: Tenure,
}

impl<T> Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.0.borrow().is_some();
        f.debug_struct("Slot").field("is_open", &is_open).finish()
    }
}

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
    /// Makes the routes use a part.
    pub fn open(&self, part: Arc<T>) {
        self.open_while(part, Tenure::default());
    }

    /// Makes the routes use a part while its tenure holds.
    pub fn open_while(&self, part: Arc<T>, tenure: Tenure) {
        self.0.send_replace(Some(Served { part, tenure }));
    }

    /// Makes the routes answer with 503.
    pub fn close(&self) {
        self.0.send_replace(None);
    }

    pub fn get(&self) -> Result<Arc<T>, Problem> {
        let served = self.0.borrow();
        let current = served.as_ref().filter(|served| served.tenure.holds());
        current.map(|served| Arc::clone(&served.part)).ok_or_else(closed)
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
    use std::sync::atomic::{AtomicBool, Ordering};

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

    #[test]
    fn a_part_that_may_not_serve_is_not_used() {
        let slot = Slot::default();
        let may_serve = Arc::new(AtomicBool::new(true));
        let check = Arc::clone(&may_serve);
        let tenure = Tenure::new(move || check.load(Ordering::Relaxed));
        slot.open_while(Arc::new(7), tenure);
        assert_eq!(slot.get(), Ok(Arc::new(7)));
        may_serve.store(false, Ordering::Relaxed);
        assert_eq!(slot.get(), Err(closed()));
    }
}
