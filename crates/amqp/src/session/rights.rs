//! Rights that each method needs, in RabbitMQ's words: to configure, write and read.
//!
//! | method | right |
//! |---|---|
//! | exchange.declare, exchange.delete; queue.declare, queue.delete | configure; none to declare passively |
//! | counts in the answer to queue.declare | read the queue; otherwise they are 0 |
//! | alternate exchange, dead-letter exchange of a declaration | read the declared thing, write to the exchange |
//! | exchange.bind, exchange.unbind; queue.bind, queue.unbind | write to the destination, read the source |
//! | basic.publish | write to the exchange; the one without a name is `amq.default` |
//! | basic.get, basic.consume, queue.purge | read the queue |
//!
//! A topic permission limits the routing keys of a topic exchange to publish with (write) and to bind with
//! (read).
//!
//! A topic that was not declared as a stream over this protocol has rules of its own, and a right on a queue
//! or an exchange is none on it: a name that stands for such a topic, an argument that names one, and a
//! routing key of the exchange without a name need the right on the topic too.
//!
//! The match in [`Session::check_rights`] names every method, so that a new one cannot be forgotten. Messages
//! that were delivered may be settled without a right.

use bytestring::ByteString;
use stafett_access::{Action, Caller, KeyUse, Resource};
use stafett_amqp_wire::methods::{Basic, Exchange, Queue, exchange, queue};
use stafett_amqp_wire::{Method, ReplyCode, Table, Value};
use stafett_routing::ExchangeKind;
use stafett_store::wall_ms;

use super::exchange::check_name;
use super::queue::leads_to_topic;
use super::replies::PSEUDO_QUEUE;
use super::{ConnectionEnd, MethodError, Session};
use crate::arguments::TOPIC;
use crate::content::Incoming;
use crate::exception::{Exception, Scope};
use crate::handshake::Agreed;

/// Name of the exchange without a name, in rules and refusals.
const DEFAULT_EXCHANGE: &str = "amq.default";
/// Beginning of the names of queues that are named here.
const GENERATED_PREFIX: &str = "amq.gen-";

/// Refuses a user that may not enter its virtual host.
pub(crate) fn check_virtual_host(caller: &Caller, agreed: &Agreed) -> Result<(), Exception> {
    let vhost = &*agreed.virtual_host;
    caller
        .check(Action::Read, &Resource::namespace(vhost))
        .map_err(|_| {
            let user = &agreed.user;
            Exception::not_allowed(format!("access to vhost '{vhost}' refused for user '{user}'"))
        })
}

impl Session {
    /// Refuses a method that the user may not use.
    pub(super) fn check_rights(&mut self, number: u16, method: &Method) -> Result<(), MethodError> {
        if self.caller.is_unrestricted() {
            return Ok(());
        }
        match method {
            Method::Exchange(method) => Ok(self.check_exchange_method(method)?),
            Method::Queue(method) => self.check_queue_method(number, method),
            // Answers to requests of this connection itself.
            Method::Basic(Basic::Consume(method)) if method.queue == PSEUDO_QUEUE => Ok(()),
            Method::Basic(Basic::Consume(method)) => self.check_queue(number, Action::Read, &method.queue),
            Method::Basic(Basic::Get(method)) => self.check_queue(number, Action::Read, &method.queue),
            Method::Basic(
                // Checked with its content.
                Basic::Publish(_)
                | Basic::Qos(_)
                | Basic::Cancel(_)
                | Basic::Ack(_)
                | Basic::Nack(_)
                | Basic::Reject(_)
                | Basic::Recover(_)
                | Basic::RecoverAsync(_)
                | Basic::CancelOk(_)
                | Basic::QosOk(_)
                | Basic::ConsumeOk(_)
                | Basic::Return(_)
                | Basic::Deliver(_)
                | Basic::GetOk(_)
                | Basic::GetEmpty(_)
                | Basic::RecoverOk(_),
            )
            | Method::Channel(_)
            | Method::Confirm(_)
            | Method::Tx(_)
            | Method::Access(_)
            | Method::Connection(_) => Ok(()),
        }
    }

    fn check_exchange_method(&self, method: &Exchange) -> Result<(), Exception> {
        match method {
            Exchange::Declare(method) if method.passive => Ok(()),
            Exchange::Declare(method) => {
                self.check_named_exchange(Action::Create, &method.exchange)?;
                let Some(alternate) = text(&method.arguments, "alternate-exchange") else {
                    return Ok(());
                };
                self.check_named_exchange(Action::Read, &method.exchange)?;
                self.check_named_exchange(Action::Write, &alternate)
            }
            // The broker's own are refused to everyone, in words of their own.
            Exchange::Delete(method) if self.is_own_exchange(&method.exchange) => Ok(()),
            Exchange::Delete(method) => self.check_named_exchange(Action::Delete, &method.exchange),
            Exchange::Bind(exchange::Bind {
                destination,
                source,
                routing_key,
                ..
            })
            | Exchange::Unbind(exchange::Unbind {
                destination,
                source,
                routing_key,
                ..
            }) => {
                self.check_named_exchange(Action::Write, destination)?;
                self.check_named_exchange(Action::Read, source)?;
                self.check_topic_key(KeyUse::Bind, source, [routing_key].into_iter())
            }
            Exchange::DeclareOk(_) | Exchange::DeleteOk(_) | Exchange::BindOk(_) | Exchange::UnbindOk(_) => {
                Ok(())
            }
        }
    }

