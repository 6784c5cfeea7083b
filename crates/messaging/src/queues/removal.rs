//! Deletion of queues. A queue is gone at once; if it has very many bindings, they are removed in steps, so
//! that other tasks get their turns.
//!
//! Until that is done, a new queue of the same name would get messages that are not for it. So a task that
//! declares one completes the removal first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_journal::{Append, Change, Frame, Ticket};
use stafett_model::{EVENTS, LockGuard, Namespace, WriteGuard};
use stafett_store::{NotStored, only_outcome};
use tokio::task::JoinHandle;

use super::definition::OwnerId;
use super::queue::Queue;
use super::registry::Queues;
use super::table::{QueueTable, is};
use stafett_delivery::DeliveryState;

/// Queues of a namespace that are deleted before other tasks get their turns.
const DELETED_TOGETHER: usize = 64;

/// Error of deleting a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeleteQueueError {
    #[error("there is no such queue")]
    NoSuchQueue,
    #[error("the queue has consumers")]
    InUse,
    #[error("the queue has messages")]
    NotEmpty,
    #[error("{ready} messages wait in the queue")]
    TooMany { ready: u64 },
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Conditions of a deletion.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteConditions {
    /// True if it must have no consumers.
    pub if_unused: bool,
    /// Most messages that may wait.
    pub ready_max: Option<u64>,
}

/// Deletion of a queue in progress. It completes even if this is dropped.
#[derive(Debug)]
pub(super) struct Removing {
    /// Ticket of the stored deletion.
    ticket: Option<Ticket>,
    rest: Option<JoinHandle<()>>,
}

