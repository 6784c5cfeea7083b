//! `exchange.declare`, `delete`, `bind`, `unbind`.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_amqp_wire::methods::{Exchange, exchange};
use stafett_amqp_wire::{ReplyCode, Table};
use stafett_messaging::exchanges::{BindError, DeclareError, DeleteError, UnbindError};
use stafett_messaging::{Destination, NewBinding, Unbind};
use stafett_store::Stored;

use super::dispatch::not_for_servers;
use super::held::Flow;
use super::pending_changes::ChangeReply;
use super::{MethodError, Session, one_line};
use crate::exception::Exception;
use crate::operation::record;
use crate::{arguments, error, exchange_kinds};

impl Session {
    pub(super) fn on_exchange(&mut self, number: u16, method: &Exchange) -> Result<Flow, MethodError> {
        self.flush_published()?;
        match method {
            Exchange::Declare(method) => self.on_exchange_declare(number, method)?,
            Exchange::Delete(method) => self.on_exchange_delete(number, method)?,
            Exchange::Bind(method) => {
                let stored = self.bind(&BindingName {
                    source: one_line(&method.source),
                    destination: exchange(&method.destination),
                    routing_key: &method.routing_key,
                    arguments: &method.arguments,
                })?;
                self.answer_when_stored(number, Some(stored), method.no_wait, ChangeReply::ExchangeBound);
            }
            Exchange::Unbind(method) => {
                let stored = self.unbind(&BindingName {
                    source: one_line(&method.source),
                    destination: exchange(&method.destination),
                    routing_key: &method.routing_key,
                    arguments: &method.arguments,
                })?;
                self.answer_when_stored(number, stored, method.no_wait, ChangeReply::ExchangeUnbound);
            }
            Exchange::DeclareOk(_) | Exchange::DeleteOk(_) | Exchange::BindOk(_) | Exchange::UnbindOk(_) => {
                return Err(not_for_servers());
            }
        }
        Ok(Flow::Continue)
    }

    fn on_exchange_declare(&mut self, number: u16, method: &exchange::Declare) -> Result<(), MethodError> {
        let name = one_line(&method.exchange);
        let vhost = &self.namespace;
        let existing = self.context.exchanges().get(vhost, &name);
        if method.passive {
            if name.is_empty() {
                return Err(on_default_exchange().into());
            }
            if existing.is_none() {
                return Err(self.no_exchange(&name).into());
            }
            if !method.no_wait {
                self.out.send(number, exchange::DeclareOk {});
            }
            return Ok(());
        }
        check_name(&name, "exchange", || existing.is_some())?;
        let what = error::exchange_in(&name, vhost);
        let mut new = exchange_kinds::new_exchange(method, &what)?;
        if let Some(existing) = &existing {
            exchange_kinds::adopt_arguments(&mut new, &existing.is);
        }
        let declared = self.context.exchanges().declare(vhost, &name, new);
        let (_, stored) = declared.map_err(|error| refused_declaration(&error, method, &what))?;
        if existing.is_none() && method.durable {
            record(&self.caller, "exchange.made", &name, vhost);
        }
        self.answer_when_stored(
            number,
            Some(stored),
            method.no_wait,
            ChangeReply::ExchangeDeclared,
        );
        Ok(())
    }

    fn on_exchange_delete(&mut self, number: u16, method: &exchange::Delete) -> Result<(), MethodError> {
        let name = one_line(&method.exchange);
        let vhost = &self.namespace;
        let what = error::exchange_in(&name, vhost);
        if name.is_empty() {
            return Err(on_default_exchange().into());
        }
        if self.is_own_exchange(&name) {
            return Err(Exception::refused(format!("deletion of system {what} not allowed")).into());
        }
        let stored = match self.context.exchanges().delete(vhost, &name, method.if_unused) {
            Ok(stored) => {
                record(&self.caller, "exchange.deleted", &name, vhost);
                Some(stored)
            }
            // Deleting a missing exchange is no error (RabbitMQ since 3.2).
            Err(DeleteError::NoSuchExchange) => None,
            Err(DeleteError::InUse) => return Err(Exception::precondition(format!("{what} in use")).into()),
            Err(DeleteError::IsDefault) => return Err(on_default_exchange().into()),
            Err(DeleteError::NoSuchNamespace) => return Err(error::no_namespace(vhost).into()),
            Err(DeleteError::NotStored(not_stored)) => {
                return Err(error::not_stored(&not_stored, &what).into());
            }
        };
        self.answer_when_stored(number, stored, method.no_wait, ChangeReply::ExchangeDeleted);
        Ok(())
    }

