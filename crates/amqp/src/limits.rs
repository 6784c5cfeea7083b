//! Limits of virtual hosts and users, with RabbitMQ's refusals. Without limits, a connection and a channel
//! are counted all the same: one that is set later counts those that are there.

use stafett_access::{Limit, Limited, Tallied};
use stafett_model::Namespace;

use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::handshake::Agreed;

/// A connection or a channel that is counted for its virtual host and its user.
pub(crate) type Admitted = [Tallied; 2];

impl AmqpContext {
    /// Counts a connection, or refuses it.
    pub(crate) fn admit(&self, agreed: &Agreed) -> Result<Admitted, Exception> {
        let (user, vhost) = (&*agreed.user, &*agreed.virtual_host);
        let count = |owner| self.count(owner, Limit::Connections);
        let of_vhost = count(Limited::Namespace(vhost.into())).map_err(|max| {
            Exception::not_allowed(format!(
                "access to vhost '{vhost}' refused for user '{user}': connection limit ({max}) is reached"
            ))
        })?;
        let of_user = count(Limited::User(user.into())).map_err(|max| {
            Exception::not_allowed(format!(
                "connection refused for user '{user}': user connection limit ({max}) is reached"
            ))
        })?;
        Ok([of_vhost, of_user])
    }

    /// Counts a channel, or refuses it.
    pub(crate) fn admit_channel(&self, agreed: &Agreed) -> Result<Admitted, Exception> {
        let (user, vhost) = (&*agreed.user, &*agreed.virtual_host);
        let count = |owner| self.count(owner, Limit::Channels);
        // RabbitMQ has no such limit.
        let of_vhost = count(Limited::Namespace(vhost.into())).map_err(|max| {
            Exception::not_allowed(format!(
                "number of channels opened in vhost '{vhost}' has reached the maximum allowed limit of ({max})"
            ))
        })?;
        let of_user = count(Limited::User(user.into())).map_err(|max| {
            Exception::not_allowed(format!(
                "number of channels opened for user '{user}' has reached the maximum allowed user limit of ({max})"
            ))
        })?;
        Ok([of_vhost, of_user])
    }

    /// Refuses another queue of a virtual host that has as many as it may have.
    pub(crate) fn check_queue_limit(&self, vhost: &Namespace, name: &str) -> Result<(), Exception> {
        let of = Limited::Namespace(vhost.as_str().into());
        let Some(max) = self.broker.access().directory().limit(&of, Limit::Queues) else {
            return Ok(());
        };
        if (self.queues().count_in(vhost) as u64) < max {
            return Ok(());
        }
        let vhost = vhost.as_str();
        Err(Exception::precondition(format!(
            "cannot declare queue '{name}': queue limit in vhost '{vhost}' ({max}) is reached"
        )))
    }

    /// Counts a thing; the error is the limit.
    fn count(&self, owner: Limited, limit: Limit) -> Result<Tallied, u64> {
        self.broker.access().count(owner, limit)
    }
}