impl Removing {
    /// Waits until the deletion is stored and all bindings to the queue are removed.
    async fn stored(self) -> Result<(), NotStored> {
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
    /// Deletes a queue with its messages. Returns the number of waiting messages, once the deletion is
    /// stored.
    pub async fn delete(
        self: &Arc<Self>,
        namespace: &Namespace,
        name: &str,
        if_unused: bool,
        if_empty: bool,
        owner: OwnerId,
    ) -> Result<u64, DeleteQueueError> {
        let queue = self.get(namespace, name).ok_or(DeleteQueueError::NoSuchQueue)?;
        if queue.exclusive.is_some_and(|known| known != owner) {
            return Err(DeleteQueueError::Locked);
        }
        let conditions = DeleteConditions {
            if_unused,
            ready_max: if_empty.then_some(0),
        };
        self.delete_this(&queue, conditions).await
    }

    /// Deletes this queue, and not a later one of its name. Returns the number of waiting messages, once the
    /// deletion is stored.
    pub async fn delete_this(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        conditions: DeleteConditions,
    ) -> Result<u64, DeleteQueueError> {
        let (ready, removing) = self.remove(queue, |inner| {
            if conditions.if_unused && inner.has_consumers() {
                return Err(DeleteQueueError::InUse);
            }
            match (conditions.ready_max, inner.ready()) {
                (Some(0), 1..) => Err(DeleteQueueError::NotEmpty),
                (Some(max), ready) if ready > max => Err(DeleteQueueError::TooMany { ready }),
                _ => Ok(()),
            }
        })?;
        removing.stored().await?;
        Ok(ready)
    }

    /// Deletes all queues of a namespace that takes no more declarations, in batches.
    pub async fn delete_all_in(self: &Arc<Self>, namespace: &Namespace) -> Result<(), NotStored> {
        let all = self.read().ordered().all(Some(namespace));
        for some in all.chunks(DELETED_TOGETHER) {
            // A queue may be deleted already.
            let removing = some
                .iter()
                .filter_map(|queue| self.remove(queue, |_| Ok(())).ok());
            let removing: Vec<_> = removing.map(|(_, removing)| removing).collect();
            for removing in removing {
                removing.stored().await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Deletes the exclusive queues of an owner.
    pub fn close_owner(self: &Arc<Self>, owner: OwnerId) {
        let had = self.owned.lock().remove(&owner);
        for queue in had.unwrap_or_default() {
            // A queue may be deleted already.
            drop(self.remove(&queue, |_| Ok(())));
        }
    }

    /// Deletes an unused queue, or an auto-delete one that has lost its last consumer. If it was used
    /// meanwhile, the timer checks it again later.
    pub(super) fn delete_unused(self: &Arc<Self>, queue: &Arc<Queue>, had_consumers: bool) {
        let mut is_overdue = false;
        let removed = self.remove(queue, |inner| {
            let is_left = had_consumers && queue.auto_delete && !inner.has_consumers();
            is_overdue = !is_left && queue.is_overdue(&self.context, inner);
            if is_left || is_overdue {
                return Ok(());
            }
            Err(DeleteQueueError::InUse)
        });
        if is_overdue && let Ok((messages, _)) = &removed {
            tracing::info!(target: EVENTS, kind = "queue.deleted", name = %queue.name, namespace = %queue.namespace,
                "expired with {messages} messages: it was not used for its time");
        }
        // If the journal refuses, the flush task retries.
        drop(removed);
    }

    /// Deletes a queue, unless `check` fails under the queue's lock.
    pub(super) fn remove(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        check: impl FnOnce(&mut DeliveryState) -> Result<(), DeleteQueueError>,
    ) -> Result<(u64, Removing), DeleteQueueError> {
        let (ready, ticket, has_more) = {
            let _alone = self.context.lock_for_removal();
            let ready = queue.end(&self.context, check)?;
            let ready = ready.ok_or(DeleteQueueError::NoSuchQueue)?;
            let own = queue.own_logs(&queue.lock());
            let mut frames = self.deletion(queue.id, own.into_iter().map(|(_, log)| log));
            frames.push(self.context.state_frame(queue, Change::Delete));
            let (ticket, has_more) = self.store_removal(queue, frames);
            let mut table = self.write();
            if has_more {
                self.removing().push(Arc::clone(queue));
            }
            table.remove(queue);
            self.pending.lock().remove(queue);
            (ready, ticket, has_more)
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.metrics.deleted.inc();
        self.remove_view(queue);
        self.detach_from_topic(queue);
        if let Some(owner) = queue.exclusive {
            let mut owned = self.owned.lock();
            if let Some(queues) = owned.get_mut(&owner) {
                queues.retain(|known| !Arc::ptr_eq(known, queue));
                if queues.is_empty() {
                    owned.remove(&owner);
                }
            }
        }
        let rest = if has_more {
            Some(self.spawn_binding_removal(queue))
        } else {
            self.router.on_queue_removed(queue);
            None
        };
        Ok((ready, Removing { ticket, rest }))
    }

    /// Stores the deletion of a queue and of bindings to it; true if some bindings are left.
    fn store_removal(&self, queue: &Queue, mut frames: Vec<Frame>) -> (Option<Ticket>, bool) {
        let mut ticket = None;
        let mut append = |forget: Vec<Frame>| {
            let frames: Vec<Frame> = frames.drain(..).chain(forget).collect();
            let staged = self
                .journal
                .append(vec![Append::state(frames.clone(), queue.state_wait())]);
            if staged.glance().committed() == Some(false) {
                self.context.dirty.push_refused(queue.id.0, frames);
            }
            ticket = Some(staged);
        };
        let has_more = self.router.remove_bindings(queue, &mut append);
        (ticket, has_more)
    }

    /// Removes the remaining bindings of a queue, in a task.
    fn spawn_binding_removal(self: &Arc<Self>, queue: &Arc<Queue>) -> JoinHandle<()> {
        let (queues, queue) = (Arc::clone(self), Arc::clone(queue));
        self.context.tasks.spawn(async move {
            while queues.forget_step(&queue) {
                tokio::task::yield_now().await;
            }
        })
    }

    /// Locks the table to take a name, once no queue of that name is being removed.
    pub(super) fn write_for(&self, namespace: &Namespace, name: &str) -> WriteGuard<'_, QueueTable> {
        loop {
            let table = self.write();
            if !self.removing().iter().any(|queue| is(queue, namespace, name)) {
                return table;
            }
            drop(table);
            self.forget_now(namespace, name);
        }
    }

    /// Completes the removal at once, for a caller that needs the name.
    fn forget_now(&self, namespace: &Namespace, name: &str) {
        let removing = self
            .removing()
            .iter()
            .find(|queue| is(queue, namespace, name))
            .cloned();
        if let Some(queue) = removing {
            while self.forget_step(&queue) {}
        }
    }

    /// Removes some bindings. False if they were the last.
    fn forget_step(&self, queue: &Arc<Queue>) -> bool {
        // Held throughout: once the queue is not in the list, bindings of its name belong to another queue.
        let mut removing = self.removing();
        let Some(at) = removing.iter().position(|known| Arc::ptr_eq(known, queue)) else {
            return false;
        };
        if self.router.remove_more_bindings(queue) {
            return true;
        }
        self.router.on_queue_removed(queue);
        removing.swap_remove(at);
        false
    }

    fn removing(&self) -> LockGuard<'_, Vec<Arc<Queue>>> {
        self.removing.lock()
    }
}
