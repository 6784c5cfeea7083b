//! `queue.declare`, `bind`, `unbind`, `purge`, `delete`.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_amqp_wire::methods::{Queue as QueueMethod, queue};
use stafett_amqp_wire::{Method, Table, Value};
use stafett_messaging::Destination;
use stafett_messaging::queues::{Declare, Queue, TopicQueueSpec};

use super::bound::Answer;
use super::exchange::{BindingName, check_name};
use super::stream::{Found, not_for_streams};
use super::{Session, Trouble};
use crate::amqp::Shared;
use crate::arguments::{self, QueueType};
use crate::error;
use crate::exception::Exception;

impl Session {
    pub(super) async fn on_queue(&mut self, number: u16, method: QueueMethod) -> Result<(), Trouble> {
        match method {
            QueueMethod::Declare(mut method) => {
                method.queue = super::one_line(method.queue);
                self.on_declare(number, method).await
            }
            QueueMethod::Bind(method) => self.on_bind(number, method),
            QueueMethod::Unbind(method) => self.on_unbind(number, method).await,
            QueueMethod::Purge(method) => self.on_purge(number, method),
            QueueMethod::Delete(method) => self.on_delete(number, method).await,
            other @ (QueueMethod::DeclareOk(_)
            | QueueMethod::BindOk(_)
            | QueueMethod::PurgeOk(_)
            | QueueMethod::DeleteOk(_)
            | QueueMethod::UnbindOk(_)) => Err(super::not_for_servers(&Method::Queue(other))),
        }
    }

    async fn on_declare(&mut self, number: u16, method: queue::Declare) -> Result<(), Trouble> {
        if method.queue.starts_with(super::replies::PSEUDO_QUEUE) {
            return self.on_declare_replies(number, &method);
        }
        let (name, found) = if method.passive {
            let name = self.queue_name(number, method.queue.clone())?;
            let found = self.found(&name)?;
            if let Found::Queue(queue) = &found {
                // A passive declaration counts as use, as in RabbitMQ.
                queue.use_now();
            }
            (name, found)
        } else {
            let name = if method.queue.is_empty() {
                super::generated("amq.gen-")
            } else {
                method.queue.clone()
            };
            let found = self.declare(&name, &method).await?;
            (name, found)
        };
        self.channel(number)?.last_queue = name.clone();
        if !method.no_wait {
            let (messages, consumers) = match &found {
                Found::Queue(queue) => {
                    let counts = queue.counts();
                    (counts.ready, counts.consumers)
                }
                // RabbitMQ does not count a stream's consumers here either.
                Found::Stream(topic) => (self.stream_length(topic), 0),
            };
            let declared = queue::DeclareOk {
                queue: name,
                message_count: u32::try_from(messages).unwrap_or(u32::MAX),
                consumer_count: u32::try_from(consumers).unwrap_or(u32::MAX),
            };
            self.out.send(number, declared);
        }
        Ok(())
    }

    async fn declare(&mut self, name: &ByteString, method: &queue::Declare) -> Result<Found, Trouble> {
        let vhost = self.namespace.clone();
        let what = error::queue_in(name, &vhost);
        let queues = self.shared.broker.messaging().queues();
        let existing = queues.get(&vhost, name);
        if let Some(existing) = &existing {
            if existing.exclusive.is_some_and(|owner| owner != self.owner) {
                return Err(error::locked(&what).into());
            }
            check_equivalence(existing, method, &what)?;
        } else if !method.queue.is_empty() {
            check_name(name, "queue", false)?;
        }
        if QueueType::of(&method.arguments) == QueueType::Stream {
            if method.queue.is_empty() {
                let text = "Cannot declare a server-named queue for type rabbit_stream_queue";
                return Err(Exception::precondition(text).into());
            }
            return self.declare_stream(name, method).await.map(Found::Stream);
        }
        if let Some(stream) = self
            .stream(name)
            .filter(|topic| topic.settings.declared.is_some())
        {
            self.check_stream(&stream, method, &stream.settings, &what)?;
            return Ok(Found::Stream(stream));
        }
        let (kind, settings) = arguments::queue_settings(&method.arguments, &what)?;
        check_kind(kind, method, &what)?;
        let declare = Declare {
            durable: method.durable,
            exclusive: method.exclusive.then_some(self.owner),
            auto_delete: method.auto_delete,
            settings,
            over: self.over(&method.arguments, &what)?,
            // An equivalent declaration keeps the arguments of the queue.
            arguments: match &existing {
                Some(existing) => existing.arguments.clone(),
                None => arguments::canonical(&method.arguments),
            },
        };
        let declaring = self
            .shared
            .broker
            .messaging()
            .queues()
            .declare(&vhost, name, declare);
        if method.no_wait
            && let Some(queue) = self.shared.broker.messaging().queues().get(&vhost, name)
        {
            // The queue is usable at once; messages published to it are stored after its declaration.
            drop(declaring);
            return Ok(Found::Queue(queue));
        }
        Ok(declaring
            .await
            .map(Found::Queue)
            .map_err(|error| error::declare(&error, &what))?)
    }

