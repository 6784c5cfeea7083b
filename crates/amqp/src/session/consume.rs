//! `basic.qos`, `basic.consume`, `basic.cancel`, and consumers that lose their queue.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::methods::basic;
use stafett_amqp_wire::{ReplyCode, Table, Value};
use stafett_delivery::{ConsumerSpec, Credit, MessageFilter};
use stafett_messaging::queues::{ConsumeError, Queue};
use stafett_messaging::{ConsumerFacts, ConsumerSource};

use super::channel::{ConsumerHandle, Tagged};
use super::stream::ConsumeTarget;
use super::{MethodError, Session, replies};
use crate::arguments::QueueType;
use crate::context::AmqpContext;
use crate::error;
use crate::exception::Exception;
use crate::exchange_kinds;

/// A consumer by its token, with its channel.
#[derive(Debug, Clone)]
pub(crate) struct TokenOwner {
    pub channel: u16,
    pub tag: ByteString,
    /// Name of its queue or stream.
    pub queue: ByteString,
    /// Its deliveries have to be settled.
    pub settles: bool,
    /// Its deliveries have the return count of the message.
    pub counts_deliveries: bool,
    /// It shares the limit of the channel.
    pub shares_credit: bool,
    /// The stream. `None` if it consumes a queue.
    pub stream: Option<StreamOfConsumer>,
}

/// Properties of a stream that deliveries repeat.
#[derive(Debug, Clone)]
pub(crate) struct StreamOfConsumer {
    pub name: ByteString,
    /// The stream has several partitions, so each delivery has its partition.
    pub has_partitions: bool,
}

