//! Queues to which very much led: they are gone at once, and what led to them is forgotten step by step, so
//! that others have their turns in between.
//!
//! Until that is done, a queue of the same name would get what is not for it. So whoever declares one does
//! the rest first.

use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

use hashbrown::HashTable;
use stafett_journal::Ticket;
use stafett_model::Namespace;
use stafett_store::{NotStored, only_outcome};
use tokio::task::JoinHandle;

use super::queue::Queue;
use super::registry::{Queues, is};

/// The deletion of a queue that is gone. It ends by itself if this is dropped.
#[derive(Debug)]
pub(super) struct Removing {
    /// What stores it.
    pub(super) ticket: Option<Ticket>,
    pub(super) rest: Option<JoinHandle<()>>,
}

impl Removing {
    /// Returns once the deletion is stored, and nothing leads to the queue any more.
    pub(super) async fn stored(self) -> Result<(), NotStored> {
        let outcome = match self.ticket {
            Some(ticket) => ticket.await.pop(),
            None => None,
        };
        only_outcome(outcome.as_ref())?;
        match self.rest {
            Some(rest) => rest.await.map_err(|_| NotStored::Unknown),
            None => Ok(()),
        }
    }
}

impl Queues {
    /// Forgets the rest of what led to a queue, as a task of its own.
    pub(super) fn forget_rest(self: &Arc<Self>, queue: &Arc<Queue>) -> JoinHandle<()> {
        let (queues, queue) = (Arc::clone(self), Arc::clone(queue));
        self.tasks.spawn(async move {
            while queues.forget_step(&queue) {
                tokio::task::yield_now().await;
            }
        })
    }

    /// The table, for somebody who is about to take a name, once nobody of that name is leaving.
    pub(super) fn write_for(
        &self,
        namespace: &Namespace,
        name: &str,
    ) -> RwLockWriteGuard<'_, HashTable<Arc<Queue>>> {
        loop {
            let table = self.write();
            if !self.leaving().iter().any(|queue| is(queue, namespace, name)) {
                return table;
            }
            drop(table);
            self.forget_now(namespace, name);
        }
    }

    /// Forgets the rest here and now, for whoever needs the name.
    fn forget_now(&self, namespace: &Namespace, name: &str) {
        let leaving = self
            .leaving()
            .iter()
            .find(|queue| is(queue, namespace, name))
            .cloned();
        if let Some(queue) = leaving {
            while self.forget_step(&queue) {}
        }
    }

    /// One step. False if it was the last.
    fn forget_step(&self, queue: &Arc<Queue>) -> bool {
        // Held all the time: once it is not among these, what leads to its name is another's.
        let mut leaving = self.leaving();
        let Some(at) = leaving.iter().position(|known| Arc::ptr_eq(known, queue)) else {
            return false;
        };
        if let Some(router) = self.router.get() {
            if router.forget_more(queue) {
                return true;
            }
            router.forgotten(queue);
        }
        leaving.swap_remove(at);
        false
    }

    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Queue>>> {
        self.leaving.lock()
    }
}
