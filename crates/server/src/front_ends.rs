//! The listeners of the message protocols.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use stafett_amqp::{Amqp, AmqpSettings};
use stafett_broker::Broker;
use stafett_kafka::{Endpoint, Kafka, KafkaSettings};
use stafett_net::ListenerSettings;

use crate::failure::Failure;
use crate::limits;
use crate::serve::Process;

/// Opens the listeners; returns the address of Kafka's.
pub(crate) async fn open(broker: &Arc<Broker>, process: &Process) -> Result<SocketAddr, Failure> {
    let kafka = open_kafka(broker, process).await?;
    open_amqp(broker, process).await?;
    Ok(kafka)
}

async fn open_kafka(broker: &Arc<Broker>, process: &Process) -> Result<SocketAddr, Failure> {
    let settings = &process.settings;
    let connections_max = limits::connections_max(settings.connections_max, process.descriptors);
    let limits = ListenerSettings {
        overload: settings.shed.overload(settings.kafka.overload),
        ..ListenerSettings::new("kafka", connections_max)
    };
    let (listener, address) = process
        .bind("kafka.listen", &settings.kafka.listen, limits)
        .await?;
    let kafka = {
        let mut registry = process.registry();
        Kafka::new(
            Arc::clone(broker),
            kafka_settings(settings, address),
            &mut registry,
        )
    };
    process.front_ends.serve(listener, kafka);
    Ok(address)
}

async fn open_amqp(broker: &Arc<Broker>, process: &Process) -> Result<(), Failure> {
    let settings = &process.settings;
    let connections_max = limits::connections_max(settings.connections_max, process.descriptors);
    let limits = ListenerSettings {
        overload: settings.shed.overload(settings.amqp.overload),
        ..ListenerSettings::new("amqp", connections_max)
    };
    let (listener, _) = process.bind("amqp.listen", &settings.amqp.listen, limits).await?;
    let amqp = {
        let mut registry = process.registry();
        Amqp::new(Arc::clone(broker), amqp_settings(&settings.amqp), &mut registry)
    };
    amqp.open_management(&process.management);
    process.front_ends.serve(listener, amqp);
    Ok(())
}

fn amqp_settings(amqp: &crate::config::Amqp) -> AmqpSettings {
    AmqpSettings {
        frame_bytes_max: u32::try_from(amqp.frame_bytes_max).unwrap_or(u32::MAX),
        channels_max: u16::try_from(amqp.channels_max).unwrap_or(u16::MAX),
        heartbeat: amqp.heartbeat_ms,
        message_bytes_max: amqp.message_bytes_max,
        create_virtual_hosts: amqp.create_virtual_hosts,
        ..AmqpSettings::default()
    }
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

/// Returns the absolute path of a folder, as reported to clients.
fn absolute(folder: &Path) -> String {
    std::path::absolute(folder)
        .unwrap_or_else(|_| folder.to_owned())
        .display()
        .to_string()
}
