//! State shared by all connections.

use std::sync::{Arc, OnceLock};

use stafett_amqp_wire::Table;
use stafett_broker::Broker;
use stafett_messaging::exchanges::{Exchanges, NamespaceError};
use stafett_messaging::queues::{Queue, Queues};
use stafett_model::Namespace;

use crate::arguments::QueueType;
use crate::churn::Churn;
use crate::connection::Ended;
use crate::error::not_stored;
use crate::exception::Exception;
use crate::exchange_kinds;
use crate::homes::Homes;
use crate::metrics::Metrics;
use crate::session::replies::Addresses;
use crate::settings::AmqpSettings;

#[derive(Debug)]
pub(crate) struct AmqpContext {
    pub broker: Arc<Broker>,
    pub settings: AmqpSettings,
    pub metrics: Metrics,
    pub replies: Addresses,
    pub churn: Churn,
    /// The way to brokers that keep other virtual hosts, in a cluster of several cells.
    pub homes: OnceLock<Arc<dyn Homes>>,
}

impl AmqpContext {
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        self.broker.messaging().queues()
    }

    pub(crate) fn exchanges(&self) -> &Exchanges {
        self.broker.messaging().exchanges()
    }

    /// Fails if another node may have taken over: frames that were not sent yet may show old state.
    pub(crate) fn check_tenure(&self) -> Result<(), Ended> {
        if self.broker.tenure().holds() {
            Ok(())
        } else {
            Err(Ended::NotOwner)
        }
    }

    /// Returns true if another broker of the cluster keeps a virtual host.
    pub(crate) fn is_elsewhere(&self, virtual_host: &str) -> bool {
        self.homes.get().is_some() && self.exchanges().is_elsewhere(&Namespace::new(virtual_host))
    }

    /// Returns the type with which a queue was declared.
    pub(crate) fn queue_type(queue: &Queue) -> QueueType {
        let declared = queue.arguments.clone().unwrap_or_default();
        QueueType::of(&Table::decode(declared).unwrap_or_default())
    }

    /// Opens a virtual host, which is created if it does not exist and that is allowed. Also predeclares its
    /// exchanges.
    pub(crate) fn open_virtual_host(&self, name: &str) -> Result<(), Exception> {
        let namespace = Namespace::new(name);
        let exchanges = self.exchanges();
        if exchanges.has_namespace(&namespace) {
            exchange_kinds::predeclare(&self.broker, &namespace);
            return Ok(());
        }
        let not_found = || Exception::not_allowed(format!("vhost {name} not found"));
        if !self.settings.create_virtual_hosts {
            return Err(not_found());
        }
        match exchanges.create_namespace(&namespace) {
            Ok((_, stored)) => {
                drop(stored);
                exchange_kinds::predeclare(&self.broker, &namespace);
                Ok(())
            }
            Err(NamespaceError::NotStored(error)) => Err(not_stored(&error, &format!("vhost '{name}'"))),
            Err(
                error @ (NamespaceError::NoSuchNamespace
                | NamespaceError::IsDefault
                | NamespaceError::Closing
                | NamespaceError::BadName
                | NamespaceError::LongDescription
                | NamespaceError::Elsewhere),
            ) => {
                tracing::debug!(%error, name, "no virtual host");
                Err(not_found())
            }
        }
    }
}
