//! The cells of a cluster, as one node sees them: a virtual host lies in the cell of its name, and a cell
//! goes to another node where that has fewer of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stafett_amqp::{AccessVersion, Home, Homes, Reached};
use stafett_broker::{Broker, FirstCellFacts};
use stafett_cells::Ways;
use stafett_cluster::{Node, Nonce, PEER, View, Wish, surplus};
use stafett_groups::Groups;
use stafett_http::{Code, Problem, slot};
use stafett_kafka::FirstCell;
use stafett_model::Namespace;
use stafett_net::{Duplex, EVENTS, Reached as Way, ToCell};
use stafett_topics::{Cells, cell_of_name};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::member::{Member, Move, Phase};
use super::watch as watching;
use crate::front_ends::{KAFKA_PASSED, LOGS, TRANSACTIONS};

/// Time that a client waits for the owner of a cell: below the time-outs of clients' libraries.
const HOLD_MAX: Duration = Duration::from_secs(8);
/// Pause before another attempt to reach it.
const PAUSE: Duration = Duration::from_millis(100);
/// Leases for which the same nodes have to live before a cell moves.
const CALM_LEASES: u32 = 4;

/// Returns the cell of a namespace: that of its name. The default namespace is in the first cell, beside
/// stored topics and live topics. Never changes: data lies by it.
pub(crate) fn home(namespace: &str, cells: u32) -> u32 {
    if cells <= 1 || namespace.is_empty() || namespace == Namespace::DEFAULT {
        return 0;
    }
    cell_of_name(namespace, cells)
}

impl Member {
    /// Makes this node a member of the cluster's other cells, too, and returns these. Called once.
    pub(crate) fn join_cells(self: &Arc<Self>, cells: u32) -> &[Arc<Self>] {
        let of_cell = |cell| {
            let member = Self::new(self.shared.clone(), cell, Arc::downgrade(self));
            let member = Arc::new(member);
            self.tasks.spawn(watching::run(Arc::clone(&member)));
            member
        };
        let members = self.cells.get_or_init(|| (1..cells).map(of_cell).collect());
        let view = self.view();
        for member in members {
            member.on_view(view.of_cell(member.cell));
        }
        members
    }

    /// Returns this node as a member of a cell. `None` before there is one.
    pub(crate) fn of_cell(self: &Arc<Self>, cell: u32) -> Option<&Arc<Self>> {
        if cell == self.cell {
            return Some(self);
        }
        let others = self.cells.get()?;
        others.iter().find(|member| member.cell == cell)
    }

    /// Notes the number of cells, which does not change any more.
    pub(super) fn set_cell_count(&self, cells: u32) {
        self.shared.cell_count.send_replace(cells);
    }

    /// Returns the number of cells. It is known before this node serves.
    pub(crate) fn cell_count(&self) -> u32 {
        (*self.shared.cell_count.borrow()).max(1)
    }

