//! Rights that each method needs, in RabbitMQ's words: to configure, write and read.
//!
//! | method | right |
//! |---|---|
//! | exchange.declare, exchange.delete; queue.declare, queue.delete | configure; none to declare passively |
//! | alternate exchange, dead-letter exchange of a declaration | read the declared thing, write to the exchange |
//! | exchange.bind, exchange.unbind; queue.bind, queue.unbind | write to the destination, read the source |
//! | basic.publish | write to the exchange; the one without a name is `amq.default` |
//! | basic.get, basic.consume, queue.purge | read the queue |
//!
//! The match in [`Session::check_rights`] names every method, so that a new one cannot be forgotten. What was
//! delivered may be settled without a right.

use bytestring::ByteString;
use stafett_access::{Action, Caller, Resource};
use stafett_amqp_wire::methods::{Basic, Exchange, Queue};
use stafett_amqp_wire::{Method, ReplyCode, Table, Value};

use super::{ConnectionEnd, MethodError, Session};
use crate::exception::{Exception, Scope};
use crate::handshake::Agreed;

/// Name of the exchange without a name, in rules and refusals.
const DEFAULT_EXCHANGE: &str = "amq.default";
/// Beginning of the names of queues that are named here.
const GENERATED_PREFIX: &str = "amq.gen-";

/// Beginning of the names of the queue of direct replies.
const REPLY_PREFIX: &str = "amq.rabbitmq.reply-to";

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
            Method::Basic(Basic::Consume(method)) if method.queue.starts_with(REPLY_PREFIX) => Ok(()),
            Method::Basic(Basic::Consume(method)) => self.check_queue(number, Action::Read, &method.queue),
            Method::Basic(Basic::Get(method)) => self.check_queue(number, Action::Read, &method.queue),
            // Checked with its content.
            Method::Basic(Basic::Publish(_)) => Ok(()),
            Method::Basic(
                Basic::Qos(_)
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
            Exchange::Delete(method) => self.check_named_exchange(Action::Delete, &method.exchange),
            Exchange::Bind(method) => {
                self.check_named_exchange(Action::Write, &method.destination)?;
                self.check_named_exchange(Action::Read, &method.source)
            }
            Exchange::Unbind(method) => {
                self.check_named_exchange(Action::Write, &method.destination)?;
                self.check_named_exchange(Action::Read, &method.source)
            }
            Exchange::DeclareOk(_) | Exchange::DeleteOk(_) | Exchange::BindOk(_) | Exchange::UnbindOk(_) => {
                Ok(())
            }
        }
    }

    fn check_queue_method(&mut self, number: u16, method: &Queue) -> Result<(), MethodError> {
        match method {
            Queue::Declare(method) if method.passive => Ok(()),
            Queue::Declare(method) => {
                let generated = ByteString::from_static(GENERATED_PREFIX);
                let queue = if method.queue.is_empty() {
                    &generated
                } else {
                    &method.queue
                };
                self.check_named_queue(Action::Create, queue)?;
                if let Some(exchange) = text(&method.arguments, "x-dead-letter-exchange") {
                    self.check_named_queue(Action::Read, queue)?;
                    self.check_named_exchange(Action::Write, &exchange)?;
                }
                Ok(())
            }
            Queue::Delete(method) => self.check_queue(number, Action::Delete, &method.queue),
            Queue::Purge(method) => self.check_queue(number, Action::Read, &method.queue),
            Queue::Bind(method) => {
                self.check_queue(number, Action::Write, &method.queue)?;
                Ok(self.check_named_exchange(Action::Read, &method.exchange)?)
            }
            Queue::Unbind(method) => {
                self.check_queue(number, Action::Write, &method.queue)?;
                Ok(self.check_named_exchange(Action::Read, &method.exchange)?)
            }
            Queue::DeclareOk(_)
            | Queue::DeleteOk(_)
            | Queue::PurgeOk(_)
            | Queue::BindOk(_)
            | Queue::UnbindOk(_) => Ok(()),
        }
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
        Ok(self.check_named_queue(action, &name)?)
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
        let right = match action {
            Action::Read => "read",
            Action::Write => "write",
            _ => "configure",
        };
        let (vhost, user) = (self.namespace.as_str(), &self.agreed.user);
        let text = format!("{right} access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'");
        Exception::refused(text).ending(Scope::Channel)
    }

    /// Closes the connection of a user that was deleted, or of `guest` once there is an administrator.
    pub(crate) fn end_without_user(&mut self) -> Result<(), ConnectionEnd> {
        if self.is_closing() || self.caller.is_valid() {
            return Ok(());
        }
        let text = format!("user '{}' is deleted", self.agreed.user);
        let exception = Exception::new(ReplyCode::ConnectionForced, text);
        self.fail(0, exception.ending(Scope::Connection))
    }
}

fn text(arguments: &Table, name: &str) -> Option<ByteString> {
    match arguments.get(name) {
        Some(Value::LongString(text)) => ByteString::try_from(text).ok(),
        _ => None,
    }
}