    fn check_queue_method(&mut self, number: u16, method: &Queue) -> Result<(), MethodError> {
        match method {
            Queue::Declare(method) if method.passive => {
                let name = self.queue_name(number, method.queue.clone())?;
                Ok(self.check_topic_behind(Action::Describe, &name)?)
            }
            Queue::Declare(method) => Ok(self.check_declaration(method)?),
            Queue::Delete(method) => self.check_queue(number, Action::Delete, &method.queue),
            Queue::Purge(method) => self.check_queue(number, Action::Read, &method.queue),
            Queue::Bind(queue::Bind {
                queue,
                exchange,
                arguments,
                routing_key,
                ..
            })
            | Queue::Unbind(queue::Unbind {
                queue,
                exchange,
                arguments,
                routing_key,
                ..
            }) => {
                if leads_to_topic(arguments) {
                    self.check_topic(Action::Write, queue)?;
                } else {
                    self.check_queue(number, Action::Write, queue)?;
                }
                self.check_named_exchange(Action::Read, exchange)?;
                Ok(self.check_topic_key(KeyUse::Bind, exchange, [routing_key].into_iter())?)
            }
            Queue::DeclareOk(_)
            | Queue::DeleteOk(_)
            | Queue::PurgeOk(_)
            | Queue::BindOk(_)
            | Queue::UnbindOk(_) => Ok(()),
        }
    }

    /// True for an exchange that the broker made.
    pub(super) fn is_own_exchange(&self, name: &str) -> bool {
        name.starts_with("amq.") && self.context.exchanges().get(&self.namespace, name).is_some()
    }

    fn check_declaration(&self, method: &queue::Declare) -> Result<(), Exception> {
        let exists = || {
            self.context
                .queues()
                .get(&self.namespace, &method.queue)
                .is_some()
        };
        check_name(&method.queue, "queue", exists)?;
        let generated = ByteString::from_static(GENERATED_PREFIX);
        let queue = if method.queue.is_empty() {
            &generated
        } else {
            &method.queue
        };
        self.check_named_queue(Action::Create, queue)?;
        self.check_topic_behind(Action::Create, queue)?;
        if let Some(topic) = text(&method.arguments, TOPIC) {
            let topic = self
                .topic_named(&topic)
                .map_or(topic, |known| (*known.name).into());
            self.check_topic(Action::Read, &topic)?;
        }
        let Some(exchange) = text(&method.arguments, "x-dead-letter-exchange") else {
            return Ok(());
        };
        self.check_named_queue(Action::Read, queue)?;
        self.check_named_exchange(Action::Write, &exchange)?;
        if !exchange.is_empty() {
            return Ok(());
        }
        match text(&method.arguments, "x-dead-letter-routing-key") {
            Some(key) => self.check_topic_behind(Action::Write, &key),
            // Messages keep the keys that they were published with, so each name is possible.
            None => self.check_topic(Action::Write, ""),
        }
    }

    /// Refuses a message that the exchange without a name leads to a topic that the user may not write to.
    pub(super) fn check_keys(&self, incoming: &Incoming) -> Result<(), Exception> {
        let message = &incoming.message;
        if self.caller.is_unrestricted() {
            return Ok(());
        }
        let mut keys = incoming.more_keys.iter().chain([&message.routing_key]);
        if !message.exchange.is_empty() {
            return self.check_topic_key(KeyUse::Publish, &message.exchange, keys);
        }
        keys.try_for_each(|key| self.check_topic_behind(Action::Write, key))
    }

