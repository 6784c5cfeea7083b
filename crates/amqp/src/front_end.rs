//! The front end that a listener serves.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_broker::{Broker, FrontEndHooks};
use stafett_model::Namespace;
use stafett_net::{Connection, Protocol};

use crate::churn::Churn;
use crate::context::AmqpContext;
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
            }),
        }
    }

    /// Makes the HTTP API answer for this front end.
    pub fn open_management(&self, management: &Management) {
        management.slot.open(Arc::clone(&self.context));
    }
}

impl Protocol for Amqp {
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        connection::serve(Arc::clone(&self.context), connection)
    }
}
