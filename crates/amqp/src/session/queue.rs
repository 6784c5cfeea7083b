//! `queue.declare`, `bind`, `unbind`, `purge`, `delete`.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::methods::{Queue as QueueMethod, queue};
use stafett_amqp_wire::{Table, Value};
use stafett_messaging::Destination;
use stafett_messaging::queues::{Declare, Queue, TopicQueueSpec};
use stafett_topics::Topic;

use super::dispatch::not_for_servers;
use super::exchange::{BindingName, check_name};
use super::held::Flow;
use super::pending_changes::ChangeReply;
use super::stream::{ConsumeTarget, check_deletable, not_for_streams, stream_deleted, stream_length};
use super::{MethodError, Session, one_line};
use crate::arguments::{self, QueueType};
use crate::context::AmqpContext;
use crate::error;
use crate::exception::Exception;
use crate::operation::{Done, Operation};

impl Session {
    pub(super) fn on_queue(&mut self, number: u16, method: &QueueMethod) -> Result<Flow, MethodError> {
        if let Some(operation) = self.await_earlier()? {
            return Ok(Flow::Hold(operation));
        }
        match method {
            QueueMethod::Declare(method) => return self.on_declare(number, method),
            QueueMethod::Bind(method) => self.on_bind(number, method)?,
            QueueMethod::Unbind(method) => self.on_unbind(number, method)?,
            QueueMethod::Purge(method) => self.on_purge(number, method)?,
            QueueMethod::Delete(method) => return self.on_delete(number, method),
            QueueMethod::DeclareOk(_)
            | QueueMethod::BindOk(_)
            | QueueMethod::PurgeOk(_)
            | QueueMethod::DeleteOk(_)
            | QueueMethod::UnbindOk(_) => return Err(not_for_servers()),
        }
        Ok(Flow::Continue)
    }

    fn on_declare(&mut self, number: u16, method: &queue::Declare) -> Result<Flow, MethodError> {
        let given = one_line(&method.queue);
        if given.starts_with(super::replies::PSEUDO_QUEUE) {
            self.on_declare_replies(number, &given, method.no_wait)?;
            return Ok(Flow::Continue);
        }
        if method.passive {
            let name = self.queue_name(number, given)?;
            let found = self.found(&name)?;
            if let ConsumeTarget::Queue(queue) = &found {
                // A passive declaration counts as use, as in RabbitMQ.
                queue.use_now();
            }
            return self.on_declared(number, name, &found, method.no_wait);
        }
        let declared = self.done.take_if(|done| matches!(done, Done::Declared(..)));
        if let Some(Done::Declared(name, declared)) = declared {
            let what = error::queue_in(&name, &self.namespace);
            let queue = declared.map_err(|error| error::declare(&error, &what))?;
            return self.on_declared(number, name, &ConsumeTarget::Queue(queue), method.no_wait);
        }
        self.declare(number, given, method)
    }

    /// Answers a declaration.
    pub(super) fn on_declared(
        &mut self,
        number: u16,
        name: ByteString,
        found: &ConsumeTarget,
        no_wait: bool,
    ) -> Result<Flow, MethodError> {
        self.channel(number)?.last_queue = name.clone();
        self.context.metrics.queues_declared.inc();
        if !no_wait {
            let (messages, consumers) = match found {
                // Counts are for those that may read.
                _ if !self.may_see_counts(&name) => (0, 0),
                ConsumeTarget::Queue(queue) => {
                    let counts = queue.counts();
                    (counts.ready, counts.consumers)
                }
                // RabbitMQ does not count a stream's consumers here either.
                ConsumeTarget::Stream(topic) => (stream_length(&self.context, topic), 0),
            };
            let declared = queue::DeclareOk {
                queue: name,
                message_count: u32::try_from(messages).unwrap_or(u32::MAX),
                consumer_count: u32::try_from(consumers).unwrap_or(u32::MAX),
            };
            self.out.send(number, declared);
        }
        Ok(Flow::Continue)
    }

