//! The node as a member of a cluster, from the start to the end of the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use stafett_broker::Broker;
use stafett_cluster::{Key, Node, NodeFacts, Nonce, PEER, PostgresDirectory, Registry, Tenure, View, nonce};
use stafett_http::Health;
use stafett_model::Lock;
use tokio::net::TcpListener;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::audit::Stores;
use super::copies::Version;
use super::doors::Doors;
use super::link::Trust;
use super::metrics::Metrics;
use super::{peers, watch as watching};
use crate::config::{ConfigError, Settings};
use crate::failure::Failure;
use crate::limits;
use crate::node::told;

/// Listeners by rank: the address of the first is the name of a node that is given none.
const RANKS: [&str; 8] = [
    "kafka",
    "kafka-tls",
    "amqp",
    "amqp-tls",
    "http",
    "http-tls",
    "management",
    "management-tls",
];
/// Time for another node to take the cell that this one let go.
const TURN_LEASES: u32 = 3;
/// Time for which an owner serves before it lets go for another node.
const SERVING_MIN: Duration = Duration::from_secs(2);

/// Makes this process unmistakable, also after a failure of its journal.
pub(super) static NODE: LazyLock<Nonce> = LazyLock::new(nonce);

/// Activity of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    StandingBy,
    /// It owns the cell, and reads its journal.
    Opening,
    Serving,
}

/// An order to let go of the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Move {
    /// Number of the node that is to have it. `None`: any other.
    pub(crate) to: Option<u32>,
    /// Orders so far.
    pub(super) count: u64,
}

/// Parts of a node that its members of all cells share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) lease: Duration,
    name: String,
    key: Key,
    pub(super) trust: Trust,
    /// Number of cells; 0 before it is known.
    pub(super) cell_count: watch::Sender<u32>,
    /// Address for other nodes; `None` if there is none.
    pub(super) peer: Option<String>,
    pub(super) directory: Arc<PostgresDirectory>,
    /// One for each connection that may be relayed.
    relay_turns: Arc<Semaphore>,
    relays_max: usize,
}