    /// Returns the stored topic that a queue is to consume.
    fn over(&self, arguments: &Table, what: &str) -> Result<Option<TopicQueueSpec>, Exception> {
        let Some((name, from_end)) = arguments::over_topic(arguments, what)? else {
            return Ok(None);
        };
        let topics = self.shared.broker.topics();
        let named = topics.named(&name).filter(|topic| !topic.id.is_queue());
        match named.or_else(|| topics.in_namespace(&self.namespace, &name)) {
            Some(topic) => Ok(Some(TopicQueueSpec {
                topic: topic.id,
                from_end,
            })),
            None => Err(Exception::not_found(format!(
                "no topic '{name}' that {what} could lie over"
            ))),
        }
    }

    fn on_bind(&mut self, number: u16, method: queue::Bind) -> Result<(), Trouble> {
        let (name, routing_key) = self.bound_name(number, method.queue, method.routing_key)?;
        let binding = BindingName {
            source: super::one_line(method.exchange),
            destination: self.destination(&name, &method.arguments)?,
            routing_key,
            arguments: method.arguments,
        };
        let stored = self.bind(&binding)?;
        if !method.no_wait {
            self.answer_when_stored(number, stored, Answer::QueueBound);
        }
        Ok(())
    }

    /// Returns the queue to bind or unbind, and the routing key. If both are empty, the key is the name of
    /// the queue declared last.
    fn bound_name(
        &mut self,
        number: u16,
        queue: ByteString,
        routing_key: ByteString,
    ) -> Result<(ByteString, ByteString), Trouble> {
        let both_empty = queue.is_empty() && routing_key.is_empty();
        let name = self.queue_name(number, super::one_line(queue))?;
        let key = if both_empty { name.clone() } else { routing_key };
        Ok((name, key))
    }

    /// Returns the destination of a binding: a queue that this connection may use, a stream, or, with our own
    /// argument, a stored topic.
    fn destination(&self, name: &str, arguments: &Table) -> Result<Destination, Exception> {
        if leads_to_topic(arguments) {
            return Ok(Destination::Topic(Arc::from(name)));
        }
        Ok(match self.found(name)? {
            Found::Queue(_) => Destination::Queue(Arc::from(name)),
            Found::Stream(topic) => Destination::Topic(Arc::from(&*topic.name)),
        })
    }

    async fn on_unbind(&mut self, number: u16, method: queue::Unbind) -> Result<(), Trouble> {
        let (name, routing_key) = self.bound_name(number, method.queue, method.routing_key)?;
        let is_queue = !leads_to_topic(&method.arguments);
        let exists = || {
            let queues = self.shared.broker.messaging().queues();
            queues.get(&self.namespace, &name).is_some() || self.stream(&name).is_some()
        };
        if !is_queue || exists() {
            let binding = BindingName {
                source: super::one_line(method.exchange),
                destination: self.destination(&name, &method.arguments)?,
                routing_key,
                arguments: method.arguments,
            };
            self.unbind(&binding, false).await?;
        }
        self.out.send(number, queue::UnbindOk {});
        Ok(())
    }

    fn on_purge(&mut self, number: u16, method: queue::Purge) -> Result<(), Trouble> {
        let name = self.queue_name(number, method.queue)?;
        let count = match self.found(&name)? {
            Found::Queue(queue) => queue.purge(),
            Found::Stream(_) => {
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

    async fn on_delete(&mut self, number: u16, method: queue::Delete) -> Result<(), Trouble> {
        let name = self.queue_name(number, super::one_line(method.queue.clone()))?;
        let vhost = self.namespace.clone();
        let mut message_count = 0;
        if let Some(topic) = self.stream(&name) {
            let what = error::queue_in(&name, &vhost);
            self.delete_stream(&topic, &what).await?;
        } else if self
            .shared
            .broker
            .messaging()
            .queues()
            .get(&vhost, &name)
            .is_some()
        {
            let queue = self.queue(&name)?;
            let what = error::queue_in(&name, &vhost);
            if Shared::queue_type(&queue) == QueueType::Quorum {
                check_unconditional(&method, &what)?;
            }
            let queues = self.shared.broker.messaging().queues();
            let deleted = queues
                .delete(&vhost, &name, method.if_unused, method.if_empty, self.owner)
                .await;
            match deleted {
                Ok(count) => message_count = u32::try_from(count).unwrap_or(u32::MAX),
                Err(error) => {
                    if let Some(exception) = error::delete(&error, &what) {
                        return Err(exception.into());
                    }
                    self.gone(method.no_wait).await?;
                }
            }
        } else {
            // Deleting a missing queue is no error (RabbitMQ since 3.2).
            self.gone(method.no_wait).await?;
        }
        if !method.no_wait {
            self.out.send(number, queue::DeleteOk { message_count });
        }
        Ok(())
    }

    /// Declares the pseudo queue of direct replies, which always exists, or a reply address, which exists as
    /// long as its consumer.
    fn on_declare_replies(&mut self, number: u16, method: &queue::Declare) -> Result<(), Trouble> {
        let is_there =
            method.queue == super::replies::PSEUDO_QUEUE || self.shared.replies.knows(&method.queue);
        if !is_there {
            let vhost = &self.namespace;
            return Err(
                Exception::not_found(format!("no queue '{}' in vhost '{vhost}'", method.queue)).into(),
            );
        }
        if !method.no_wait {
            let declared = queue::DeclareOk {
                queue: method.queue.clone(),
                message_count: 0,
                consumer_count: 1,
            };
            self.out.send(number, declared);
        }
        Ok(())
    }
}

/// Returns true if a binding leads to a stored topic: our own argument, because the protocol has none.
fn leads_to_topic(arguments: &Table) -> bool {
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
    error::check_arguments(&method.arguments, &queue.arguments, what)
}
