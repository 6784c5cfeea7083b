//! The listeners of the message protocols.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use stafett_amqp::{Amqp, AmqpSettings};
use stafett_broker::Broker;
use stafett_kafka::{Kafka, KafkaSettings};

use crate::config::tls::Edge;
use crate::endpoints::{Endpoint, Opened, Place};
use crate::failure::Failure;
use crate::limits;
use crate::serve::Process;

/// Opens the listeners; returns the address of Kafka's, without TLS.
pub(crate) async fn open(broker: &Arc<Broker>, process: &Process) -> Result<Option<SocketAddr>, Failure> {
    let kafka = open_kafka(broker, process).await?;
    open_amqp(broker, process).await?;
    Ok(kafka)
}

async fn open_kafka(broker: &Arc<Broker>, process: &Process) -> Result<Option<SocketAddr>, Failure> {
    let settings = &process.settings;
    let endpoint = Endpoint {
        edge: Edge::Kafka,
        plain: Place {
            name: "kafka",
            key: "kafka.listen",
            address: settings.kafka.listen.as_deref(),
        },
        tls: Place {
            name: "kafka-tls",
            key: "kafka.tls_listen",
            address: settings.kafka.tls_listen.as_deref(),
        },
        takes_both: settings.kafka.listen_takes_tls,
        connections_max: limits::connections_max(settings.connections_max, process.descriptors),
        overload: settings.shed.overload(settings.kafka.overload),
    };
    let opened = process.open(endpoint).await?;
    let kafka = {
        let mut registry = process.registry();
        Kafka::new(
            Arc::clone(broker),
            kafka_settings(settings, &opened),
            &mut registry,
        )
    };
    process.front_ends.serve(opened.listeners, kafka);
    Ok(opened.plain)
}

async fn open_amqp(broker: &Arc<Broker>, process: &Process) -> Result<(), Failure> {
    let settings = &process.settings;
    let endpoint = Endpoint {
        edge: Edge::Amqp,
        plain: Place {
            name: "amqp",
            key: "amqp.listen",
            address: settings.amqp.listen.as_deref(),
        },
        tls: Place {
            name: "amqp-tls",
            key: "amqp.tls_listen",
            address: settings.amqp.tls_listen.as_deref(),
        },
        takes_both: settings.amqp.listen_takes_tls,
        connections_max: limits::connections_max(settings.connections_max, process.descriptors),
        overload: settings.shed.overload(settings.amqp.overload),
    };
    let opened = process.open(endpoint).await?;
    let amqp = {
        let mut registry = process.registry();
        Amqp::new(Arc::clone(broker), amqp_settings(&settings.amqp), &mut registry)
    };
    amqp.open_management(&process.management);
    process.front_ends.serve(opened.listeners, amqp);
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

fn kafka_settings(settings: &crate::config::Settings, opened: &Opened) -> KafkaSettings {
    let kafka = &settings.kafka;
    let endpoint = |(host, port)| stafett_kafka::Endpoint { host, port };
    let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    KafkaSettings {
        advertised: kafka.advertised.clone().map(endpoint),
        advertised_tls: kafka.advertised_tls(opened.tls).map(endpoint),
        listen: shown(opened.plain),
        listen_tls: shown(opened.tls),
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
