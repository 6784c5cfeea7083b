//! `exchange.declare`, `delete`, `bind`, `unbind`.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_amqp_wire::methods::{Exchange, exchange};
use stafett_amqp_wire::{Method, ReplyCode, Table};
use stafett_messaging::exchanges::{BindError, DeclareError, UnbindError};
use stafett_messaging::{Destination, NewBinding, Unbind};
use stafett_store::Stored;

use super::bound::Answer;
use super::{Session, Trouble};
use crate::exception::Exception;
use crate::{arguments, error, exchange_kinds};

impl Session {
    pub(super) async fn on_exchange(&mut self, number: u16, method: Exchange) -> Result<(), Trouble> {
        match method {
            Exchange::Declare(mut method) => {
                method.exchange = super::one_line(method.exchange);
                self.on_exchange_declare(number, method).await
            }
            Exchange::Delete(mut method) => {
                method.exchange = super::one_line(method.exchange);
                self.on_exchange_delete(number, &method).await
            }
            Exchange::Bind(method) => {
                let no_wait = method.no_wait;
                let destination = Destination::Exchange(Arc::from(&*super::one_line(method.destination)));
                let binding = BindingName {
                    source: super::one_line(method.source),
                    destination,
                    routing_key: method.routing_key,
                    arguments: method.arguments,
                };
                let stored = self.bind(&binding)?;
                if !no_wait {
                    self.answer_when_stored(number, stored, Answer::ExchangeBound);
                }
                Ok(())
            }
            Exchange::Unbind(method) => {
                let no_wait = method.no_wait;
                let destination = Destination::Exchange(Arc::from(&*super::one_line(method.destination)));
                let binding = BindingName {
                    source: super::one_line(method.source),
                    destination,
                    routing_key: method.routing_key,
                    arguments: method.arguments,
                };
                self.unbind(&binding, no_wait).await?;
                if !no_wait {
                    self.out.send(number, exchange::UnbindOk {});
                }
                Ok(())
            }
            other @ (Exchange::DeclareOk(_)
            | Exchange::DeleteOk(_)
            | Exchange::BindOk(_)
            | Exchange::UnbindOk(_)) => Err(super::not_for_servers(&Method::Exchange(other))),
        }
    }

    async fn on_exchange_declare(&mut self, number: u16, method: exchange::Declare) -> Result<(), Trouble> {
        let name = method.exchange.clone();
        let vhost = &self.namespace;
        let existing = self.shared.broker.messaging().exchanges().get(vhost, &name);
        if method.passive {
            if existing.is_none() {
                return Err(Exception::not_found(format!("no exchange '{name}' in vhost '{vhost}'")).into());
            }
        } else {
            check_name(&name, "exchange", existing.is_some())?;
            let what = error::exchange_in(&name, vhost);
            let mut new = exchange_kinds::new_exchange(&method, &what)?;
            if let Some(existing) = &existing {
                exchange_kinds::adopt_arguments(&mut new, &existing.is);
            }
            let declared = self
                .shared
                .broker
                .messaging()
                .exchanges()
                .declare(vhost, &name, new);
            let (_, stored) = declared.map_err(|error| refused_declaration(&error, &method, &what))?;
            self.stored(stored, method.no_wait).await?;
        }
        if !method.no_wait {
            self.out.send(number, exchange::DeclareOk {});
        }
        Ok(())
    }

    async fn on_exchange_delete(&mut self, number: u16, method: &exchange::Delete) -> Result<(), Trouble> {
        use stafett_messaging::exchanges::DeleteError;
        let name = &method.exchange;
        let vhost = &self.namespace;
        let what = error::exchange_in(name, vhost);
        if name.is_empty() {
            return Err(Exception::refused("operation not permitted on the default exchange").into());
        }
        if name.starts_with("amq.")
            && self
                .shared
                .broker
                .messaging()
                .exchanges()
                .get(vhost, name)
                .is_some()
        {
            return Err(Exception::refused(format!("deletion of system {what} not allowed")).into());
        }
        match self
            .shared
            .broker
            .messaging()
            .exchanges()
            .delete(vhost, name, method.if_unused)
        {
            Ok(stored) => self.stored(stored, method.no_wait).await?,
            // Deleting a missing exchange is no error (RabbitMQ since 3.2).
            Err(DeleteError::NoSuchExchange) => self.gone(method.no_wait).await?,
            Err(DeleteError::InUse) => return Err(Exception::precondition(format!("{what} in use")).into()),
            Err(DeleteError::IsDefault) => {
                return Err(Exception::refused("operation not permitted on the default exchange").into());
            }
            Err(DeleteError::NoSuchNamespace) => return Err(error::no_namespace(vhost).into()),
            Err(DeleteError::NotStored(not_stored)) => {
                return Err(error::not_stored(&not_stored, &what).into());
            }
        }
        if !method.no_wait {
            self.out.send(number, exchange::DeleteOk {});
        }
        Ok(())
    }