    fn declare(
        &mut self,
        number: u16,
        given: ByteString,
        method: &queue::Declare,
    ) -> Result<Flow, MethodError> {
        let vhost = self.namespace.clone();
        let is_named = !given.is_empty();
        let name = if is_named {
            given
        } else {
            super::generated("amq.gen-")
        };
        let what = error::queue_in(&name, &vhost);
        let existing = self.context.queues().get(&vhost, &name);
        if let Some(existing) = &existing {
            if existing.exclusive.is_some_and(|owner| owner != self.owner) {
                return Err(error::locked(&what).into());
            }
            check_equivalence(existing, method, &what)?;
        } else if is_named {
            check_name(&name, "queue", || false)?;
        }
        if existing.is_none() && self.stream(&name).is_none() {
            self.context.check_queue_limit(&vhost, &name)?;
        }
        if QueueType::of(&method.arguments) == QueueType::Stream {
            if !is_named {
                let text = "Cannot declare a server-named queue for type rabbit_stream_queue";
                return Err(Exception::precondition(text).into());
            }
            return self.declare_stream(number, name, method);
        }
        if let Some(stream) = self
            .stream(&name)
            .filter(|topic| topic.settings.declared.is_some())
        {
            self.check_stream(&stream, method, &stream.settings, &what)?;
            return self.on_declared(number, name, &ConsumeTarget::Stream(stream), method.no_wait);
        }
        let (kind, settings) = arguments::queue_settings(&method.arguments, &what)?;
        check_kind(kind, method, &what)?;
        let declare = Declare {
            durable: method.durable,
            exclusive: method.exclusive.then_some(self.owner),
            auto_delete: method.auto_delete,
            personal: existing.as_ref().is_some_and(|existing| existing.personal),
            settings,
            over: self.over(&method.arguments, &what)?,
            // An equivalent declaration keeps the arguments of the queue.
            arguments: match &existing {
                Some(existing) => existing.arguments.clone(),
                None => Some(arguments::canonical(&method.arguments)),
            },
        };
        let declared = self.context.queues().begin_declaring(&vhost, &name, declare);
        let declared = declared.map_err(|error| error::declare(&error, &what))?;
        if method.no_wait {
            // The queue is usable at once; messages published to it are stored after its declaration.
            let queue = Arc::clone(declared.queue());
            return self.on_declared(number, name, &ConsumeTarget::Queue(queue), true);
        }
        Ok(Flow::Hold(Operation::Declare(name, declared)))
    }

    /// Returns the stored topic that a queue is to consume.
    fn over(&self, arguments: &Table, what: &str) -> Result<Option<TopicQueueSpec>, Exception> {
        let Some((name, from_end)) = arguments::over_topic(arguments, what)? else {
            return Ok(None);
        };
        match self.topic_named(&name) {
            Some(topic) => Ok(Some(TopicQueueSpec {
                topic: topic.id,
                from_end,
            })),
            None => Err(Exception::not_found(format!(
                "no topic '{name}' that {what} could lie over"
            ))),
        }
    }

    /// Returns the topic of a name, or of a name in this virtual host.
    pub(super) fn topic_named(&self, name: &str) -> Option<Arc<Topic>> {
        let topics = self.context.broker.topics();
        let named = topics.named(name).filter(|topic| !topic.id.is_queue());
        named.or_else(|| topics.in_namespace(&self.namespace, name))
    }

    fn on_bind(&mut self, number: u16, method: &queue::Bind) -> Result<(), MethodError> {
        let (name, routing_key) = self.bound_name(number, &method.queue, &method.routing_key)?;
        let binding = BindingName {
            source: one_line(&method.exchange),
            destination: self.destination(&name, &method.arguments)?,
            routing_key: &routing_key,
            arguments: &method.arguments,
        };
        let stored = self.bind(&binding)?;
        self.answer_when_stored(number, Some(stored), method.no_wait, ChangeReply::QueueBound);
        Ok(())
    }

