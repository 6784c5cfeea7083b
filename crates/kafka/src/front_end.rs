//! The front end of a listener.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_broker::{Broker, FrontEndHooks};
use stafett_net::{Connection, Protocol};

use crate::context::KafkaContext;
use crate::member_protocol::Consumers;
use crate::metrics::Metrics;
use crate::settings::KafkaSettings;
use crate::{api, configs, connection};

/// The Kafka front end of a listener.
#[derive(Debug)]
pub struct Kafka {
    pub(crate) shared: Arc<KafkaContext>,
}

/// Adds the parts of the protocol that the broker needs to know. Called before it starts.
pub fn add_hooks(hooks: &mut FrontEndHooks) {
    hooks.member_protocol = Some(Arc::new(Consumers));
    hooks.group_settings = Some(configs::group_overrides);
}

impl Kafka {
    /// Creates the front end of `broker` and registers its metrics.
    pub fn new(broker: Arc<Broker>, settings: KafkaSettings, registry: &mut Registry) -> Self {
        let metrics = Metrics::register(api::served(), registry);
        Self {
            shared: Arc::new(KafkaContext::new(broker, settings, metrics)),
        }
    }
}

impl Protocol for Kafka {
    fn connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        connection::serve(Arc::clone(&self.shared), connection, None)
    }
}
