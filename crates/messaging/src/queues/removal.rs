//! Deletion of queues with very many bindings: the queue is gone at once, and its bindings are removed in
//! steps, so that other tasks get their turns.
//!
//! Until that is done, a new queue of the same name would get messages that are not for it. So a task that
//! declares one completes the removal first.

use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

use hashbrown::HashTable;
use stafett_journal::{Change, Ticket};
use stafett_model::Namespace;
use stafett_store::{NotStored, only_outcome, store_synced};
use tokio::task::JoinHandle;

use super::definition::QueueId;
use super::queue::Queue;
use super::registry::{Queues, definition_frame, is};

/// Deletion of a queue in progress. It completes even if this is dropped.
#[derive(Debug)]
pub(super) struct Removing {
    /// Ticket of the stored deletion.
    pub(super) ticket: Option<Ticket>,
    pub(super) rest: Option<JoinHandle<()>>,
}

impl Removing {
    /// Waits until the deletion is stored and all bindings to the queue are removed.
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
    /// Waits until all changes staged before are durable, for an answer that something is gone already: its
    /// deletion may not be stored yet, or the journal may have failed.
    pub async fn await_stored(&self) -> Result<(), NotStored> {
        // No queue has this id, so the deletion changes nothing.
        store_synced(&*self.journal, [definition_frame(QueueId(0), Change::Delete)]).await
    }

    /// Removes the remaining bindings of a queue, in a task.
    pub(super) fn forget_rest(self: &Arc<Self>, queue: &Arc<Queue>) -> JoinHandle<()> {
        let (queues, queue) = (Arc::clone(self), Arc::clone(queue));
        self.context.tasks.spawn(async move {
            while queues.forget_step(&queue) {
                tokio::task::yield_now().await;
            }
        })
    }

    /// Locks the table to take a name, once no queue of that name is being removed.
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

    /// Completes the removal at once, for a caller that needs the name.
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

    /// Removes some bindings. False if they were the last.
    fn forget_step(&self, queue: &Arc<Queue>) -> bool {
        // Held throughout: once the queue is not in the list, bindings of its name belong to another queue.
        let mut leaving = self.leaving();
        let Some(at) = leaving.iter().position(|known| Arc::ptr_eq(known, queue)) else {
            return false;
        };
        if self.router.remove_more_bindings(queue) {
            return true;
        }
        self.router.on_queue_removed(queue);
        leaving.swap_remove(at);
        false
    }

    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Queue>>> {
        self.leaving.lock()
    }
}