    /// Adds a binding to a queue or an exchange. It is in force when this returns.
    pub(super) fn bind(&self, binding: &BindingName<'_>) -> Result<Stored, MethodError> {
        let source = self.check_binding(binding)?;
        // Of two mistakes the missing destination is told, as in RabbitMQ.
        let headers = exchange_kinds::header_match(&source.is.kind, binding.arguments);
        let headers = headers.map_err(|why| {
            if self.is_missing(&binding.destination) {
                self.no_destination(&binding.destination)
            } else {
                why
            }
        })?;
        let new = NewBinding {
            source: Arc::from(&*binding.source),
            destination: binding.destination.clone(),
            key: binding.routing_key.as_bytes().clone(),
            headers,
            arguments: arguments::canonical(binding.arguments),
        };
        match self.context.broker.messaging().bind(&self.namespace, new) {
            Ok(stored) => Ok(stored),
            Err(BindError::IsDefault) => Err(on_default_exchange().into()),
            Err(BindError::NoSuchNamespace) => Err(error::no_namespace(&self.namespace).into()),
            Err(BindError::NoSuchExchange) => Err(self.no_exchange(&binding.source).into()),
            Err(BindError::NoSuchDestination) => Err(self.no_destination(&binding.destination).into()),
            Err(
                error @ (BindError::KeyTooLong | BindError::BadPattern(_) | BindError::TooManyFilters { .. }),
            ) => Err(Exception::precondition(error.to_string()).into()),
            Err(BindError::NotStored(not_stored)) => {
                Err(error::not_stored(&not_stored, "the binding").into())
            }
        }
    }

    /// Removes a binding. Returns `None` if it does not exist, which is no error (RabbitMQ since 3.2).
    pub(super) fn unbind(&self, binding: &BindingName<'_>) -> Result<Option<Stored>, MethodError> {
        if binding.source.is_empty() {
            return Err(on_default_exchange().into());
        }
        let arguments = arguments::canonical(binding.arguments);
        let which = Unbind {
            source: &binding.source,
            destination: &binding.destination,
            key: binding.routing_key.as_bytes(),
            arguments: &arguments,
        };
        match self.context.exchanges().unbind(&self.namespace, &which) {
            Ok(stored) => Ok(Some(stored)),
            Err(UnbindError::NoSuchBinding | UnbindError::NoSuchExchange) => Ok(None),
            Err(UnbindError::NoSuchNamespace) => Err(error::no_namespace(&self.namespace).into()),
            Err(UnbindError::NotStored(not_stored)) => {
                Err(error::not_stored(&not_stored, "the change").into())
            }
        }
    }

    fn check_binding(
        &self,
        binding: &BindingName<'_>,
    ) -> Result<Arc<stafett_messaging::Exchange>, Exception> {
        let is_default = match &binding.destination {
            Destination::Exchange(name) => name.is_empty(),
            Destination::Queue(_) | Destination::Topic(_) => false,
        };
        if binding.source.is_empty() || is_default {
            return Err(on_default_exchange());
        }
        let source = self.context.exchanges().get(&self.namespace, &binding.source);
        source.ok_or_else(|| self.no_exchange(&binding.source))
    }

    fn is_missing(&self, destination: &Destination) -> bool {
        let (vhost, context) = (&self.namespace, &self.context);
        match destination {
            Destination::Queue(name) => context.queues().get(vhost, name).is_none(),
            Destination::Exchange(name) => context.exchanges().get(vhost, name).is_none(),
            Destination::Topic(name) => context.broker.topics().named(name).is_none(),
        }
    }

    fn no_exchange(&self, name: &str) -> Exception {
        Exception::not_found(format!("no exchange '{name}' in vhost '{}'", self.namespace))
    }

    fn no_destination(&self, destination: &Destination) -> Exception {
        let vhost = &self.namespace;
        let kind = match destination {
            Destination::Queue(_) => "queue",
            Destination::Exchange(_) => "exchange",
            Destination::Topic(_) => "topic",
        };
        Exception::not_found(format!("no {kind} '{}' in vhost '{vhost}'", destination.name()))
    }
}

/// A binding as methods name it.
#[derive(Debug)]
pub(super) struct BindingName<'a> {
    pub source: ByteString,
    pub destination: Destination,
    pub routing_key: &'a ByteString,
    pub arguments: &'a Table,
}

fn exchange(name: &ByteString) -> Destination {
    Destination::Exchange(Arc::from(&*one_line(name)))
}

fn on_default_exchange() -> Exception {
    Exception::refused("operation not permitted on the default exchange")
}

/// Refuses new names that begin with `amq.`.
pub(super) fn check_name(name: &str, kind: &str, exists: impl FnOnce() -> bool) -> Result<(), Exception> {
    if name.is_empty() && kind == "exchange" {
        return Err(Exception::refused(
            "operation not permitted on the default exchange",
        ));
    }
    if name.starts_with("amq.") && !exists() {
        return Err(Exception::refused(format!(
            "{kind} name '{name}' contains reserved prefix 'amq.*'"
        )));
    }
    Ok(())
}

fn refused_declaration(error: &DeclareError, method: &exchange::Declare, what: &str) -> Exception {
    match error {
        DeclareError::NoSuchNamespace | DeclareError::NameTooLong => {
            Exception::precondition(error.to_string())
        }
        DeclareError::Differs { exchange, difference } => {
            let (argument, received, current) = exchange_kinds::difference(method, exchange, *difference);
            Exception::new(
                ReplyCode::PreconditionFailed,
                format!(
                    "inequivalent arg '{argument}' for {what}: received {received} but current is {current}"
                ),
            )
        }
        DeclareError::NotStored(not_stored) => error::not_stored(not_stored, what),
    }
}
