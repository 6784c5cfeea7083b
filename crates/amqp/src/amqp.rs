//! State shared by all connections.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_amqp_wire::Table;
use stafett_broker::{Broker, FrontEndHooks};
use stafett_messaging::exchanges::NamespaceError;
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;
use stafett_net::{Connection, Protocol};

use crate::arguments::QueueType;
use crate::error::not_stored;
use crate::exception::Exception;
use crate::facts::KeptProperties;
use crate::metrics::Metrics;
use crate::session::replies::Addresses;
use crate::settings::AmqpSettings;
use crate::{connection, exchange_kinds};

/// The front end, served by a listener.
#[derive(Debug)]
pub struct Amqp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub broker: Arc<Broker>,
    pub settings: AmqpSettings,
    pub metrics: Metrics,
    pub replies: Addresses,
}

/// Adds the parts of the protocol that the broker needs to know. Called before it starts.
pub fn add_hooks(hooks: &mut FrontEndHooks) {
    hooks.message_attributes.push(Arc::new(KeptProperties));
}

impl Amqp {
    /// Creates the front end of `broker` and registers its metrics in `registry`.
    pub fn new(broker: Arc<Broker>, settings: AmqpSettings, registry: &mut Registry) -> Self {
        let metrics = Metrics::register(registry);
        exchange_kinds::predeclare(&broker, &Namespace::default());
        Self {
            shared: Arc::new(Shared {
                broker,
                settings,
                metrics,
                replies: Addresses::default(),
            }),
        }
    }
}

impl Protocol for Amqp {
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        connection::serve(Arc::clone(&self.shared), connection)
    }
}

impl Shared {
    /// Returns the type with which a queue was declared.
    pub(crate) fn queue_type(queue: &Queue) -> QueueType {
        QueueType::of(&Table::decode(queue.arguments.clone()).unwrap_or_default())
    }

    /// Opens a virtual host, which is created if it does not exist and that is allowed. Also predeclares its
    /// exchanges.
    pub(crate) fn open_virtual_host(&self, name: &str) -> Result<(), Exception> {
        let namespace = Namespace::new(name);
        let exchanges = self.broker.messaging().exchanges();
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
                | NamespaceError::BadName),
            ) => {
                tracing::debug!(%error, name, "no virtual host");
                Err(not_found())
            }
        }
    }
}