    /// Returns the queue to bind or unbind, and the routing key. If both are empty, the key is the name of
    /// the queue declared last.
    fn bound_name(
        &mut self,
        number: u16,
        queue: &ByteString,
        routing_key: &ByteString,
    ) -> Result<(ByteString, ByteString), MethodError> {
        let both_empty = queue.is_empty() && routing_key.is_empty();
        let name = self.queue_name(number, one_line(queue))?;
        let key = if both_empty { &name } else { routing_key }.clone();
        Ok((name, key))
    }

    /// Returns the destination of a binding: a queue that this connection may use, a stream, or, with our own
    /// argument, a stored topic.
    fn destination(&self, name: &str, arguments: &Table) -> Result<Destination, Exception> {
        if leads_to_topic(arguments) {
            return Ok(Destination::Topic(Arc::from(name)));
        }
        Ok(match self.found(name)? {
            ConsumeTarget::Queue(_) => Destination::Queue(Arc::from(name)),
            ConsumeTarget::Stream(topic) => Destination::Topic(Arc::from(&*topic.name)),
        })
    }

    fn on_unbind(&mut self, number: u16, method: &queue::Unbind) -> Result<(), MethodError> {
        let (name, routing_key) = self.bound_name(number, &method.queue, &method.routing_key)?;
        let exists = leads_to_topic(&method.arguments)
            || self.context.queues().get(&self.namespace, &name).is_some()
            || self.stream(&name).is_some();
        if !exists {
            self.out.send(number, queue::UnbindOk {});
            return Ok(());
        }
        let binding = BindingName {
            source: one_line(&method.exchange),
            destination: self.destination(&name, &method.arguments)?,
            routing_key: &routing_key,
            arguments: &method.arguments,
        };
        let stored = self.unbind(&binding)?;
        self.answer_when_stored(number, stored, false, ChangeReply::QueueUnbound);
        Ok(())
    }

    fn on_purge(&mut self, number: u16, method: &queue::Purge) -> Result<(), MethodError> {
        let name = self.queue_name(number, method.queue.clone())?;
        let count = match self.found(&name)? {
            ConsumeTarget::Queue(queue) => queue.purge(),
            ConsumeTarget::Stream(_) => {
                let what = error::queue_in(&name, &self.namespace);
                return Err(not_for_streams("queue.purge not supported by stream queues", &what).into());
            }
        };
        if !method.no_wait {
            let message_count = u32::try_from(count).unwrap_or(u32::MAX);
            self.out.send(number, queue::PurgeOk { message_count });
        }
        Ok(())
    }

    fn on_delete(&mut self, number: u16, method: &queue::Delete) -> Result<Flow, MethodError> {
        let name = self.queue_name(number, one_line(&method.queue))?;
        let what = error::queue_in(&name, &self.namespace);
        let deleted = match self.done.take() {
            Some(Done::QueueDeleted(Ok(count))) => Some(count),
            Some(Done::QueueDeleted(Err(error))) => match error::delete(&error, &what) {
                Some(exception) => return Err(exception.into()),
                None => None,
            },
            Some(Done::TopicDeleted(deleted)) => {
                stream_deleted(deleted, &what)?;
                Some(0)
            }
            _ => match self.begin_deletion(&name, method, &what)? {
                Some(operation) => return Ok(Flow::Hold(operation)),
                None => None,
            },
        };
        let Some(count) = deleted else {
            // Deleting a missing queue is no error (RabbitMQ since 3.2).
            self.answer_when_stored(number, None, method.no_wait, ChangeReply::QueueDeleted);
            return Ok(Flow::Continue);
        };
        if !method.no_wait {
            let message_count = u32::try_from(count).unwrap_or(u32::MAX);
            self.out.send(number, queue::DeleteOk { message_count });
        }
        Ok(Flow::Continue)
    }