impl Session {
    pub(super) fn on_qos(&mut self, number: u16, method: &basic::Qos) -> Result<(), MethodError> {
        if method.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", method.prefetch_size);
            return Err(Exception::new(ReplyCode::NotImplemented, text).into());
        }
        let count = u32::from(method.prefetch_count);
        let prefetch = &mut self.channel(number)?.prefetch;
        if method.global {
            match &prefetch.shared {
                Some(credit) => credit.set_limit(count),
                None => self.share_credit(number, count),
            }
        } else {
            prefetch.each = (count > 0).then_some(count);
            // It also removes the shared limit, as in RabbitMQ: a client that wants both sets the shared
            // limit last.
            if let Some(credit) = &prefetch.shared {
                credit.set_limit(0);
            }
        }
        self.out.send(number, basic::QosOk {});
        Ok(())
    }

    /// Sets the shared credit of a channel's consumers, including later ones. Deliveries held for consumers
    /// count, including ended ones.
    fn share_credit(&mut self, number: u16, count: u32) {
        // Settled deliveries do not count.
        self.flush_settlements();
        let credit = Credit::new(count);
        let Some(channel) = self.channels.get_mut(&number) else {
            return;
        };
        let shares = |token: &u64| self.token_owners.get(token).map(|holder| holder.shares_credit);
        let held = channel.unsettled().filter_map(|unsettled| unsettled.token);
        let of_ended = held.filter(|token| shares(token).is_none()).count();
        credit.add(u32::try_from(of_ended).unwrap_or(u32::MAX));
        for tagged in channel.consumers.values() {
            if let Some(ConsumerHandle::Queue(consumer)) = &tagged.consumer
                && shares(&tagged.token) == Some(true)
            {
                consumer.share(&credit);
            }
        }
        channel.prefetch.shared = Some(credit);
    }

    pub(super) fn on_consume(&mut self, number: u16, method: &basic::Consume) -> Result<(), MethodError> {
        if method.queue == replies::PSEUDO_QUEUE {
            return self.on_consume_replies(number, method);
        }
        let name = self.queue_name(number, method.queue.clone())?;
        let found = self.found(&name)?;
        let tag = if method.consumer_tag.is_empty() {
            super::generated("amq.ctag-")
        } else {
            method.consumer_tag.clone()
        };
        if self.channel(number)?.consumers.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Exception::not_allowed(text).into());
        }
        // Earlier messages of this connection can be consumed, and requeued ones are at their places.
        self.flush_published()?;
        self.flush_settlements();
        let queue = match found {
            ConsumeTarget::Queue(queue) => queue,
            ConsumeTarget::Stream(topic) => return self.consume_stream(number, &topic, name, tag, method),
        };
        self.last_token += 1;
        let token = self.last_token;
        let what = error::queue_in(&name, &self.namespace);
        let kind = AmqpContext::queue_type(&queue);
        if kind == QueueType::Quorum && self.has_global_qos(number)? {
            return Err(error::no_global_qos(&what).into());
        }
        if method.exclusive && queue.declared.single_active_consumer {
            return Err(error::consume(ConsumeError::InUse, &what).into());
        }
        let mut spec = self.spec(number, &method.arguments, method.no_ack, method.exclusive, &what)?;
        let shares_credit = kind != QueueType::Quorum;
        spec.shared_credit = spec.shared_credit.filter(|_| shares_credit);
        let holder = TokenOwner {
            channel: number,
            tag: tag.clone(),
            queue: name.clone(),
            settles: spec.settles,
            counts_deliveries: kind == QueueType::Quorum,
            shares_credit,
            stream: None,
        };
        self.token_owners.insert(token, holder);
        let facts = self.facts(number, &tag, &queue, &spec, &method.arguments);
        let outbox = Arc::clone(&self.outbox);
        let consumer = match queue.consume(self.owner, spec, outbox, token) {
            Ok(consumer) => consumer,
            Err(error) => {
                self.token_owners.remove(&token);
                return Err(self.refused_consumer(error, &name).into());
            }
        };
        if !method.no_wait {
            let consumer_tag = tag;
            self.out.send(number, basic::ConsumeOk { consumer_tag });
        }
        self.add_consumer(token, ConsumerHandle::Queue(consumer), facts)
    }

    fn facts(
        &self,
        channel: u16,
        tag: &ByteString,
        queue: &Queue,
        spec: &ConsumerSpec,
        arguments: &Table,
    ) -> ConsumerFacts {
        ConsumerFacts {
            connection: self.connection,
            channel,
            name: tag.clone(),
            source: ConsumerSource::Queue(queue.id),
            namespace: self.namespace.clone(),
            source_name: queue.name.clone(),
            settles: spec.settles,
            exclusive: spec.exclusive,
            priority: spec.priority,
            credit: spec.credit,
            arguments: Bytes::copy_from_slice(arguments.as_bytes()),
        }
    }

    /// Adds a consumer to its channel, and to the list of all.
    pub(super) fn add_consumer(
        &mut self,
        token: u64,
        consumer: ConsumerHandle,
        facts: ConsumerFacts,
    ) -> Result<(), MethodError> {
        let (channel, tag) = (facts.channel, facts.name.clone());
        let consumers = self.context.broker.messaging().consumers();
        let tagged = Tagged {
            token,
            listed: consumers.add(facts, consumer.holder()),
            consumer: Some(consumer),
        };
        self.channel(channel)?.consumers.insert(tag, tagged);
        Ok(())
    }

    fn spec(
        &mut self,
        number: u16,
        arguments: &Table,
        no_ack: bool,
        exclusive: bool,
        what: &str,
    ) -> Result<ConsumerSpec, MethodError> {
        let priority = match arguments.get("x-priority") {
            None => 0,
            Some(value) => consumer_priority(&value, what)?,
        };
        let filter = self.filter(arguments)?;
        let prefetch = &self.channel(number)?.prefetch;
        Ok(ConsumerSpec {
            settles: !no_ack,
            exclusive,
            priority,
            credit: if no_ack { None } else { prefetch.each },
            shared_credit: prefetch.shared.clone(),
            filter,
        })
    }

    /// Returns the condition of a consumer on the content of messages.
    pub(super) fn filter(&self, arguments: &Table) -> Result<Option<Arc<dyn MessageFilter>>, Exception> {
        let filter = exchange_kinds::filter(arguments)?;
        Ok(filter.map(|filter| self.context.broker.messaging().filter(filter)))
    }

    /// Returns true if the consumers of a channel share a limit.
    pub(super) fn has_global_qos(&mut self, number: u16) -> Result<bool, MethodError> {
        let shared = &self.channel(number)?.prefetch.shared;
        Ok(shared.as_ref().is_some_and(|credit| credit.is_limited()))
    }

    fn refused_consumer(&self, error: ConsumeError, name: &str) -> Exception {
        error::consume(error, &error::queue_in(name, &self.namespace))
    }

    pub(super) fn on_cancel(&mut self, number: u16, method: &basic::Cancel) -> Result<(), MethodError> {
        let channel = self.channel(number)?;
        if let Some(tagged) = channel.consumers.remove(&method.consumer_tag) {
            drop(tagged.consumer);
            // Deliveries in the outbox went back to the queue with the consumer, except those that need no
            // settlement: these are sent now. Deliveries that the client has can still be settled.
            self.deliver();
            self.token_owners.remove(&tagged.token);
        } else {
            self.cancel_replies(number, &method.consumer_tag)?;
        }
        if !method.no_wait {
            let consumer_tag = method.consumer_tag.clone();
            self.out.send(number, basic::CancelOk { consumer_tag });
        }
        Ok(())
    }

    /// Removes a consumer whose queue is gone, and notifies clients that have the capability.
    pub(super) fn on_consumer_gone(&mut self, token: u64) {
        let Some(holder) = self.token_owners.remove(&token) else {
            return;
        };
        let Some(channel) = self.channels.get_mut(&holder.channel) else {
            return;
        };
        channel.consumers.remove(&holder.tag);
        self.namespace_is_gone = !self.context.exchanges().has_namespace(&self.namespace);
        if self.agreed.client.cancel_notify {
            let cancel = basic::Cancel {
                consumer_tag: holder.tag,
                no_wait: true,
            };
            self.out.send(holder.channel, cancel);
        }
    }

    /// Returns a queue that this connection may use.
    pub(super) fn queue(&self, name: &str) -> Result<Arc<Queue>, Exception> {
        let vhost = &self.namespace;
        let Some(queue) = self.context.queues().get(vhost, name) else {
            return Err(Exception::not_found(format!(
                "no queue '{name}' in vhost '{vhost}'"
            )));
        };
        if queue.exclusive.is_some_and(|owner| owner != self.owner) {
            return Err(error::locked(&error::queue_in(name, vhost)));
        }
        Ok(queue)
    }
}

fn consumer_priority(value: &Value, what: &str) -> Result<i32, Exception> {
    let number = value.integer().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| {
        let kind = value.type_name();
        Exception::precondition(format!(
            "invalid arg 'x-priority' for {what}: \"expected integer, got {kind}\""
        ))
    })
}
