//! The front end that a listener serves.

use std::sync::{Arc, OnceLock};

use prometheus_client::registry::Registry;
use stafett_broker::{Broker, FrontEndHooks};
use stafett_model::Namespace;
use stafett_net::{Connection, Protocol};
use tokio::sync::watch;

use crate::churn::Churn;
use crate::context::AmqpContext;
use crate::homes::{AccessVersion, Homes, PassedConnections};
use crate::management::Management;
use crate::message_attributes::KeptProperties;
use crate::metrics::Metrics;
use crate::session::replies::Addresses;
use crate::settings::AmqpSettings;
use crate::{connection, exchange_kinds};

/// The front end, served by a listener.
#[derive(Debug)]
pub struct Amqp {
    context: Arc<AmqpContext>,
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
            context: Arc::new(AmqpContext {
                broker,
                settings,
                metrics,
                replies: Addresses::default(),
                churn: Churn::default(),
                homes: OnceLock::new(),
            }),
        }
    }

    /// Passes connections on whose virtual host another broker of the cluster keeps
    /// ([`stafett_messaging::exchanges::Exchanges::set_elsewhere`]).
    pub fn set_homes(&self, homes: Arc<dyn Homes>) {
        let _ = self.context.homes.set(homes);
    }

    /// Returns the front end of connections that other brokers pass on. `versions` are those of the users and
    /// rights that are in force here.
    pub fn passed(&self, versions: watch::Receiver<AccessVersion>) -> PassedConnections {
        PassedConnections::new(Arc::clone(&self.context), versions)
    }

    /// Makes the HTTP API answer for this front end.
    pub fn open_management(&self, management: &Management) {
        let tenure = self.context.broker.tenure().clone();
        management.slot.open_while(Arc::clone(&self.context), tenure);
    }
}

impl Protocol for Amqp {
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        connection::serve(Arc::clone(&self.context), connection)
    }
}