    /// Returns the deletion of a queue or stream. `None` if it does not exist.
    fn begin_deletion(
        &self,
        name: &ByteString,
        method: &queue::Delete,
        what: &str,
    ) -> Result<Option<Operation>, Exception> {
        if let Some(topic) = self.stream(name) {
            return check_deletable(&topic, what).map(|()| Some(Operation::DeleteTopic(topic.id)));
        }
        if self.context.queues().get(&self.namespace, name).is_none() {
            return Ok(None);
        }
        let queue = self.queue(name)?;
        if AmqpContext::queue_type(&queue) == QueueType::Quorum {
            check_unconditional(method, what)?;
        }
        Ok(Some(Operation::DeleteQueue {
            namespace: self.namespace.clone(),
            name: name.clone(),
            if_unused: method.if_unused,
            if_empty: method.if_empty,
            owner: self.owner,
        }))
    }

    /// Declares the pseudo queue of direct replies, which always exists, or a reply address, which exists as
    /// long as its consumer.
    fn on_declare_replies(&mut self, number: u16, name: &ByteString, no_wait: bool) -> Result<(), Exception> {
        let is_there = name == super::replies::PSEUDO_QUEUE || self.context.replies.knows(name);
        if !is_there {
            let vhost = &self.namespace;
            return Err(Exception::not_found(format!(
                "no queue '{name}' in vhost '{vhost}'"
            )));
        }
        if !no_wait {
            let declared = queue::DeclareOk {
                queue: name.clone(),
                message_count: 0,
                consumer_count: 1,
            };
            self.out.send(number, declared);
        }
        Ok(())
    }
}

/// Returns true if a binding leads to a stored topic: our own argument, because the protocol has none.
pub(super) fn leads_to_topic(arguments: &Table) -> bool {
    let destination = arguments.get("x-destination");
    destination.as_ref().and_then(Value::text) == Some("topic")
}

/// Refuses conditional deletion, which quorum queues do not support.
fn check_unconditional(method: &queue::Delete, what: &str) -> Result<(), Exception> {
    if method.if_unused {
        return Err(error::no_conditional_deletion("if-unused", what));
    }
    if method.if_empty {
        return Err(error::no_conditional_deletion("if-empty", what));
    }
    Ok(())
}

/// Refuses properties that the queue type does not support.
fn check_kind(kind: QueueType, method: &queue::Declare, what: &str) -> Result<(), Exception> {
    let wrong = |property| {
        Err(Exception::precondition(format!(
            "invalid property '{property}' for {what}"
        )))
    };
    match kind {
        QueueType::Classic | QueueType::Stream => Ok(()),
        QueueType::Quorum => {
            if !method.durable {
                return wrong("non-durable");
            }
            if method.exclusive {
                return wrong("exclusive-owner");
            }
            if method.auto_delete {
                return wrong("auto-delete");
            }
            Ok(())
        }
    }
}

/// Checks that a declaration is equivalent to that of the existing queue.
fn check_equivalence(queue: &Queue, method: &queue::Declare, what: &str) -> Result<(), Exception> {
    let properties = [
        ("durable", method.durable, queue.durable),
        ("auto_delete", method.auto_delete, queue.auto_delete),
    ];
    if method.exclusive != queue.exclusive.is_some() {
        return Err(error::locked(what));
    }
    for (name, received, current) in properties {
        if received != current {
            return Err(error::inequivalent(
                &(name.into(), format!("'{received}'"), format!("'{current}'")),
                what,
            ));
        }
    }
    let settings = || arguments::queue_settings(&method.arguments, what);
    let declared = match &queue.arguments {
        Some(declared) => declared.clone(),
        // A queue that was not declared over AMQP has settings only.
        None if QueueType::of(&method.arguments) != QueueType::Stream
            && queue.is_declared_as(&settings()?.1) =>
        {
            return Ok(());
        }
        None => Bytes::new(),
    };
    error::check_arguments(&method.arguments, &declared, what)
}