    /// Waits until a change is durable. With `no_wait` the client expects no answer, and this returns at
    /// once.
    pub(super) async fn stored(&mut self, stored: Stored, no_wait: bool) -> Result<(), Trouble> {
        if no_wait {
            drop(stored);
            return Ok(());
        }
        stored
            .await
            .map_err(|not_stored| error::not_stored(&not_stored, "the change").into())
    }

    /// Waits until the deletion of something that is gone is durable.
    pub(super) async fn gone(&mut self, no_wait: bool) -> Result<(), Trouble> {
        if no_wait {
            return Ok(());
        }
        let stored = self.shared.broker.messaging().await_stored().await;
        stored.map_err(|not_stored| error::not_stored(&not_stored, "the change").into())
    }

    /// Adds a binding to a queue or an exchange. It is in force when this returns.
    pub(super) fn bind(&mut self, binding: &BindingName) -> Result<Stored, Trouble> {
        self.check_binding(binding)?;
        let new = NewBinding {
            source: Arc::from(&*binding.source),
            destination: binding.destination.clone(),
            key: binding.routing_key.as_bytes().clone(),
            headers: exchange_kinds::header_match(&binding.arguments)?,
            arguments: arguments::canonical(&binding.arguments),
        };
        match self.shared.broker.messaging().bind(&self.namespace, new) {
            Ok(stored) => Ok(stored),
            Err(BindError::IsDefault) => {
                Err(Exception::refused("operation not permitted on the default exchange").into())
            }
            Err(BindError::NoSuchNamespace) => Err(error::no_namespace(&self.namespace).into()),
            Err(BindError::NoSuchExchange) => Err(self.no_exchange(&binding.source).into()),
            Err(BindError::NoSuchDestination) => Err(self.no_destination(&binding.destination).into()),
            Err(error @ (BindError::KeyTooLong | BindError::BadPattern(_))) => {
                Err(Exception::precondition(error.to_string()).into())
            }
            Err(BindError::NotStored(not_stored)) => {
                Err(error::not_stored(&not_stored, "the binding").into())
            }
        }
    }

    pub(super) async fn unbind(&mut self, binding: &BindingName, no_wait: bool) -> Result<(), Trouble> {
        if binding.source.is_empty() {
            return Err(Exception::refused("operation not permitted on the default exchange").into());
        }
        let arguments = arguments::canonical(&binding.arguments);
        let which = Unbind {
            source: &binding.source,
            destination: &binding.destination,
            key: binding.routing_key.as_bytes(),
            arguments: &arguments,
        };
        match self
            .shared
            .broker
            .messaging()
            .exchanges()
            .unbind(&self.namespace, &which)
        {
            Ok(stored) => self.stored(stored, no_wait).await,
            // Removing a missing binding is no error (RabbitMQ since 3.2).
            Err(UnbindError::NoSuchBinding | UnbindError::NoSuchExchange) => self.gone(no_wait).await,
            Err(UnbindError::NoSuchNamespace) => Err(error::no_namespace(&self.namespace).into()),
            Err(UnbindError::NotStored(not_stored)) => {
                Err(error::not_stored(&not_stored, "the change").into())
            }
        }
    }

    fn check_binding(&self, binding: &BindingName) -> Result<(), Exception> {
        let is_default = match &binding.destination {
            Destination::Exchange(name) => name.is_empty(),
            Destination::Queue(_) | Destination::Topic(_) => false,
        };
        if binding.source.is_empty() || is_default {
            return Err(Exception::refused(
                "operation not permitted on the default exchange",
            ));
        }
        if self
            .shared
            .broker
            .messaging()
            .exchanges()
            .get(&self.namespace, &binding.source)
            .is_none()
        {
            return Err(self.no_exchange(&binding.source));
        }
        Ok(())
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
pub(super) struct BindingName {
    pub source: ByteString,
    pub destination: Destination,
    pub routing_key: ByteString,
    pub arguments: Table,
}

/// Refuses new names that begin with `amq.`.
pub(super) fn check_name(name: &str, kind: &str, exists: bool) -> Result<(), Exception> {
    if name.is_empty() && kind == "exchange" {
        return Err(Exception::refused(
            "operation not permitted on the default exchange",
        ));
    }
    if name.starts_with("amq.") && !exists {
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
