//! From every error of the core to what AMQP says, and to what ends.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::{ReplyCode, Table};
use stafett_messaging::queues::{ConsumeError, DeclareError, DeleteQueueError};
use stafett_model::Namespace;
use stafett_store::NotStored;

use crate::arguments::QueueType;
use crate::equivalence;
use crate::exception::Exception;

/// A queue as RabbitMQ's messages name it.
pub(crate) fn queue_in(name: &str, namespace: &Namespace) -> String {
    format!("queue '{name}' in vhost '{namespace}'")
}

/// An exchange as RabbitMQ's messages name it.
pub(crate) fn exchange_in(name: &str, namespace: &Namespace) -> String {
    format!("exchange '{name}' in vhost '{namespace}'")
}

pub(crate) fn no_namespace(namespace: &Namespace) -> Exception {
    Exception::not_allowed(format!("vhost '{namespace}' not found"))
}

/// The queue belongs to another connection.
pub(crate) fn locked(what: &str) -> Exception {
    let text = format!(
        "cannot obtain exclusive access to locked {what}. It could be originally declared on another connection or the \
         exclusive property value does not match that of the original declaration."
    );
    Exception::new(ReplyCode::ResourceLocked, text)
}

/// Somebody asks for a message of a queue that gives them to one consumer.
pub(crate) fn only_for_the_active_consumer(what: &str) -> Exception {
    let text = format!(
        "cannot obtain access to locked {what}. basic.get operations are not supported by quorum queues with single active \
         consumer"
    );
    Exception::new(ReplyCode::ResourceLocked, text)
}

/// Consumers of queues of some types do not share what they may have.
pub(crate) fn no_global_qos(what: &str) -> Exception {
    Exception::new(
        ReplyCode::NotImplemented,
        format!("{what} does not support global qos"),
    )
}

/// Somebody wants a queue of a type to go that does not look at itself first.
pub(crate) fn no_conditional_deletion(flag: &str, what: &str) -> Exception {
    let text = format!(
        "cannot delete {what}. queue.delete operations with {flag} flag set are not supported by quorum queues"
    );
    Exception::new(ReplyCode::NotImplemented, text)
}

/// An argument differs: its name, what was received, what is current.
pub(crate) fn inequivalent(
    (argument, received, current): &(ByteString, String, String),
    what: &str,
) -> Exception {
    Exception::precondition(format!(
        "inequivalent arg '{argument}' for {what}: received {received} but current is {current}"
    ))
}

/// Arguments of a declaration have to be those of what is there; of the kinds of queues that is said first.
pub(crate) fn check_arguments(received: &Table, current: &Bytes, what: &str) -> Result<(), Exception> {
    let there = Table::decode(current.clone()).unwrap_or_default();
    let (new, old) = (QueueType::of(received), QueueType::of(&there));
    if new != old {
        let differs = (
            "x-queue-type".into(),
            format!("'{}'", new.name()),
            format!("'{}'", old.name()),
        );
        return Err(inequivalent(&differs, what));
    }
    match equivalence::difference(received, &there, new) {
        Some(difference) => Err(inequivalent(&difference, what)),
        None => Ok(()),
    }
}

/// A change is not stored: the disk is full, or the journal has failed.
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
    }
}

pub(crate) fn declare(error: &DeclareError, what: &str) -> Exception {
    match error {
        // What a client can see was compared before: it can only be the rest.
        DeclareError::Differs { what: part } => {
            Exception::precondition(format!("inequivalent {part} for {what}"))
        }
        DeclareError::Locked => locked(what),
        DeclareError::NoSuchNamespace => Exception::not_allowed(format!("the vhost of {what} is deleted")),
        DeclareError::NoSuchTopic => Exception::not_found(format!("no topic that {what} could lie over")),
        DeclareError::NotStored(cause) => not_stored(cause, what),
    }
}

/// Nothing where the queue had gone already: to delete it is no mistake then.
pub(crate) fn delete(error: &DeleteQueueError, what: &str) -> Option<Exception> {
    match error {
        DeleteQueueError::NoSuchQueue => None,
        DeleteQueueError::InUse => Some(Exception::precondition(format!("{what} in use"))),
        DeleteQueueError::NotEmpty => Some(Exception::precondition(format!("{what} not empty"))),
        DeleteQueueError::Locked => Some(locked(what)),
        DeleteQueueError::NotStored(cause) => Some(not_stored(cause, what)),
    }
}
