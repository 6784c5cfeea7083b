//! The listeners of the message protocols.

use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use stafett_amqp::{Amqp, AmqpSettings};
use stafett_broker::Broker;
use stafett_cells::LogsDoor;
use stafett_kafka::{Kafka, KafkaSettings, TransactionDoor, mark_cell};
use stafett_model::Tenure;
use stafett_net::{Listener, Protocol};
use tokio::task::JoinSet;

use crate::brokers::{self, Brokers};
use crate::cluster::{OtherCells, TheFirst, ToCells};
use crate::config::kind::host_port;
use crate::config::tls::Edge;
use crate::endpoints::{Endpoint, Opened, Place};
use crate::failure::Failure;
use crate::limits;
use crate::serve::Process;

/// Name of the door for requests that other cells pass on.
pub(crate) const KAFKA_PASSED: &str = "kafka-passed";
/// Name of the door for messages of other cells about transactions.
pub(crate) const TRANSACTIONS: &str = "transactions";
/// Name of the door for other cells' questions about logs.
pub(crate) const LOGS: &str = "logs";
/// Setting of the ports of other cells than the first.
const CELLS_PORT: &str = "kafka.cells_port";
/// Largest number of cells.
pub(crate) const CELLS_MAX: u16 = 16;

/// Names of the listeners of all cells for Kafka's clients, without TLS and with it.
static CELL_NAMES: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    let names = |cell| [format!("kafka-cell-{cell}"), format!("kafka-tls-cell-{cell}")];
    (0..CELLS_MAX).map(names).collect()
});

/// Returns the names of a cell's listeners for Kafka's clients.
pub(crate) fn names_of_cell(cell: u32) -> [&'static str; 2] {
    if cell == 0 {
        return ["kafka", "kafka-tls"];
    }
    let names = usize::try_from(cell).ok().and_then(|cell| CELL_NAMES.get(cell));
    names.map_or(["", ""], |names| names.each_ref().map(String::as_str))
}

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

    /// Opens the sockets of a cell behind the first one, unless an earlier run did.
    pub(crate) async fn open_cell(process: &Process, cell: u32) -> Result<Self, Failure> {
        let kafka = &process.settings.kafka;
        let number = u16::try_from(cell).unwrap_or(u16::MAX);
        let plain = kafka.of_cell(kafka.listen.as_deref(), number);
        let tls = kafka.of_cell(kafka.tls_listen.as_deref(), number.saturating_add(CELLS_MAX));
        let usual = kafka_endpoint(process);
        let [name, name_tls] = names_of_cell(cell);
        let endpoint = Endpoint {
            plain: Place {
                name,
                key: CELLS_PORT,
                address: plain.as_deref(),
            },
            tls: Place {
                name: name_tls,
                key: CELLS_PORT,
                address: tls.as_deref(),
            },
            ..usual
        };
        Ok(Self {
            kafka: process.open(endpoint).await?,
            amqp: Opened::default(),
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
    let settings = kafka_settings(process, &opened);
    let kafka = Kafka::new(Arc::clone(broker), settings, &mut process.registry());
    let passed = kafka.passed();
    process.front_ends.serve(opened.listeners, kafka);
    if process
        .member
        .as_ref()
        .is_some_and(|member| member.cell_count() > 1)
    {
        open_door(process, KAFKA_PASSED, passed);
        if let Some(member) = &process.member {
            let cells = Arc::new(ToCells::new(member, member));
            open_door(process, TRANSACTIONS, TransactionDoor::new(broker, cells));
            open_door(process, LOGS, LogsDoor::new(broker.catalog(), process.tenure()));
        }
    }
    open_amqp(broker, process, amqp);
    plain
}

/// Serves a protocol to other nodes. Without a socket, there is nothing that could fail.
fn open_door(process: &Process, name: &'static str, protocol: impl Protocol) {
    let connections_max = process.settings.connections_max;
    let _ = process.open_to_nodes(&process.front_ends, name, connections_max, protocol);
}

/// Serves Kafka's protocol for a cell behind the first one.
pub(crate) fn open_cell(
    broker: &Arc<Broker>,
    process: &Process,
    bound: Bound,
    first: TheFirst,
    cells: &Arc<ToCells>,
    cell: u32,
) {
    let opened = bound.kafka;
    let [name, name_tls] = names_of_cell(cell);
    let told = |name| {
        let listeners = process.node.addresses();
        let told = listeners.into_iter().find(|(listener, _)| *listener == name);
        let (host, port) = host_port(&told?.1).ok()?;
        Some(stafett_kafka::Endpoint { host, port })
    };
    let door = TransactionDoor::new(broker, Arc::<ToCells>::clone(cells));
    let settings = KafkaSettings {
        broker_id: brokers::id_of_cell(
            cell,
            process.member.as_ref().map_or(0, |member| member.view().own),
        ),
        advertised: told(name),
        advertised_tls: told(name_tls),
        first_cell: Some(Arc::new(first)),
        cells: Some(Arc::<ToCells>::clone(cells)),
        ..kafka_settings(process, &opened)
    };
    let kafka = Kafka::new(Arc::clone(broker), settings, &mut process.registry());
    process.front_ends.serve(opened.listeners, kafka);
    open_door(process, TRANSACTIONS, door);
    open_door(process, LOGS, LogsDoor::new(broker.catalog(), process.tenure()));
}

impl Process {
    /// The time until which no other node can own the cell.
    pub(crate) fn tenure(&self) -> Tenure {
        self.member.as_ref().map_or_else(Tenure::default, |member| {
            let tenure = Arc::clone(&member.tenure);
            Tenure::new(move || tenure.holds())
        })
    }

    /// At the first cell: brings control batches of transactions to the others. Returns if that has failed.
    pub(crate) async fn mark_cells(&self, broker: &Arc<Broker>) {
        let mut marking = JoinSet::new();
        if let Some(member) = &self.member {
            let cells = Arc::new(ToCells::new(member, member));
            for cell in 1..member.cell_count() {
                let cells = Arc::<ToCells>::clone(&cells);
                marking.spawn(mark_cell(Arc::clone(broker), cells, cell));
            }
        }
        // They end with this, and do not return otherwise.
        if marking.join_next().await.is_none() {
            pending::<()>().await;
        }
    }
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
        spread_topics: kafka.spread_topics,
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
