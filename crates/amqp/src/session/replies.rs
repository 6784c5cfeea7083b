//! Direct replies: a client consumes from the pseudo queue `amq.rabbitmq.reply-to` and publishes requests
//! with that name as `reply-to`. The responder gets an address in its place and publishes to that. The reply
//! goes directly to the client's connection, not through a queue.
//!
//! Each consumer has a new random address, too long to be guessed. Replies waiting for a connection are
//! bounded; beyond the bound they are dropped, like unroutable messages.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::Properties;
use stafett_amqp_wire::methods::basic;
use stafett_model::Lock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::channel::Replies;
use super::confirms::{PublishOrigin, PublishedBatch};
use super::{MethodError, Session};
use crate::content::Incoming;
use crate::exception::Exception;

pub(crate) const PSEUDO_QUEUE: &str = "amq.rabbitmq.reply-to";
const ADDRESS_PREFIX: &str = "amq.rabbitmq.reply-to.";

/// Bytes at which no further reply waits for a connection.
const BYTES_MAX: usize = 4 << 20;

/// Replies waiting for a connection.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Lock<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    replies: Vec<Reply>,
    bytes: usize,
}

#[derive(Debug)]
struct Reply {
    channel: u16,
    address: ByteString,
    properties: Properties,
    body: Bytes,
}

/// All reply addresses of the process.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Lock<HashMap<ByteString, (u16, Weak<Inbox>)>>);

/// Returns true if a message is a direct reply.
pub(super) fn is_direct_reply(incoming: &Incoming) -> bool {
    let message = &incoming.message;
    is_address(message.exchange.as_bytes(), message.routing_key.as_bytes())
}

/// Returns true if exchange and routing key are a reply address.
pub(super) fn is_address(exchange: &[u8], routing_key: &[u8]) -> bool {
    exchange.is_empty() && routing_key.starts_with(ADDRESS_PREFIX.as_bytes())
}

impl Addresses {
    fn learn(&self, address: ByteString, channel: u16, inbox: &Arc<Inbox>) {
        self.lock().insert(address, (channel, Arc::downgrade(inbox)));
    }

    pub(crate) fn forget(&self, address: &str) {
        self.lock().remove(address);
    }

    fn find(&self, address: &str) -> Option<(u16, Arc<Inbox>)> {
        let lock = self.lock();
        let (channel, inbox) = lock.get(address)?;
        Some((*channel, inbox.upgrade()?))
    }

    pub(super) fn knows(&self, address: &str) -> bool {
        self.find(address).is_some()
    }

    fn lock(&self) -> stafett_model::LockGuard<'_, HashMap<ByteString, (u16, Weak<Inbox>)>> {
        self.0.lock()
    }
}

impl Inbox {
    /// Resolves once a reply was added since the last call.
    pub(crate) fn filled(&self) -> Notified<'_> {
        self.wake.notified()
    }

    fn put(&self, reply: Reply) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.bytes >= BYTES_MAX {
            return false;
        }
        waiting.bytes += reply.body.len() + 256;
        waiting.replies.push(reply);
        drop(waiting);
        self.wake.notify_one();
        true
    }

    fn take(&self) -> Vec<Reply> {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.replies)
    }
}

impl Session {
    pub(super) fn on_consume_replies(
        &mut self,
        number: u16,
        method: &basic::Consume,
    ) -> Result<(), MethodError> {
        if !method.no_ack {
            return Err(Exception::precondition("reply consumer cannot acknowledge").into());
        }
        if self.channel(number)?.replies.is_some() {
            return Err(Exception::precondition("reply consumer already set").into());
        }
        let tag = if method.consumer_tag.is_empty() {
            super::generated("amq.ctag-")
        } else {
            method.consumer_tag.clone()
        };
        let address = super::generated(ADDRESS_PREFIX);
        self.context.replies.learn(address.clone(), number, &self.replies);
        self.channel(number)?.replies = Some(Replies {
            tag: tag.clone(),
            address,
        });
        if !method.no_wait {
            self.out.send(number, basic::ConsumeOk { consumer_tag: tag });
        }
        Ok(())
    }

    pub(super) fn cancel_replies(&mut self, number: u16, tag: &str) -> Result<(), MethodError> {
        let channel = self.channel(number)?;
        if let Some(replies) = channel.replies.take_if(|replies| replies.tag == tag) {
            self.context.replies.forget(&replies.address);
        }
        Ok(())
    }

    /// Sets the channel's reply address in a request that asks for a direct reply.
    pub(super) fn fill_reply_address(
        &mut self,
        number: u16,
        incoming: &mut Incoming,
    ) -> Result<(), MethodError> {
        if incoming.reply_to().as_deref() == Some(PSEUDO_QUEUE) {
            let Some(replies) = &self.channel(number)?.replies else {
                return Err(Exception::precondition("fast reply consumer does not exist").into());
            };
            incoming.set_reply_to(replies.address.clone());
        }
        Ok(())
    }

    pub(super) fn reply(
        &mut self,
        number: u16,
        confirm: Option<u64>,
        mandatory: bool,
        incoming: Incoming,
    ) -> Result<(), MethodError> {
        self.flush_published()?;
        let address = incoming.message.routing_key.clone();
        let arrived = self
            .context
            .replies
            .find(&address)
            .is_some_and(|(channel, inbox)| {
                inbox.put(Reply {
                    channel,
                    address: address.clone(),
                    properties: incoming.properties.clone(),
                    body: incoming.message.value.clone(),
                })
            });
        if !arrived && mandatory {
            self.return_message(number, incoming.message);
        }
        if confirm.is_some() {
            self.confirms.push(PublishedBatch::unrouted(PublishOrigin {
                channel: number,
                number: confirm,
                mandatory: false,
            }));
        }
        Ok(self.resolve_ready()?)
    }

    pub(super) fn deliver_replies(&mut self) {
        for reply in self.replies.take() {
            let Some(channel) = self.channels.get_mut(&reply.channel) else {
                continue;
            };
            let Some(replies) = channel
                .replies
                .as_ref()
                .filter(|replies| replies.address == reply.address)
            else {
                continue;
            };
            channel.last_delivery_tag += 1;
            let deliver = basic::Deliver {
                consumer_tag: replies.tag.clone(),
                delivery_tag: channel.last_delivery_tag,
                redelivered: false,
                exchange: ByteString::new(),
                routing_key: reply.address,
            };
            self.out.send(reply.channel, deliver);
            self.write_content(reply.channel, &reply.properties, reply.body);
        }
    }
}
