//! Queues that may have messages. A queue is listed before a message for it is staged, and stays listed as
//! long as messages wait or are in flight; so publishing costs a look at a flag per batch. Empty queues are
//! removed in the background when a list finds them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_model::Namespace;
use tokio::sync::Notify;

use super::queue::Queue;
use super::registry::Queues;

/// Queues that are removed from the list under one lock.
const REMOVED_TOGETHER: usize = 256;

impl Queues {
    /// Lists a queue before a message for it is staged. The caller has locked out removals, so that none is
    /// between this and the append while [`Self::remove_empty`] begins.
    #[inline]
    pub(super) fn list_pending(&self, queue: &Arc<Queue>) {
        if !queue.is_listed.load(Ordering::Acquire) && !queue.is_listed.swap(true, Ordering::AcqRel) {
            self.pending.lock().insert(queue);
            self.listed.notify_waiters();
        }
    }

    /// Returns the signal that a queue was added to those that may have messages.
    pub fn listed(&self) -> &Notify {
        &self.listed
    }

    /// Returns the queues of a namespace that may have messages, by name, and those over topics.
    pub fn pending_in(&self, namespace: &Namespace) -> Vec<Arc<Queue>> {
        self.pending.lock().all(Some(namespace))
    }

    /// Returns the queues of a namespace, or of all, in which messages wait, by name, with their numbers of
    /// waiting messages.
    pub fn with_messages(self: &Arc<Self>, namespace: Option<&Namespace>) -> Vec<(Arc<Queue>, u64)> {
        let listed = self.pending.lock().all(namespace);
        let (mut waiting, mut empty) = (Vec::new(), Vec::new());
        for queue in listed {
            let counts = queue.counts();
            if counts.ready > 0 {
                waiting.push((queue, counts.ready));
            } else if counts.in_flight == 0 && queue.over.is_none() {
                empty.push(queue);
            }
        }
        if !empty.is_empty() && !self.removes_empty.swap(true, Ordering::AcqRel) {
            let queues = Arc::clone(self);
            drop(self.context.tasks.spawn(async move {
                queues.remove_empty(empty).await;
                queues.removes_empty.store(false, Ordering::Release);
            }));
        }
        waiting
    }

    /// Removes queues that stay empty until everything staged before is visible.
    async fn remove_empty(&self, empty: Vec<Arc<Queue>>) {
        for some in empty.chunks(REMOVED_TOGETHER) {
            {
                // Messages staged from here on list their queues again.
                let _alone = self.context.lock_for_removal();
                for queue in some {
                    queue.is_listed.store(false, Ordering::Release);
                }
            }
            let is_stored = stafett_store::await_stored(&*self.journal).await.is_ok();
            for queue in some {
                let counts = queue.counts();
                let is_empty = counts.ready == 0 && counts.in_flight == 0;
                let mut pending = self.pending.lock();
                if is_stored && is_empty && !queue.is_listed.load(Ordering::Acquire) {
                    pending.remove(queue);
                } else {
                    queue.is_listed.store(true, Ordering::Release);
                }
            }
        }
    }
}
