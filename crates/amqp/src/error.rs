//! Maps every error of the core to an AMQP exception.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::{ReplyCode, Table, Value};
use stafett_messaging::queues::{ConsumeError, DeclareError, DeleteQueueError};
use stafett_model::Namespace;
use stafett_store::NotStored;

use crate::arguments::QueueType;
use crate::equivalence;
use crate::exception::Exception;

/// Returns the queue's name as in RabbitMQ's error messages.
pub(crate) fn queue_in(name: &str, namespace: &Namespace) -> String {
    format!("queue '{name}' in vhost '{namespace}'")
}

/// Returns the exchange's name as in RabbitMQ's error messages.
pub(crate) fn exchange_in(name: &str, namespace: &Namespace) -> String {
    format!("exchange '{name}' in vhost '{namespace}'")
}

pub(crate) fn no_namespace(namespace: &Namespace) -> Exception {
    Exception::not_allowed(format!("vhost '{namespace}' not found"))
}

/// Refuses access to a queue that is exclusive to another connection.
pub(crate) fn locked(what: &str) -> Exception {
    let text = format!(
        "cannot obtain exclusive access to locked {what}. It could be originally declared on another connection or the \
         exclusive property value does not match that of the original declaration."
    );
    Exception::new(ReplyCode::ResourceLocked, text)
}

/// Refuses `basic.get` from a quorum queue with a single active consumer.
pub(crate) fn only_for_the_active_consumer(what: &str) -> Exception {
    let text = format!(
        "cannot obtain access to locked {what}. basic.get operations are not supported by quorum queues with single active \
         consumer"
    );
    Exception::new(ReplyCode::ResourceLocked, text)
}

/// Refuses `basic.qos` with `global` for queue types without a shared limit.
pub(crate) fn no_global_qos(what: &str) -> Exception {
    Exception::new(
        ReplyCode::NotImplemented,
        format!("{what} does not support global qos"),
    )
}

/// Refuses a conditional deletion, which the queue type does not support.
pub(crate) fn no_conditional_deletion(flag: &str, what: &str) -> Exception {
    let text = format!(
        "cannot delete {what}. queue.delete operations with {flag} flag set are not supported by quorum queues"
    );
    Exception::new(ReplyCode::NotImplemented, text)
}

/// Reports an argument that differs: its name, the received and the current value.
pub(crate) fn inequivalent(
    (argument, received, current): &(ByteString, String, String),
    what: &str,
) -> Exception {
    Exception::precondition(format!(
        "inequivalent arg '{argument}' for {what}: received {received} but current is {current}"
    ))
}

/// Checks that a declaration has the arguments of the existing queue. A different queue type is reported
/// first.
pub(crate) fn check_arguments(received: &Table, current: &Bytes, what: &str) -> Result<(), Exception> {
    let there = Table::decode(current.clone()).unwrap_or_default();
    let (new, old) = (QueueType::of(received), QueueType::of(&there));
    // A type that does not exist is compared before it is refused.
    let given = received.get("x-queue-type");
    let given = given.as_ref().and_then(Value::text).unwrap_or_else(|| new.name());
    if given != old.name() {
        let differs = (
            "x-queue-type".into(),
            format!("'{given}'"),
            format!("'{}'", old.name()),
        );
        return Err(inequivalent(&differs, what));
    }
    match equivalence::difference(received, &there, new) {
        Some(difference) => Err(inequivalent(&difference, what)),
        None => Ok(()),
    }
}

/// Reports that a change is not stored: the disk is full, or the journal has failed.
pub(crate) fn not_stored(error: &NotStored, what: &str) -> Exception {
    Exception::new(
        ReplyCode::InternalError,
        format!("{what} cannot be stored: {error}"),
    )
}

pub(crate) fn consume(error: ConsumeError, what: &str) -> Exception {
    match error {
        ConsumeError::Exclusive | ConsumeError::InUse => {
            Exception::refused(format!("{what} in exclusive use"))
        }
        ConsumeError::Locked => locked(what),
        ConsumeError::Gone => Exception::not_found(format!("no {what}")),
        ConsumeError::TooManyFilters => Exception::precondition(format!("{error}: {what}")),
    }
}

pub(crate) fn declare(error: &DeclareError, what: &str) -> Exception {
    match error {
        // Properties that clients can see were compared before; this is a difference of the rest.
        DeclareError::Differs { what: part } => {
            Exception::precondition(format!("inequivalent {part} for {what}"))
        }
        DeclareError::Locked => locked(what),
        DeclareError::NoSuchNamespace => Exception::not_allowed(format!("the vhost of {what} is deleted")),
        // A queue that came between the check of the limit and the declaration.
        DeclareError::TooMany { max } => Exception::precondition(format!(
            "cannot declare {what}: queue limit in its vhost ({max}) is reached"
        )),
        DeclareError::NoSuchTopic => Exception::not_found(format!("no topic that {what} could lie over")),
        DeclareError::NotStored(cause) => not_stored(cause, what),
    }
}

/// Maps an error; `None` if the queue is already gone, because deleting it is no error then.
pub(crate) fn delete(error: &DeleteQueueError, what: &str) -> Option<Exception> {
    match error {
        DeleteQueueError::NoSuchQueue => None,
        DeleteQueueError::InUse => Some(Exception::precondition(format!("{what} in use"))),
        DeleteQueueError::NotEmpty | DeleteQueueError::TooMany { .. } => {
            Some(Exception::precondition(format!("{what} not empty")))
        }
        DeleteQueueError::Locked => Some(locked(what)),
        DeleteQueueError::NotStored(cause) => Some(not_stored(cause, what)),
    }
}