    /// Refuses a routing key of a topic exchange that a topic permission does not permit.
    pub(super) fn check_topic_key<'k>(
        &self,
        key_use: KeyUse,
        exchange: &str,
        mut keys: impl Iterator<Item = &'k ByteString>,
    ) -> Result<(), Exception> {
        let directory = self.context.broker.access().directory();
        if !directory.has_topic_permissions() || self.caller.is_unrestricted() || exchange.is_empty() {
            return Ok(());
        }
        let known = self.context.exchanges().get(&self.namespace, exchange);
        if !known.is_some_and(|known| known.is.kind == ExchangeKind::Topic) {
            return Ok(());
        }
        let (user, vhost) = (&self.agreed.user, self.namespace.as_str());
        let refused = keys.find(|key| !directory.permits_key(user, vhost, exchange, key_use, key));
        let Some(key) = refused else { return Ok(()) };
        let right = match key_use {
            KeyUse::Publish => "write",
            KeyUse::Bind => "read",
        };
        let text = format!(
            "{right} access to topic '{key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'"
        );
        Err(Exception::refused(text).ending(Scope::Channel))
    }

    /// Refuses a message to an exchange that the user may not write to.
    pub(super) fn check_write(&self, exchange: &str) -> Result<(), Exception> {
        if self.caller.is_unrestricted() {
            return Ok(());
        }
        self.check_named_exchange(Action::Write, exchange)
    }

    /// Checks a queue; without a name, the last one that was declared.
    fn check_queue(&mut self, number: u16, action: Action, name: &ByteString) -> Result<(), MethodError> {
        let name = self.queue_name(number, name.clone())?;
        self.check_named_queue(action, &name)?;
        Ok(self.check_topic_behind(action, &name)?)
    }

    /// Checks the topic that a name of this virtual host stands for, if it has rules of its own.
    fn check_topic_behind(&self, action: Action, name: &str) -> Result<(), Exception> {
        match self
            .stream(name)
            .filter(|topic| topic.settings.declared.is_none())
        {
            Some(topic) => self.check_topic(action, &topic.name),
            None => Ok(()),
        }
    }

    fn check_topic(&self, action: Action, name: &str) -> Result<(), Exception> {
        let checked = self.caller.check(action, &Resource::topic(name));
        checked.map_err(|_| self.refused(action, "topic", name))
    }

    fn check_named_queue(&self, action: Action, name: &str) -> Result<(), Exception> {
        let resource = Resource::queue(self.namespace.as_str(), name);
        let checked = self.caller.check(action, &resource);
        checked.map_err(|_| self.refused(action, "queue", name))
    }

    fn check_named_exchange(&self, action: Action, name: &str) -> Result<(), Exception> {
        let name = if name.is_empty() { DEFAULT_EXCHANGE } else { name };
        let resource = Resource::exchange(self.namespace.as_str(), name);
        let checked = self.caller.check(action, &resource);
        checked.map_err(|_| self.refused(action, "exchange", name))
    }

    fn refused(&self, action: Action, kind: &str, name: &str) -> Exception {
        let right = if action == Action::Read || action == Action::Write {
            action.word()
        } else {
            "configure"
        };
        let (vhost, user) = (self.namespace.as_str(), &self.agreed.user);
        let text = format!("{right} access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'");
        Exception::refused(text).ending(Scope::Channel)
    }

    /// After a change of users or rules: closes the connection of a user that was deleted or may no longer
    /// enter the virtual host, and of `guest` once there is an administrator; ends consumers without the
    /// right to read. Called before anything is delivered.
    pub(crate) fn end_without_rights(&mut self) -> Result<(), ConnectionEnd> {
        let generation = self.context.broker.access().directory().generation();
        if self.rights_of == generation || self.is_closing() {
            return Ok(());
        }
        self.rights_of = generation;
        if self.caller.is_unrestricted() {
            return Ok(());
        }
        let (user, vhost) = (&self.agreed.user, self.namespace.as_str());
        let why = if !self.caller.is_valid() {
            Some(format!("user '{user}' is deleted"))
        } else if !self.caller.may(Action::Read, &Resource::namespace(vhost)) {
            Some(format!("access to vhost '{vhost}' refused for user '{user}'"))
        } else {
            None
        };
        if let Some(why) = why {
            let exception = Exception::new(ReplyCode::ConnectionForced, why);
            return self.fail(0, exception.ending(Scope::Connection));
        }
        let held = self.token_owners.iter();
        let refused = held.filter(|(_, holder)| !self.may_read(&holder.queue));
        let refused: Vec<u64> = refused.map(|(token, _)| *token).collect();
        for token in refused {
            self.on_consumer_gone(token);
        }
        Ok(())
    }

    /// Closes the connection of a user whose token has expired.
    pub(crate) fn end_expired(&mut self) -> Result<(), ConnectionEnd> {
        if !self.caller.is_expired(wall_ms()) || self.is_closing() {
            return Ok(());
        }
        let why = format!("the token of user '{}' has expired", self.agreed.user);
        let exception = Exception::new(ReplyCode::ConnectionForced, why);
        self.fail(0, exception.ending(Scope::Connection))
    }

    pub(super) fn may_see_counts(&self, queue: &str) -> bool {
        self.caller.is_unrestricted() || self.may_read(queue)
    }

    fn may_read(&self, queue: &str) -> bool {
        let resource = Resource::queue(self.namespace.as_str(), queue);
        let topic = self
            .stream(queue)
            .filter(|topic| topic.settings.declared.is_none());
        self.caller.may(Action::Read, &resource)
            && topic.is_none_or(|topic| self.caller.may(Action::Read, &Resource::topic(&topic.name)))
    }
}

fn text(arguments: &Table, name: &str) -> Option<ByteString> {
    match arguments.get(name) {
        Some(Value::LongString(text)) => ByteString::try_from(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
