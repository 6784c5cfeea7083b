//! The listeners of the message protocols.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use stafett_amqp::{Amqp, AmqpSettings};
use stafett_broker::Broker;
use stafett_kafka::{Kafka, KafkaSettings};
use stafett_net::Listener;

use crate::brokers::{self, Brokers};
use crate::cluster::OtherCells;
use crate::config::tls::Edge;
use crate::endpoints::{Endpoint, Opened, Place};
use crate::failure::Failure;
use crate::limits;
use crate::serve::Process;

/// The listeners' sockets.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    kafka: Opened,
    amqp: Opened,
}

impl Bound {
    /// Opens the sockets, unless an earlier run did.
    pub(crate) async fn open(process: &Process) -> Result<Self, Failure> {
        Ok(Self {
            kafka: process.open(kafka_endpoint(process)).await?,
            amqp: process.open(amqp_endpoint(process)).await?,
        })
    }

    /// Iterates over all listeners.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.kafka.listeners.iter().chain(&self.amqp.listeners)
    }
}

/// Serves the protocols; returns the address of Kafka's, without TLS.
pub(crate) fn open(broker: &Arc<Broker>, process: &Process, bound: Bound) -> Option<SocketAddr> {
    let Bound { kafka: opened, amqp } = bound;
    let plain = opened.plain;
    let kafka = {
        let mut registry = process.registry();
        let settings = kafka_settings(process, &opened);
        Kafka::new(Arc::clone(broker), settings, &mut registry)
    };
    process.front_ends.serve(opened.listeners, kafka);
    open_amqp(broker, process, amqp);
    plain
}

fn open_amqp(broker: &Arc<Broker>, process: &Process, opened: Opened) {
    let settings = &process.settings;
    let amqp = {
        let mut registry = process.registry();
        Amqp::new(Arc::clone(broker), amqp_settings(&settings.amqp), &mut registry)
    };
    amqp.open_management(&process.management);
    if let Some(member) = process.member.as_ref().filter(|member| member.cell_count() > 1) {
        amqp.set_homes(Arc::new(OtherCells::new(member, broker)));
    }
    process.front_ends.serve(opened.listeners, amqp);
}

fn kafka_endpoint(process: &Process) -> Endpoint<'_> {
    let settings = &process.settings;
    Endpoint {
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
    }
}

fn amqp_endpoint(process: &Process) -> Endpoint<'_> {
    let settings = &process.settings;
    Endpoint {
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
    }
}

pub(crate) fn amqp_settings(amqp: &crate::config::Amqp) -> AmqpSettings {
    AmqpSettings {
        frame_bytes_max: u32::try_from(amqp.frame_bytes_max).unwrap_or(u32::MAX),
        channels_max: u16::try_from(amqp.channels_max).unwrap_or(u16::MAX),
        heartbeat: amqp.heartbeat_ms,
        message_bytes_max: amqp.message_bytes_max,
        create_virtual_hosts: amqp.create_virtual_hosts,
        ..AmqpSettings::default()
    }
}

fn kafka_settings(process: &Process, opened: &Opened) -> KafkaSettings {
    let settings = &process.settings;
    let kafka = &settings.kafka;
    let endpoint = |(host, port)| stafett_kafka::Endpoint { host, port };
    let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    let usual = KafkaSettings {
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
    };
    let Some(member) = &process.member else {
        return usual;
    };
    // Clients are told the same by all nodes.
    let this = brokers::this(&member.view());
    KafkaSettings {
        broker_id: this.id,
        advertised: this.plain.or(usual.advertised),
        advertised_tls: this.tls.or(usual.advertised_tls),
        brokers: Some(Arc::new(Brokers::new(member))),
        ..usual
    }
}

/// Returns the absolute path of a folder, as reported to clients.
fn absolute(folder: &Path) -> String {
    std::path::absolute(folder)
        .unwrap_or_else(|_| folder.to_owned())
        .display()
        .to_string()
}
