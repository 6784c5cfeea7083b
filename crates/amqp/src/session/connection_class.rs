//! Methods of the connection itself, and the class `access`.

use bytes::Bytes;
use stafett_amqp_wire::methods::{Access, Connection, access, connection};
use stafett_amqp_wire::{Method, ReplyCode};

use super::dispatch::not_for_servers;
use super::held::{Flow, Held};
use super::{ConnectionEnd, MethodError, Session};
use crate::exception::Exception;

impl Session {
    pub(super) fn on_connection_method(&mut self, method: &Connection) -> Result<Flow, MethodError> {
        match method {
            Connection::Close(_) => {
                // `close-ok` promises that earlier messages are stored.
                if let Some(operation) = self.await_publishes()? {
                    return Ok(Flow::Hold(operation));
                }
                self.release();
                self.out.send(0, connection::CloseOk {});
                Err(ConnectionEnd::Closed.into())
            }
            Connection::UpdateSecret(_) => {
                // Passwords do not expire: as in RabbitMQ, any secret is accepted and none is kept.
                self.out.send(0, connection::UpdateSecretOk {});
                Ok(Flow::Continue)
            }
            Connection::CloseOk(_)
            | Connection::Start(_)
            | Connection::StartOk(_)
            | Connection::Secure(_)
            | Connection::SecureOk(_)
            | Connection::Tune(_)
            | Connection::TuneOk(_)
            | Connection::Open(_)
            | Connection::OpenOk(_)
            | Connection::Blocked(_)
            | Connection::Unblocked(_)
            | Connection::UpdateSecretOk(_) => Err(unexpected_method()),
        }
    }

    /// Executes a method while the server closes the connection: only closing methods count.
    pub(super) fn on_method_while_closing(&mut self, payload: Bytes) -> Result<(), MethodError> {
        match Method::decode(payload) {
            Ok(Method::Connection(Connection::CloseOk(_))) => Err(ConnectionEnd::Closed.into()),
            Ok(Method::Connection(Connection::Close(_))) => {
                self.out.send(0, connection::CloseOk {});
                Err(ConnectionEnd::Closed.into())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn on_access(&mut self, number: u16, method: &Access) -> Result<Flow, MethodError> {
        match method {
            Access::Request(_) => {
                self.out.send(number, access::RequestOk { ticket: 1 });
                Ok(Flow::Continue)
            }
            Access::RequestOk(_) => Err(not_for_servers()),
        }
    }

    /// Closes the connection if its virtual host was deleted, as in RabbitMQ.
    pub(crate) fn end_without_namespace(&mut self) -> Result<(), ConnectionEnd> {
        if !std::mem::take(&mut self.namespace_is_gone) {
            return Ok(());
        }
        let reason = format!("vhost '{}' is deleted", self.namespace);
        self.fail(0, Exception::new(ReplyCode::ConnectionForced, reason))
    }

    /// Closes the connection of a possibly idle client whose virtual host was deleted.
    pub(crate) fn on_namespace_closed(&mut self) -> Result<(), ConnectionEnd> {
        self.namespace_is_gone = true;
        self.end_without_namespace()
    }

    /// Closes the connection because the process stops, or because an operator wants it, for a reason.
    pub(crate) fn stop(&mut self, reason: Option<&str>) -> Result<(), ConnectionEnd> {
        if let Some(operation) = self.await_publishes()? {
            self.hold(operation, Held::Stop(reason.map(Into::into)));
            return Ok(());
        }
        let reason = reason.unwrap_or("broker forced connection closure with reason 'shutdown'");
        self.fail(0, Exception::new(ReplyCode::ConnectionForced, reason))
    }
}

/// Refuses a method that does not belong to an open connection.
pub(super) fn unexpected_method() -> MethodError {
    let text = "unexpected method in connection state running";
    Exception::new(ReplyCode::ChannelError, text).into()
}
