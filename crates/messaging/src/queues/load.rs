//! Loading: queues are restored with their unsettled messages; queues that do not survive a restart are
//! deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_journal::{Append, Change, Frame, StateItem, StateUnreadable, StateWait};
use stafett_model::{Durability, LogId, Namespace};
use stafett_store::spaces;

use super::definition::{Definition, QueueId};
use super::queue::Queue;
use super::registry::{Queues, definition_frame};

/// Bound on the frames stored together.
const FRAMES_MAX: usize = 500;

impl Queues {
    pub(super) fn load(self: &Arc<Self>) -> Result<(), StateUnreadable> {
        let mut gone: Vec<Frame> = Vec::new();
        let found = self.load_definitions(&mut gone)?;
        // State of queues that no longer exist.
        let mut left_over: BTreeSet<Bytes> = BTreeSet::new();
        spaces::DELIVERIES.load(&*self.journal, |item| {
            let (StateItem::Value { key, .. } | StateItem::Delta { key, .. }) = item;
            let id = key.try_into().map(u64::from_be_bytes);
            let Some(queue) = id.ok().and_then(|id| found.get(&id)) else {
                left_over.insert(Bytes::copy_from_slice(key));
                return Some(());
            };
            queue.restore(item)
        })?;
        gone.extend(left_over.into_iter().map(|key| spaces::DELIVERIES.delete(key)));
        for queue in found.into_values() {
            self.register_loaded(&queue);
        }
        self.free(gone);
        Ok(())
    }

    /// Loads the queues that survive a restart, by id. Frames that delete the others are added to `gone`.
    fn load_definitions(
        self: &Arc<Self>,
        gone: &mut Vec<Frame>,
    ) -> Result<HashMap<u64, Arc<Queue>>, StateUnreadable> {
        let mut found: HashMap<u64, Arc<Queue>> = HashMap::new();
        let mut by_name: HashMap<(Namespace, ByteString), u64> = HashMap::new();
        spaces::QUEUES.load_values(&*self.journal, |key, value| {
            let id = u64::from_be_bytes(key.try_into().ok()?);
            let definition = Definition::decode(value)?;
            match self.topic_of(&definition) {
                Ok(topic) if definition.durable && !definition.exclusive => {
                    let queue = Queue::new(self, definition, topic.as_deref(), None);
                    queue.stored.store(true, Ordering::Release);
                    // Ids rise. The deletion of the earlier queue was lost with a part of the journal.
                    let name = (queue.namespace.clone(), queue.name.clone());
                    if let Some(earlier) = by_name.insert(name, id).and_then(|id| found.remove(&id)) {
                        tracing::error!(
                            queue = &*earlier.name,
                            "two definitions of one queue are left: the deletion of the earlier one is lost, and is done again"
                        );
                        let own = earlier.own_logs(&earlier.lock());
                        gone.extend(self.deletion(earlier.id, own.into_iter().map(|(_, log)| log)));
                    }
                    found.insert(id, queue);
                }
                Ok(_) | Err(_) => {
                    gone.extend(self.deletion(QueueId(id), definition.logs.iter().map(|(_, log)| *log)));
                }
            }
            Some(())
        })?;
        Ok(found)
    }

    /// Returns the frames that delete a queue. Logs lost to damage of the journal are left out: naming one
    /// would refuse the append.
    pub(super) fn deletion(&self, queue: QueueId, logs: impl Iterator<Item = LogId>) -> Vec<Frame> {
        let logs = logs.filter(|log| self.journal.bounds(*log).is_some());
        let deletions = logs.map(|first| Frame::DeleteLogs { first, count: 1 });
        let definition = definition_frame(queue, Change::Delete);
        deletions.chain([definition]).collect()
    }

    /// Stores the frames that delete left-over state.
    fn free(&self, gone: Vec<Frame>) {
        let mut gone = gone.into_iter().peekable();
        while gone.peek().is_some() {
            let append = Append::state(gone.by_ref().take(FRAMES_MAX), StateWait::Written);
            drop(self.journal.append(vec![append]));
        }
    }

    /// Adds a loaded queue.
    fn register_loaded(self: &Arc<Self>, queue: &Arc<Queue>) {
        queue.open(&self.context);
        self.write().insert(queue);
        if queue.over.is_some() || queue.lock().ready() > 0 {
            self.list_pending(queue);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.attach_to_topic(queue);
        self.publish_view(queue, &queue.lock());
        queue.use_now();
        queue.resume(&self.context, self.log_level(queue) != Durability::Sync);
    }
}
