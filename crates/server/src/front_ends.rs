//! The listeners of the message protocols.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use stafett_broker::Broker;
use stafett_kafka::{Endpoint, Kafka, KafkaSettings};
use stafett_net::ListenerSettings;

use crate::failure::Failure;
use crate::limits;
use crate::serve::Process;

/// Opens them; gives the address of the Kafka one.
pub(crate) async fn open(broker: &Arc<Broker>, process: &Process) -> Result<Option<SocketAddr>, Failure> {
    let settings = &process.settings;
    let connections_max = limits::connections_max(settings.connections_max, process.descriptors);
    let limits = ListenerSettings::new("kafka", connections_max);
    let (listener, address) = process
        .bind("kafka.listen", &settings.kafka.listen, limits)
        .await?;
    let kafka = {
        let mut registry = process.registry.write().unwrap_or_else(PoisonError::into_inner);
        Kafka::new(
            Arc::clone(broker),
            kafka_settings(settings, address),
            &mut registry,
        )
    };
    process.front_ends.serve(listener, kafka);
    Ok(Some(address))
}

fn kafka_settings(settings: &crate::config::Settings, address: SocketAddr) -> KafkaSettings {
    let kafka = &settings.kafka;
    KafkaSettings {
        advertised: kafka
            .advertised
            .clone()
            .map(|(host, port)| Endpoint { host, port }),
        listen: address.to_string(),
        auto_create_topics: kafka.auto_create_topics,
        log_dir: absolute(&settings.data_dir),
        request_bytes_max: u32::try_from(kafka.request_bytes_max).unwrap_or(u32::MAX),
        idle_timeout: kafka.idle_timeout_ms,
        heartbeat_hold: settings.groups.heartbeat_hold_ms,
        ..KafkaSettings::default()
    }
}

/// A folder as others are told of it.
fn absolute(folder: &Path) -> String {
    std::path::absolute(folder)
        .unwrap_or_else(|_| folder.to_owned())
        .display()
        .to_string()
}
