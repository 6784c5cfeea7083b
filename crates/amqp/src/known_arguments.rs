//! Arguments of queues and the queue types that support them, as in RabbitMQ 4.0.5 (the capabilities of its
//! queue types). Arguments of another type are refused; unknown arguments are kept and shown, and have no
//! effect.

use stafett_amqp_wire::Table;

use crate::arguments::QueueType::{self, Classic, Quorum, Stream};
use crate::exception::Exception;

const OF_CLASSIC: &[QueueType] = &[Classic];
const OF_QUORUM: &[QueueType] = &[Quorum];
const OF_STREAMS: &[QueueType] = &[Stream];
const OF_QUEUES: &[QueueType] = &[Classic, Quorum];
const OF_ALL: &[QueueType] = &[Classic, Quorum, Stream];

const KNOWN: [(&str, &[QueueType]); 22] = [
    ("x-dead-letter-exchange", OF_QUEUES),
    ("x-dead-letter-routing-key", OF_QUEUES),
    ("x-dead-letter-strategy", OF_QUORUM),
    ("x-delivery-limit", OF_QUORUM),
    ("x-expires", OF_QUEUES),
    ("x-initial-cluster-size", OF_STREAMS),
    ("x-max-age", OF_STREAMS),
    ("x-max-in-memory-bytes", OF_QUORUM),
    ("x-max-in-memory-length", OF_QUORUM),
    ("x-max-length", OF_QUEUES),
    ("x-max-length-bytes", OF_ALL),
    ("x-max-priority", OF_CLASSIC),
    ("x-message-ttl", OF_QUEUES),
    ("x-overflow", OF_QUEUES),
    ("x-queue-leader-locator", OF_ALL),
    ("x-queue-master-locator", OF_CLASSIC),
    ("x-queue-mode", OF_CLASSIC),
    ("x-queue-type", OF_ALL),
    ("x-queue-version", OF_CLASSIC),
    ("x-quorum-initial-group-size", OF_QUORUM),
    ("x-single-active-consumer", OF_QUEUES),
    ("x-stream-max-segment-size-bytes", OF_STREAMS),
];
/// Prefix of our own arguments. Those of one queue type are refused elsewhere.
const OWN: &str = "x-stafett-";

fn types(name: &str) -> Option<&'static [QueueType]> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    known.map(|(_, types)| *types)
}

/// Returns true if an argument has a meaning for a queue type.
pub(crate) fn has_meaning(name: &str, kind: QueueType) -> bool {
    name.starts_with(OWN) || types(name).is_some_and(|types| types.contains(&kind))
}

/// Refuses known arguments that this queue type does not support.
pub(crate) fn check(arguments: &Table, kind: QueueType, what: &str) -> Result<(), Exception> {
    for (name, _) in arguments.iter() {
        if types(&name).is_some_and(|types| !types.contains(&kind)) {
            return Err(of_another_type(&name, kind, what));
        }
    }
    Ok(())
}

/// Reports an argument that this queue type does not support.
pub(crate) fn of_another_type(name: &str, kind: QueueType, what: &str) -> Exception {
    let kind = kind.name();
    Exception::precondition(format!(
        "invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
    ))
}
