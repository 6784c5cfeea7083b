//! Queues over stored topics: a queue whose messages are those of a topic, settled separately.
//!
//! The queue has only delivery state: a lane per partition. It changes nothing in the topic, so any number of
//! queues, readers and groups share one. Messages that the topic no longer keeps are lost to the queue, and
//! counted. Messages published to the queue go to the topic. The queue is deleted with its topic.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_model::{LockGuard, LogId, Message};
use stafett_queue::death_history;
use stafett_topics::{Topic, TopicId};

use super::definition::Definition;
use super::queue::Queue;
use super::registry::Queues;

/// The topic of a stored queue no longer exists.
#[derive(Debug)]
pub(super) struct TopicGone;

impl Queues {
    /// Returns the topic of a stored queue over a topic; `None` for other queues.
    pub(super) fn topic_of(&self, definition: &Definition) -> Result<Option<Arc<Topic>>, TopicGone> {
        let Some(id) = definition.over else {
            return Ok(None);
        };
        self.topics.with_id(id).map(Some).ok_or(TopicGone)
    }

    /// Lets a new queue follow the growth and deletion of its topic.
    pub(super) fn attach_to_topic(self: &Arc<Self>, queue: &Arc<Queue>) {
        let Some(id) = queue.over else { return };
        self.over().entry(id).or_default().push(Arc::clone(queue));
        // The topic may have changed before the queue was registered.
        match self.topics.with_id(id) {
            Some(topic) => queue.follow(&self.context, &topic),
            None => drop(self.remove(queue, |_| Ok(()))),
        }
    }

    /// Removes a deleted queue.
    pub(super) fn detach_from_topic(&self, queue: &Arc<Queue>) {
        let Some(id) = queue.over else { return };
        let mut over = self.over();
        if let Some(queues) = over.get_mut(&id) {
            queues.retain(|known| !Arc::ptr_eq(known, queue));
            if queues.is_empty() {
                over.remove(&id);
            }
        }
    }

    /// Handles the growth of a topic to more partitions.
    pub(crate) fn on_topic_grown(&self, topic: &Topic) {
        for queue in self.all_over(topic.id) {
            queue.follow(&self.context, topic);
        }
    }

    /// Handles the deletion of a topic: deletes the queues over it.
    pub(crate) fn on_topic_deleted(self: &Arc<Self>, topic: TopicId) {
        for queue in self.all_over(topic) {
            // The queue may be deleted already.
            drop(self.remove(&queue, |_| Ok(())));
        }
    }

    /// Returns true if a dead letter that goes to a log would return to a queue that it left automatically.
    pub(super) fn would_loop(&self, message: &Message, log: LogId) -> bool {
        let over = self.over();
        over.iter().any(|(topic, queues)| {
            queues
                .iter()
                .any(|queue| death_history::is_circle(message, &queue.name))
                && self
                    .topics
                    .with_id(*topic)
                    .is_some_and(|topic| topic.has_log(log))
        })
    }

    fn all_over(&self, topic: TopicId) -> Vec<Arc<Queue>> {
        self.over().get(&topic).cloned().unwrap_or_default()
    }

    fn over(&self) -> LockGuard<'_, HashMap<TopicId, Vec<Arc<Queue>>>> {
        self.over.lock()
    }
}