    /// Waits until the number of cells is known, and returns it.
    pub(crate) async fn count_cells(&self) -> u32 {
        let mut counts = self.shared.cell_count.subscribe();
        let counted = counts.wait_for(|count| *count > 0).await.map(|count| *count);
        match counted {
            Ok(count) => count,
            // This holds the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns true if other nodes can bring clients to this one.
    pub(crate) fn can_be_reached(&self) -> bool {
        self.shared.peer.is_some()
    }

    /// Returns the cells, this one among them. `None` if there is no other.
    pub(crate) fn cells(&self) -> Option<Cells> {
        let (own, count) = (self.cell, self.cell_count());
        (count > 1).then_some(Cells { own, count })
    }

    /// Has a broker leave namespaces to the brokers of other cells.
    pub(crate) fn share_namespaces(&self, broker: &Broker) {
        if let Some(Cells { own, count: cells }) = self.cells() {
            let exchanges = broker.messaging().exchanges();
            exchanges.set_elsewhere(move |namespace| home(namespace.as_str(), cells) != own);
        }
    }

    /// Connects to a listener of the node that owns a cell, for a client; also returns the incarnation of
    /// that node, which may be this one. Waits for an owner where there is none.
    pub(crate) async fn reach_cell(
        &self,
        cell: u32,
        listener: &str,
        client: SocketAddr,
    ) -> Option<(Box<dyn Duplex>, Nonce)> {
        let wish = Wish::Relay {
            listener: listener.to_owned(),
            client,
            cell,
        };
        let deadline = Instant::now() + HOLD_MAX;
        let mut views = self.view.subscribe();
        loop {
            let view = views.borrow_and_update().of_cell(cell);
            if let Some(owner) = view.owner() {
                let incarnation = owner.facts.incarnation;
                let has_moved = |view: &Arc<View>| view.of_cell(cell).owner != Some(incarnation);
                let mut later = self.view.subscribe();
                let reached = tokio::select! {
                    reached = timeout_at(deadline, self.reach(owner, &wish)) => reached.ok(),
                    // An owner that is stopped does not refuse.
                    _ = later.wait_for(has_moved) => None,
                };
                match reached {
                    Some(Ok(link)) => {
                        self.metrics.passed.inc();
                        return Some((link.stream, incarnation));
                    }
                    Some(Err(why)) => {
                        tracing::trace!(owner = %owner.facts.name, cell, %why, "the owner does not take a connection");
                    }
                    None => {}
                }
            }
            tokio::select! {
                _ = views.changed() => {}
                () = sleep(PAUSE) => {}
                () = sleep_until(deadline) => {}
            }
            if deadline <= Instant::now() {
                // Nodes have something to ask for whether there is a client or not.
                if !client.ip().is_unspecified() {
                    self.metrics.unserved.inc();
                }
                return None;
            }
        }
    }

    /// As [`Self::reach_cell`], with the loss of the owner.
    pub(crate) async fn reach_owner(
        self: &Arc<Self>,
        cell: u32,
        listener: &str,
        client: SocketAddr,
    ) -> Option<ToCell> {
        let (stream, owner) = self.reach_cell(cell, listener, client).await?;
        let member = Arc::clone(self);
        let lost = Box::pin(async move {
            member.lost(cell, owner).await;
        });
        Some(ToCell { stream, lost })
    }

    /// Waits until a cell has another owner than a node, or nothing comes from that node for a lease. Returns
    /// which, in words.
    async fn lost(self: Arc<Self>, cell: u32, owner: Nonce) -> &'static str {
        let mut views = self.view.subscribe();
        let has_moved = |view: &Arc<View>| view.of_cell(cell).owner != Some(owner);
        let silence = async {
            match self.of_cell(cell) {
                Some(member) => member.silence.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = views.wait_for(has_moved) => "has moved to another node",
            () = silence => "is at a node that does not answer",
        }
    }

    /// Orders this cell away once the same nodes have lived for a while, if this one has too many cells. Does
    /// not return.
    pub(crate) async fn balance(&self) {
        let mut views = self.view.subscribe();
        let (mut nodes, mut since) = (Vec::new(), Instant::now());
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            let living = view.nodes.iter().filter(|node| node.is_alive);
            let living: Vec<_> = living.map(|node| node.facts.incarnation).collect();
            if living != nodes {
                (nodes, since) = (living, Instant::now());
            }
            let is_calm = since.elapsed() >= self.lease * CALM_LEASES && self.phase() == Phase::Serving;
            let due = surplus(&view).filter(|(cell, _)| *cell == self.cell && is_calm);
            let to = due.and_then(|(_, to)| view.nodes.iter().find(|node| node.number == to));
            if let Some(to) = to
                && !watching::answers(to, self).await
            {
                // Its process has just ended, or was stopped.
                since = Instant::now();
            } else if let Some((cell, to)) = due {
                tracing::info!(target: EVENTS, kind = "cluster.balanced", cell, to, "a node with fewer cells is to have this one");
                self.order(Some(to));
                return std::future::pending().await;
            }
            if views.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Has groups be spread over cells by all names that nodes bring, as they are seen. Does not return.
    pub(crate) async fn spread_groups(&self, groups: &Groups) {
        let mut views = self.view.subscribe();
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            groups.spread(view.spread_groups.iter().map(String::as_str));
            if views.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until groups are spread over cells.
    pub(crate) async fn are_groups_spread(&self) {
        let are_spread = |view: &Arc<View>| !view.spread_groups.is_empty();
        // This holds the sender.
        let _ = self.view.subscribe().wait_for(are_spread).await;
    }

    /// Orders this node to let go of the cell.
    fn order(&self, to: Option<u32>) {
        self.orders.send_modify(|order| {
            order.to = to;
            order.count += 1;
        });
    }

    /// Waits for the next order.
    pub(crate) async fn ordered(&self) -> Move {
        let mut orders = self.orders.subscribe();
        match orders.changed().await {
            Ok(()) => *orders.borrow(),
            // This holds the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Orders this node to let go of the cell, if it has it. Returns its number.
    pub(crate) fn move_cell(&self, to: Option<u32>) -> Result<u32, Problem> {
        let view = self.view();
        let can_own = |node: &Node| self.cell == 0 || node.facts.address(PEER).is_some();
        let is_there = |to| view.others().any(|node| node.number == to && can_own(node));
        if self.phase() != Phase::Serving {
            return Err(slot::closed());
        }
        if let Some(to) = to.filter(|to| !is_there(*to)) {
            let why = format!("the cluster has no other node {to} that lives");
            return Err(Problem::new(Code::NoSuchNode, why));
        }
        if !view.others().any(can_own) {
            let why = "the cluster has no other node that lives and can own the cell";
            return Err(Problem::new(Code::NoSuchNode, why));
        }
        self.order(to);
        Ok(view.own)
    }

    /// Orders the owner of a cell to let go of it. Returns the number of that node.
    pub(crate) async fn move_any(self: &Arc<Self>, cell: u32, to: Option<u32>) -> Result<u32, Problem> {
        if cell >= self.cell_count() {
            let why = format!("the cluster has no cell {cell}");
            return Err(Problem::new(Code::NoSuchNode, why));
        }
        let view = self.view().of_cell(cell);
        let Some(owner) = view.owner() else {
            return Err(slot::closed());
        };
        if let Some(member) = self.of_cell(cell).filter(|_| owner.number == view.own) {
            return member.move_cell(to);
        }
        if to == Some(owner.number) {
            let why = format!("node {} has the cell already", owner.number);
            return Err(Problem::new(Code::NoSuchNode, why));
        }
        let asked = self.reach(owner, &Wish::Move { cell, to }).await;
        asked.map(|_| owner.number).map_err(|_| slot::closed())
    }
}

/// The first cell, for requests of Kafka's clients at another one.
#[derive(Debug)]
pub(crate) struct TheFirst {
    pub(crate) member: Arc<Member>,
    pub(crate) facts: watch::Receiver<FirstCellFacts>,
}

impl FirstCell for TheFirst {
    fn cluster_id(&self) -> u128 {
        self.facts.borrow().cluster_id
    }

    fn leader_epoch(&self) -> i32 {
        i32::try_from(self.facts.borrow().epoch).unwrap_or(i32::MAX)
    }

    fn reach(&self, client: SocketAddr) -> Way<'_> {
        Box::pin(self.member.reach_owner(0, KAFKA_PASSED, client))
    }
}

/// The ways from a cell to all others, for transactions over them and for their logs.
#[derive(Debug)]
pub(crate) struct ToCells {
    first: Arc<Member>,
    own: Arc<Member>,
}

impl ToCells {
    /// `first`: this node as a member of the first cell; `own`: as one of this cell.
    pub(crate) fn new(first: &Arc<Member>, own: &Arc<Member>) -> Self {
        Self {
            first: Arc::clone(first),
            own: Arc::clone(own),
        }
    }

    /// Connects to a door of a cell. No client is behind it.
    fn reach_door(&self, cell: u32, door: &'static str) -> Way<'_> {
        let node = (Ipv4Addr::UNSPECIFIED, 0).into();
        Box::pin(self.first.reach_owner(cell, door, node))
    }
}

impl Ways for ToCells {
    fn reach(&self, cell: u32) -> Way<'_> {
        self.reach_door(cell, LOGS)
    }
}

impl stafett_kafka::Cells for ToCells {
    fn epoch(&self) -> i32 {
        i32::try_from(self.own.epoch()).unwrap_or(i32::MAX)
    }

    fn is_owner(&self) -> bool {
        self.own.tenure.holds()
    }

    fn epoch_of_first(&self) -> i32 {
        i32::try_from(self.first.view().of_cell(0).epoch).unwrap_or(i32::MAX)
    }

    fn reach(&self, cell: u32) -> Way<'_> {
        self.reach_door(cell, TRANSACTIONS)
    }
}

/// The owners of other cells, for connections to their virtual hosts.
#[derive(Debug)]
pub(crate) struct OtherCells {
    member: Arc<Member>,
    broker: Arc<Broker>,
}

impl OtherCells {
    pub(crate) fn new(member: &Arc<Member>, broker: &Arc<Broker>) -> Self {
        Self {
            member: Arc::clone(member),
            broker: Arc::clone(broker),
        }
    }
}

impl Homes for OtherCells {
    fn version(&self) -> AccessVersion {
        let generation = self.broker.access().directory().generation();
        (self.member.epoch(), generation)
    }

    fn reach<'a>(&'a self, virtual_host: &'a str, client: SocketAddr) -> Reached<'a> {
        let cell = home(virtual_host, self.member.cell_count());
        Box::pin(async move {
            let reached = self.member.reach_cell(cell, "amqp", client).await;
            let member = Arc::clone(&self.member);
            reached.map(|(stream, owner)| Home {
                stream,
                lost: Box::pin(member.lost(cell, owner)),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::home;

    #[test]
    fn a_namespace_has_the_same_home_for_ever() {
        for (namespace, of_two, of_four, of_sixteen) in [
            ("/", 0, 0, 0),
            ("", 0, 0, 0),
            ("a", 0, 0, 12),
            ("shop", 1, 1, 9),
            ("foobar", 0, 0, 8),
        ] {
            let homes = [2, 4, 16].map(|cells| home(namespace, cells));
            assert_eq!(homes, [of_two, of_four, of_sixteen], "{namespace}");
            assert_eq!(home(namespace, 1), 0);
        }
    }

    #[test]
    fn namespaces_are_spread_over_all_cells() {
        let mut counts = [0; 4];
        for number in 0..400 {
            counts[home(&format!("shop-{number}"), 4) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }
}
