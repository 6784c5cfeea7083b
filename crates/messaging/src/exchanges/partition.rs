//! Choice of a stored topic's partition for a message.
//!
//! The partition follows from the message's key, or from its routing key if it has none. So related messages
//! stay in order, and messages with a key are in the same partition as records of log producers with that
//! key.

use stafett_model::{LogId, Message, partition_of};
use stafett_topics::Topic;

pub(crate) fn log_of(topic: &Topic, message: &Message) -> Option<LogId> {
    let partitions = topic.partitions();
    if partitions <= 1 {
        return topic.log(0);
    }
    let key = message.key.as_deref().unwrap_or(message.routing_key.as_bytes());
    topic.log(partition_of(key, partitions))
}
