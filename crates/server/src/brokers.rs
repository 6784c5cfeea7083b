//! The nodes of a cluster as brokers that clients of Kafka's protocol are told of, and its cells behind the
//! first one: each is a broker of its own at each node, which brings clients to its owner. Partitions and
//! groups are led by the one at the owner: librdkafka stays with the address of a coordinator as long as its
//! id is the same. The first cell is that of its node.

use std::sync::Arc;

use stafett_cluster::{Node, View};
use stafett_kafka::{BrokerAddress, Endpoint};

use crate::cluster::Member;
use crate::config::kind::host_port;
use crate::front_ends::{CELLS_MAX, names_of_cell};

/// Ids of cells as brokers are above this, and those of nodes below.
const CELL_IDS: u32 = 1_000_000;

/// The brokers beside that of a cell.
#[derive(Debug)]
pub(crate) struct Brokers(Arc<Member>);

impl Brokers {
    pub(crate) fn new(member: &Arc<Member>) -> Self {
        Self(Arc::clone(member))
    }
}

impl stafett_kafka::Brokers for Brokers {
    fn others(&self) -> Vec<BrokerAddress> {
        let (member, view) = (&self.0, self.0.view());
        let is_other = |node: &&Node| node.is_alive && (member.cell != 0 || node.number != view.own);
        let mut brokers: Vec<_> = view.nodes.iter().filter(is_other).map(broker).collect();
        // Also where the cell is elsewhere: librdkafka hangs when a coordinator that it has vanishes.
        let nodes = view.nodes.iter().filter(|node| node.is_alive);
        let all = nodes.flat_map(|node| (1..member.cell_count()).map(move |cell| (node, cell)));
        let others = all.filter(|(node, cell)| (node.number, *cell) != (view.own, member.cell));
        brokers.extend(others.filter_map(|(node, cell)| at_node(node, cell)));
        brokers
    }

    fn leader(&self, cell: u32) -> Option<i32> {
        let view = self.0.view();
        match cell {
            0 => view.of_cell(0).owner().map(|node| broker(node).id),
            _ => of_cell(&view, cell).map(|broker| broker.id),
        }
    }
}

/// Returns the id of a cell behind the first one as a broker, at the node that owns it.
pub(crate) fn id_of_cell(cell: u32, node: u32) -> i32 {
    let id = node
        .saturating_mul(CELLS_MAX.into())
        .saturating_add(CELL_IDS + cell);
    i32::try_from(id).unwrap_or(i32::MAX)
}

/// Returns a cell behind the first one as the broker at its owner. `None` while it has no owner that lives,
/// or an unknown address.
fn of_cell(view: &View, cell: u32) -> Option<BrokerAddress> {
    let view = view.of_cell(cell);
    at_node(view.owner().filter(|node| node.is_alive)?, cell)
}

/// Returns a cell as the broker at a node, which brings clients to its owner. `None` if its address is not
/// known.
fn at_node(node: &Node, cell: u32) -> Option<BrokerAddress> {
    let [plain, tls] = names_of_cell(cell).map(|name| endpoint(node, name));
    let broker = BrokerAddress {
        id: id_of_cell(cell, node.number),
        plain,
        tls,
    };
    (broker.plain.is_some() || broker.tls.is_some()).then_some(broker)
}

fn endpoint(node: &Node, listener: &str) -> Option<Endpoint> {
    let (host, port) = host_port(node.facts.address(listener)?).ok()?;
    Some(Endpoint { host, port })
}

/// Returns this node.
pub(crate) fn this(view: &View) -> BrokerAddress {
    view.this().map(broker).unwrap_or_default()
}

fn broker(node: &Node) -> BrokerAddress {
    BrokerAddress {
        id: i32::try_from(node.number).unwrap_or(i32::MAX),
        plain: endpoint(node, "kafka"),
        tls: endpoint(node, "kafka-tls"),
    }
}
