//! A queue as a topic: clients that read logs see its messages under a name of its own, one partition per priority.
//!
//! The queue `orders` is the topic `queue.orders`; that of another namespace is `queue-NAMESPACE.orders`. Bytes that a topic's name
//! cannot have are `_` and two hexadecimal digits; so is a `_` that two such digits follow. Reading settles nothing. A topic
//! that has the name already keeps it, and a name that would be too long is none. Settled messages may still be seen,
//! as far as the log is not freed yet; what log clients produce into it are messages with nothing set.

use std::fmt::Write;
use std::sync::Arc;

use stafett_model::{LogId, TopicName};

use super::queue::{Inner, Queue};
use super::registry::Queues;
use crate::namespace::Namespace;
use crate::topic::{Topic, TopicId};

impl Queue {
    /// The topic that it is for clients that read logs, if it is one.
    pub fn topic_name(&self) -> Option<String> {
        if !self.outlives() {
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
    /// Shows a queue, as it is now, to clients that read logs.
    pub(super) fn show(&self, queue: &Queue, inner: &Inner) {
        let Some(name) = queue.topic_name() else { return };
        let id = TopicId::of_queue(queue.id.0);
        if self.topics.named(&name).is_some_and(|known| known.id != id) {
            return;
        }
        let mut logs: Vec<(u8, LogId)> = inner.logs.iter().map(|lane| (lane.priority, lane.log)).collect();
        logs.sort_unstable();
        let mut logs = logs.into_iter().map(|(_, log)| log);
        let Some(first) = logs.next() else { return };
        let topic = Topic::new(id, name.into(), first, 1, Arc::clone(&self.no_settings));
        let topic = logs.fold(topic, |topic, log| topic.with_more(log, 1));
        self.topics.insert(Arc::new(topic));
    }

    /// Clients that read logs see it no more.
    pub(super) fn hide(&self, queue: &Queue) {
        if let Some(topic) = self.topics.with_id(TopicId::of_queue(queue.id.0)) {
            self.topics.remove(&topic);
        }
    }
}

/// Writes a text with nothing in it that a topic's name cannot have, nor what is `also` not wanted.
fn escape(text: &str, also: &[char], out: &mut String) {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let letter = char::from(*byte);
        let follows_hex = || {
            let next = bytes.get(at + 1..at + 3);
            next.is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit))
        };
        let plain = match letter {
            '_' => !follows_hex(),
            '.' | '-' => true,
            other => other.is_ascii_alphanumeric(),
        };
        if plain && !also.contains(&letter) {
            out.push(letter);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "_{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_and_different() {
        let escaped = |text| {
            let mut out = String::new();
            escape(text, &[], &mut out);
            out
        };
        for (text, expected) in [
            ("orders.new-2", "orders.new-2"),
            ("my_queue", "my_queue"),
            ("a_ff", "a_5fff"),
            ("a b", "a_20b"),
            ("a_20b", "a_5f20b"),
            ("é", "_c3_a9"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
