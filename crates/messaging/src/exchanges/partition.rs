//! Which partition of a stored topic a message goes to.
//!
//! The one that its key leads to; without a key, the one that its routing key leads to. So what belongs
//! together stays in order, and messages of one key are where producers of logs put records of that key.

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