/// The node, as a member of a cell.
#[derive(Debug)]
pub(crate) struct Member {
    /// The cell that this is about. The first one serves everything but virtual hosts of the others.
    pub(crate) cell: u32,
    /// Members of the other cells, in the member of the first one.
    pub(super) cells: OnceLock<Vec<Arc<Self>>>,
    /// The member of the first cell, in those of the others.
    first: Weak<Self>,
    pub(crate) lease: Duration,
    pub(crate) doors: Doors,
    pub(crate) metrics: Metrics,
    pub(super) shared: Shared,
    registry: Lock<Option<Registry>>,
    pub(super) view: watch::Sender<Arc<View>>,
    /// The owner, if that is another node that is listed.
    pub(super) owner: watch::Sender<Option<Arc<Node>>>,
    pub(super) phase: watch::Sender<Phase>,
    claimed_at: Lock<Option<Instant>>,
    /// Begin of its time as the owner that serves.
    serving_since: Lock<Option<Instant>>,
    /// Whether the owner answers this node.
    pub(super) reaches_owner: AtomicBool,
    /// Nothing came from the owner for too long.
    pub(super) silence: Notify,
    health: Lock<Option<Health>>,
    /// A look at the cell is worth while.
    pub(super) news: Notify,
    /// An owner whose process has ended.
    ended: Lock<Option<Nonce>>,
    pub(super) orders: watch::Sender<Move>,
    /// Epoch of the last claim.
    claimed: AtomicU64,
    /// The broker of the first cell, while this node serves it.
    pub(super) first_broker: watch::Sender<Option<Arc<Broker>>>,
    /// As the owner of the first cell: versions of the topics that other cells have.
    pub(super) had: watch::Sender<BTreeMap<u32, Version>>,
    /// The order with which this node last let go of the cell.
    pub(super) let_go: watch::Sender<Move>,
    /// The node that the cell is about to be let go for.
    pub(super) reserved: watch::Sender<Option<u32>>,
    /// Time up to which others have the first turn, after the node that lets go.
    others_turn: Lock<Option<(Instant, Nonce)>>,
    has_lost: AtomicBool,
    /// As the owner of the cell.
    pub(crate) tenure: Arc<Tenure>,
    /// Database and object store of the cell that it owns, or owned last.
    pub(super) stores: Lock<Option<Arc<Stores>>>,
    /// The database and the objects could be used once.
    was_ready: AtomicBool,
    /// The process is to end.
    pub(crate) stopping: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Member {
    /// Begins to listen for other nodes. `None` if the node is alone.
    pub(crate) async fn start(settings: &Settings, descriptors: u64) -> Result<Option<Arc<Self>>, Failure> {
        let cluster = &settings.cluster;
        let Some(database) = &cluster.database else {
            return Ok(None);
        };
        let lease = cluster.lease_ms;
        let ca = cluster.database_ca.as_deref();
        let cells = u32::try_from(cluster.cells).unwrap_or(u32::MAX);
        let directory = PostgresDirectory::new(database.as_str(), ca, cells, lease);
        let directory = directory.context("cluster.database")?;
        let directory = directory.with_spread_groups(settings.kafka.spread_groups.clone());
        let listener = match &cluster.listen {
            Some(address) => Some(
                TcpListener::bind(address)
                    .await
                    .with_context(|| format!("cluster.listen: {address} cannot be listened on"))?,
            ),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.context("the listener for other nodes has no address")?;
        if let Some(address) = address.filter(|address| !address.ip().to_canonical().is_loopback())
            && cluster.secret.is_none()
        {
            let address = address.to_string();
            return Err(ConfigError::NoClusterSecret { address }.into());
        }
        let trust = Trust::new(cluster.secret.as_ref()).context("cluster.secret")?;
        let relays_max = limits::relays_max(cluster.relays_max, descriptors);
        let member = Arc::new(Self::new(
            Shared {
                lease,
                name: cluster.name.clone(),
                key: Key::random(),
                trust,
                cell_count: watch::Sender::default(),
                peer: address.map(|address| told(cluster.advertised.as_ref(), address)),
                directory: Arc::new(directory),
                relay_turns: Arc::new(Semaphore::new(relays_max)),
                relays_max,
            },
            0,
            Weak::new(),
        ));
        if let Some(listener) = listener {
            member.tasks.spawn(peers::run(listener, Arc::clone(&member)));
        }
        member.tasks.spawn(watching::run(Arc::clone(&member)));
        Ok(Some(member))
    }

    pub(super) fn new(shared: Shared, cell: u32, first: Weak<Self>) -> Self {
        Self {
            cell,
            cells: OnceLock::new(),
            first,
            lease: shared.lease,
            shared,
            doors: Doors::new(),
            metrics: Metrics::new(),
            registry: Lock::default(),
            view: watch::Sender::default(),
            owner: watch::Sender::default(),
            phase: watch::Sender::new(Phase::StandingBy),
            claimed_at: Lock::default(),
            serving_since: Lock::default(),
            reaches_owner: AtomicBool::new(false),
            silence: Notify::new(),
            health: Lock::default(),
            news: Notify::new(),
            ended: Lock::default(),
            orders: watch::Sender::default(),
            claimed: AtomicU64::new(0),
            first_broker: watch::Sender::default(),
            had: watch::Sender::default(),
            let_go: watch::Sender::default(),
            reserved: watch::Sender::default(),
            others_turn: Lock::default(),
            has_lost: AtomicBool::new(false),
            tenure: Arc::default(),
            stores: Lock::default(),
            was_ready: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Has the node listed with the addresses of its listeners, unless it is. `health` is that of the
    /// process's parts from now on.
    pub(crate) fn join(
        self: &Arc<Self>,
        listeners: Vec<(&'static str, String)>,
        health: Health,
    ) -> anyhow::Result<()> {
        health.set_relays(self.reaches_owner.load(Ordering::Acquire));
        *self.health.lock() = Some(health);
        let mut registry = self.registry.lock();
        if registry.is_some() {
            return Ok(());
        }
        let rank = |name: &str| RANKS.iter().position(|ranked| *ranked == name);
        let mut addresses: Vec<_> = listeners
            .into_iter()
            .filter(|(name, _)| rank(name).is_some())
            .collect();
        addresses.sort_by_key(|(name, _)| rank(name));
        let addresses = addresses
            .into_iter()
            .map(|(name, address)| (name.to_owned(), address));
        let peer = self
            .shared
            .peer
            .iter()
            .map(|address| (PEER.to_owned(), address.clone()));
        let facts = NodeFacts {
            name: self.shared.name.clone(),
            incarnation: *NODE,
            key: self.shared.key,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: addresses.chain(peer).collect(),
        };
        let directory = Arc::<PostgresDirectory>::clone(&self.shared.directory);
        // The thread of the registry ends before the last other reference goes, or with the process.
        let member = Arc::downgrade(self);
        let joined = Registry::join(directory, facts, self.lease, move |view| {
            if let Some(member) = member.upgrade() {
                member.on_view(view);
            }
        });
        *registry = Some(joined.context("this node cannot be listed")?);
        Ok(())
    }

    pub(super) fn on_view(&self, view: View) {
        for member in self.cells.get().into_iter().flatten() {
            member.on_view(view.of_cell(member.cell));
        }
        let owner = view.owner().filter(|node| node.number != view.own);
        let owner = owner.cloned().map(Arc::new);
        let living = view.nodes.iter().filter(|node| node.is_alive).count();
        self.metrics.nodes.set(i64::try_from(living).unwrap_or(i64::MAX));
        self.metrics
            .epoch
            .set(i64::try_from(view.epoch).unwrap_or(i64::MAX));
        if let Some(owner) = &owner {
            let mut turn = self.others_turn.lock();
            *turn = turn.filter(|(_, former)| *former == owner.facts.incarnation);
        }
        // The view comes before the owner: a connection to the owner says this node's number. Without it, the
        // owner would take the node that a move names for another one, and have it wait.
        self.view.send_replace(Arc::new(view));
        self.owner.send_if_modified(|before| {
            let facts = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.facts.clone());
            let is_new = facts(before) != facts(&owner);
            if is_new {
                *before = owner;
            }
            is_new
        });
    }

    /// Returns the cluster as it was seen last.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Waits until this node is listed.
    pub(crate) async fn joined(&self) -> Arc<View> {
        let mut views = self.view.subscribe();
        match views.wait_for(|view| view.this().is_some()).await {
            Ok(view) => Arc::clone(&view),
            // This holds the sender.
            Err(_) => self.view(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.shared.key
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Notes that this node begins to wait for the cell. The end of its last lease counts no longer.
    pub(super) fn on_waiting(&self) {
        self.has_lost.store(false, Ordering::Release);
    }

    /// Notes that the database and the objects can be used.
    pub(super) fn on_ready(&self) {
        self.was_ready.store(true, Ordering::Release);
    }

    /// Returns true if they could be used once in this process.
    pub(super) fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Notes a claim.
    pub(super) fn on_claimed(&self, epoch: u64) {
        self.on_ready();
        self.claimed.store(epoch, Ordering::Release);
        *self.claimed_at.lock() = Some(Instant::now());
        self.metrics.claims.inc();
        self.phase.send_replace(Phase::Opening);
        // Others hear of it with their next look.
        self.look();
    }

    /// Returns the epoch of the last claim.
    pub(crate) fn epoch(&self) -> u64 {
        self.claimed.load(Ordering::Acquire)
    }

    /// Lists further listeners of this node.
    pub(crate) fn list(&self, listeners: Vec<(&'static str, String)>) {
        if let Some(registry) = &*self.registry.lock() {
            registry.add(
                listeners
                    .into_iter()
                    .map(|(name, address)| (name.to_owned(), address)),
            );
        }
    }

    /// Notes that listeners serve.
    pub(crate) fn on_serving(&self) {
        let claimed_at = self.claimed_at.lock().take();
        if let Some(claimed_at) = claimed_at {
            self.metrics.opening.observe(claimed_at.elapsed().as_secs_f64());
        }
        self.metrics.is_owner.set(1);
        *self.serving_since.lock() = Some(Instant::now());
        self.phase.send_replace(Phase::Serving);
    }

    /// Notes that the lease was lost, or could not be used.
    pub(super) fn on_lost(&self) {
        self.has_lost.store(true, Ordering::Release);
        self.metrics.losses.inc();
    }

    /// Returns true if the lease of the last claim was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Notes that this node does not serve any more.
    pub(crate) fn stand_by(&self) {
        self.metrics.is_owner.set(0);
        self.first_broker.send_replace(None);
        *self.serving_since.lock() = None;
        self.phase.send_replace(Phase::StandingBy);
    }

    /// Waits until this node has served for a moment, where another one is to take its place: clients get
    /// answers between owners that end one after the other, so that their pauses do not add up.
    pub(crate) async fn serve_out(&self) {
        let since = *self.serving_since.lock();
        if let Some(since) = since.filter(|_| self.view().others().next().is_some()) {
            sleep(SERVING_MIN.saturating_sub(since.elapsed())).await;
        }
    }

    /// Notes that the cell is free, and tells the nodes that wait. With an order, they have the first turn.
    pub(crate) fn on_released(&self, order: Option<Move>) {
        if order.is_some() {
            self.give_way(*NODE);
        }
        self.reserved.send_replace(None);
        let to = order.and_then(|order| order.to);
        self.let_go.send_modify(|before| {
            before.to = to;
            before.count += 1;
        });
    }

    /// Tells the nodes that wait for which of them the cell is about to be let go.
    pub(crate) fn reserve(&self, order: Move) {
        self.reserved.send_replace(order.to);
    }

    /// Leaves the first turn to others, once a node lets go of the cell.
    pub(super) fn give_way(&self, former: Nonce) {
        *self.others_turn.lock() = Some((Instant::now() + self.lease * TURN_LEASES, former));
    }

    /// Notes that the cell is free for this node, too.
    pub(super) fn on_free(&self) {
        *self.others_turn.lock() = None;
        self.news.notify_one();
    }

    /// Returns true if this node is not to claim the cell yet.
    pub(super) fn gives_way(&self) -> bool {
        let turn = *self.others_turn.lock();
        turn.is_some_and(|(until, _)| Instant::now() < until)
    }

    /// Notes whether the owner answers.
    pub(super) fn set_reaches_owner(&self, reaches: bool) {
        self.reaches_owner.store(reaches, Ordering::Release);
        if let Some(health) = &*self.health.lock() {
            health.set_relays(reaches);
        }
    }

    /// Notes that the process of an owner has ended.
    pub(super) fn on_ended(&self, owner: Nonce) {
        *self.ended.lock() = Some(owner);
        self.on_free();
    }

    /// Notes that nothing comes from the owner. Relayed connections end: their clients send into the void.
    pub(super) fn on_silence(&self) {
        self.silence.notify_waiters();
    }

    pub(super) fn take_ended(&self) -> Option<Nonce> {
        self.ended.lock().take()
    }

    /// Returns the number of connections that may be relayed.
    pub(super) fn relays_max(&self) -> usize {
        self.shared.relays_max
    }

    /// Takes a place among the relayed connections; `None` if there are too many, or its listener has none.
    pub(super) fn relay_turn(&self, has_own: bool) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.shared.relay_turns);
        let turn = turn.try_acquire_owned().ok().filter(|_| has_own);
        if turn.is_none() {
            self.metrics.refused_relays.inc();
        }
        turn
    }

    /// Has the list of nodes read again.
    pub(super) fn look(&self) {
        if let Some(first) = self.first.upgrade() {
            return first.look();
        }
        if let Some(registry) = &*self.registry.lock() {
            registry.look();
        }
    }

    /// Leaves the list of nodes.
    pub(crate) async fn leave(&self) {
        // Nodes that watch this one hear of a cell that is free.
        sleep(Duration::from_millis(20)).await;
        let registry = self.registry.lock().take();
        let left = spawn_blocking(move || registry.map(Registry::leave));
        if (timeout(self.lease, left).await).is_err() {
            tracing::warn!("the database does not answer: this node stays in the list of nodes for a while");
        }
    }
}
