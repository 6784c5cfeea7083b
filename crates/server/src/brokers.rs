//! The nodes of a cluster as brokers that clients of Kafka's protocol are told of.

use std::sync::Arc;

use stafett_cluster::{Node, View};
use stafett_kafka::{BrokerAddress, Endpoint};

use crate::cluster::Member;
use crate::config::kind::host_port;

/// The nodes that live.
#[derive(Debug)]
pub(crate) struct Brokers(Arc<Member>);

impl Brokers {
    pub(crate) fn new(member: &Arc<Member>) -> Self {
        Self(Arc::clone(member))
    }
}

impl stafett_kafka::Brokers for Brokers {
    fn others(&self) -> Vec<BrokerAddress> {
        self.0.view().others().map(broker).collect()
    }
}

/// Returns this node.
pub(crate) fn this(view: &View) -> BrokerAddress {
    view.this().map(broker).unwrap_or_default()
}

fn broker(node: &Node) -> BrokerAddress {
    let endpoint = |listener: &str| {
        let (host, port) = host_port(node.facts.address(listener)?).ok()?;
        Some(Endpoint { host, port })
    };
    BrokerAddress {
        id: i32::try_from(node.number).unwrap_or(i32::MAX),
        plain: endpoint("kafka"),
        tls: endpoint("kafka-tls"),
    }
}
