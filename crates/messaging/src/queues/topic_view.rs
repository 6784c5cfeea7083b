//! A queue as a topic: clients that read logs see its messages under a topic name, with one partition per
//! priority.
//!
//! The queue `orders` is the topic `queue.orders`; one of another namespace is `queue-NAMESPACE.orders`. A
//! byte that is not allowed in topic names is written as `_` and two hexadecimal digits; so is a `_` that two
//! such digits follow. Reading settles nothing. An existing topic keeps its name, and a queue whose name
//! would be too long is not shown. Settled messages may still be visible until the log is freed. Records
//! produced by log clients become messages without properties.

use std::sync::Arc;

use stafett_model::{LogId, Namespace, TopicName};
use stafett_topics::names::escape;
use stafett_topics::{Topic, TopicId};

use super::definition::QueueId;
use super::queue::Queue;
use super::registry::Queues;
use stafett_delivery::DeliveryState;

impl Queue {
    /// Returns the name of the topic for clients that read logs; `None` if it is not shown. A queue over a
    /// topic is not, as its topic is visible already.
    pub fn topic_name(&self) -> Option<String> {
        if !self.survives_restart() || self.over.is_some() {
            return None;
        }
        let mut name = String::from("queue");
        if self.namespace != Namespace::default() {
            name.push('-');
            escape(self.namespace.as_str(), &['.'], &mut name);
        }
        name.push('.');
        escape(&self.name, &[], &mut name);
        TopicName::check(&name).is_ok().then_some(name)
    }
}

impl Queues {
    /// Returns the queue that is shown as a topic of this name.
    pub fn shown_as(&self, topic: &str) -> Option<Arc<Queue>> {
        let shown = self.topics.named(topic)?.id.queue()?;
        self.with_id(QueueId(shown))
    }

    /// Shows the queue, in its current state, to clients that read logs.
    pub(super) fn publish_view(&self, queue: &Queue, inner: &DeliveryState) {
        let Some(name) = queue.topic_name() else { return };
        let id = TopicId::of_queue(queue.id.0);
        if self.topics.named(&name).is_some_and(|known| known.id != id) {
            return;
        }
        let mut logs: Vec<(u32, LogId)> = inner.logs.iter().map(|lane| (lane.lane, lane.log)).collect();
        logs.sort_unstable();
        let mut logs = logs.into_iter().map(|(_, log)| log);
        let Some(first) = logs.next() else { return };
        let topic = Topic::new(id, name.into(), first, 1, Arc::clone(&self.no_settings));
        let topic = logs.fold(topic, |topic, log| topic.with_more(log, 1));
        self.topics.insert(Arc::new(topic));
    }

    /// Hides the queue from clients that read logs.
    pub(super) fn remove_view(&self, queue: &Queue) {
        if let Some(topic) = self.topics.with_id(TopicId::of_queue(queue.id.0)) {
            self.topics.remove(&topic);
        }
    }
}
