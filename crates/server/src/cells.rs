//! The cells of a cluster behind the first one: each has a journal, a broker, AMQP and the HTTP API of its
//! own. Connections of these come from the node that serves the first cell, which authenticates them. Kafka's
//! clients connect to a listener of the cell.
//!
//! ```text
//! standing by ── claim ──▶ opening ── users, rights and topics are here ──▶ serving
//!      ▲                                                               │
//!      └── the lease is lost, the journal fails, or the cell moves ────┘
//! ```
//!
//! Each node is a candidate for each cell. A cell that fails ends by itself: the others go on.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stafett_admin::passed;
use stafett_amqp::Amqp;
use stafett_broker::Broker;
use stafett_http::{Access, HttpServer, State};
use stafett_kafka::abort_abandoned;
use stafett_net::{EVENTS, Listener, ListenerSettings, Protocol};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::{Follower, Member, Part, TheFirst, ToCells, Version, follow};
use crate::config::Settings;
use crate::console;
use crate::core::Core;
use crate::endpoints::Sockets;
use crate::failure::Failure;
use crate::forward;
use crate::front_ends::{self, amqp_settings};
use crate::limits;
use crate::listeners::Listeners;
use crate::node::Commands;
use crate::reload::Given;
use crate::sampling;
use crate::serve::{Cause, Process};
use crate::signals::Stop;
use crate::standby::Standby;

/// Pause after a failure of a cell.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time for all cells to end.
const END_MAX: Duration = Duration::from_secs(5);
/// Time for operations to end.
const OPERATIONS_END_MAX: Duration = Duration::from_millis(500);
/// The least that a cell has of a bound that all share.
const PART_MIN: u64 = 16 << 20;

/// The cells behind the first one, as far as this process serves them.
pub(crate) struct Cells {
    stopping: CancellationToken,
    tasks: TaskTracker,
}

/// Parts of the process that every run of a cell is made with.
#[derive(Clone)]
struct Plan {
    /// The member of the first cell.
    first: Arc<Member>,
    given: Given,
    commands: Commands,
    descriptors: u64,
    stopping: CancellationToken,
}

impl Cells {
    /// Stands by for all cells, once it is known how many there are.
    pub(crate) fn start(
        member: Option<&Arc<Member>>,
        given: &Given,
        commands: &Commands,
        descriptors: u64,
    ) -> Self {
        let cells = Self {
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        if let Some(member) = member {
            let plan = Plan {
                first: Arc::clone(member),
                given: given.clone(),
                commands: commands.clone(),
                descriptors,
                stopping: cells.stopping.clone(),
            };
            cells.tasks.spawn(start_all(plan, cells.tasks.clone()));
        }
        cells
    }

    /// Lets go of all cells.
    pub(crate) async fn end(self) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(END_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("cells are still being closed: their next owners wait for the lease");
        }
    }
}

async fn start_all(mut plan: Plan, tasks: TaskTracker) {
    let stopping = plan.stopping.clone();
    let Some(count) = stopping.run_until_cancelled(plan.first.count_cells()).await else {
        return;
    };
    if count == 1 {
        return;
    }
    if !plan.first.can_be_reached() {
        tracing::warn!("without cluster.listen this node owns no cell but the first");
        return;
    }
    plan.given.settings = part_of(&plan.given.settings, count);
    let first = Arc::clone(&plan.first);
    for member in first.join_cells(count) {
        tasks.spawn(run(plan.clone(), Arc::clone(member)));
    }
}

/// Returns the settings of one of several cells, which share memory and space.
fn part_of(settings: &Settings, cells: u32) -> Settings {
    let mut settings = settings.clone();
    for bound in [
        &mut settings.cluster.cache_bytes,
        &mut settings.journal.tail_cache_bytes,
        &mut settings.request_memory_bytes,
    ] {
        *bound = (*bound / u64::from(cells)).max(PART_MIN.min(*bound));
    }
    // The log is the first cell's.
    settings.trace.dir = None;
    settings
}

/// Serves a cell whenever this node owns it, until the process ends.
async fn run(plan: Plan, member: Arc<Member>) {
    let (cell, sockets) = (member.cell, Arc::<Sockets>::default());
    while !plan.stopping.is_cancelled() {
        let Err(failure) = Box::pin(run_once(&plan, &sockets, &member)).await else {
            continue;
        };
        tracing::error!(target: EVENTS, kind = "cluster.cell_failed", cell, reason = %failure, "starting again");
        plan.stopping.run_until_cancelled(sleep(RETRY_PAUSE)).await;
    }
}

async fn run_once(plan: &Plan, sockets: &Arc<Sockets>, member: &Arc<Member>) -> Result<(), Failure> {
    let shared = (Arc::clone(sockets), Some(Arc::clone(member)));
    let process = Process::new(&plan.given, plan.commands.clone(), plan.descriptors, shared)?;
    let mut standby = process.stand_by_for_cell(member).await?;
    plan.first.list(process.node.addresses());
    let mut opening = Box::pin(Core::open(&process, Some(&plan.first)));
    let core = tokio::select! {
        core = &mut opening => core,
        () = plan.stopping.cancelled() => {
            process.end_opening(opening).await;
            standby.end().await;
            return Ok(());
        }
    };
    let core = match core {
        Ok(core) => core,
        Err(failure) => return process.not_opened(failure, standby).await.map(drop),
    };
    let cause = Box::pin(process.serve_cell(&core, plan, member, &mut standby)).await;
    process.end_cell(core, cause, member, standby).await
}

impl Process {
    /// Serves a cell until there is a reason to serve no longer.
    async fn serve_cell(
        &self,
        core: &Core,
        plan: &Plan,
        member: &Arc<Member>,
        standby: &mut Standby,
    ) -> Cause {
        let broker = core.shared();
        let parts = [Part::Access, Part::Topics, Part::Groups];
        let [access, topics, groups] = parts.map(|part| Follower::new(broker, part));
        let cells = Arc::new(ToCells::new(&plan.first, member));
        let serving = async {
            // A broker without users lets each client do everything.
            access.is_there().await;
            topics.is_there().await;
            if let Err(failure) = self.open_cell(broker, access.version.subscribe()) {
                return format!("{failure:#}");
            }
            if let Some(bound) = standby.bound.take() {
                let first = TheFirst {
                    member: Arc::clone(&plan.first),
                    facts: topics.facts.subscribe(),
                };
                front_ends::open_cell(broker, self, bound, first, &cells, member.cell);
            }
            self.health.set(State::Ready);
            member.on_serving();
            standby.hand_over();
            tracing::info!(target: EVENTS, kind = "cluster.serving", cell = member.cell, "this node serves the cell");
            pending().await
        };
        let ended = Cause::Stop(Stop {
            by: "the end of the process",
            drain: None,
        });
        tokio::select! {
            () = plan.stopping.cancelled() => ended,
            reason = core.failed() => Cause::Failed(reason),
            order = self.ordered() => Cause::Order(order),
            reason = serving => Cause::Failed(reason),
            () = follow(&plan.first, &access) => ended,
            () = follow(&plan.first, &topics) => ended,
            () = follow(&plan.first, &groups) => ended,
            () = abort_abandoned(Arc::clone(broker), Arc::<ToCells>::clone(&cells)) => ended,
            () = member.balance() => ended,
            () = sampling::run(core.broker(), &self.node) => ended,
            () = core.follow_keys() => ended,
        }
    }

    /// Takes connections that nodes bring.
    fn open_cell(&self, broker: &Arc<Broker>, versions: watch::Receiver<Version>) -> anyhow::Result<()> {
        let settings = &self.settings;
        let amqp = {
            let mut registry = self.registry();
            Amqp::new(Arc::clone(broker), amqp_settings(&settings.amqp), &mut registry)
        };
        amqp.open_management(&self.management);
        let tenure = broker.tenure().clone();
        self.admin.broker.open_while(Arc::clone(broker), tenure);
        let access = Access {
            origins: settings.http.origins.clone(),
            hosts: settings.http.hosts.clone(),
        };
        let open = stafett_http::router(self.health.clone(), Arc::clone(&self.registry));
        let cells = broker.catalog().cells();
        let kept = |router| forward::kept(router, cells.own, cells.count);
        let router = stafett_admin::guard(self.admin.broker.clone(), open)
            .merge(stafett_admin::router_across(
                self.admin.clone(),
                access.clone(),
                kept,
                // Each cell has an export of its own.
                |routes| routes,
            ))
            .merge(self.management.router(access));
        let router = console::guarded(&settings.console, router);
        let router = passed::adopting(self.admin.broker.clone(), versions.clone(), router);
        let http = HttpServer::new(stafett_http::stamped(router));
        self.open_to_nodes(
            &self.front_ends,
            "amqp",
            settings.connections_max,
            amqp.passed(versions),
        )?;
        self.open_to_nodes(&self.http, "http", settings.http.connections_max, http)
    }

    /// Serves a protocol to connections that other nodes hand over.
    pub(crate) fn open_to_nodes<P: Protocol>(
        &self,
        listeners: &Listeners,
        name: &'static str,
        connections_max: u64,
        protocol: P,
    ) -> anyhow::Result<()> {
        let connections_max = limits::connections_max(connections_max, self.descriptors);
        let place = (Ipv4Addr::LOCALHOST, 0).into();
        // A listener is more than its socket, which is closed at once.
        let listener = Listener::bind(&[place], ListenerSettings::new(name, connections_max), &self.net);
        let listener = listener.context("connections of other nodes cannot be taken")?;
        listeners.open_doors(&[listener], &Arc::new(protocol));
        Ok(())
    }

    /// Ends connections, closes the journal, and lets go of the cell.
    async fn end_cell(
        &self,
        core: Core,
        cause: Cause,
        member: &Arc<Member>,
        standby: Standby,
    ) -> Result<(), Failure> {
        let drain_max = self.drain_max(&cause);
        self.stop_serving(&cause);
        self.front_ends.end(drain_max, pending()).await;
        self.http.end(Duration::ZERO, pending()).await;
        if timeout(OPERATIONS_END_MAX, self.admin.operations.end())
            .await
            .is_err()
        {
            tracing::warn!(cell = member.cell, "operations go on while the cell is let go");
        }
        self.admin.broker.close();
        self.management.close();
        core.close().await;
        standby.end().await;
        let (order, failed) = match cause {
            Cause::Order(order) => (Some(order), None),
            Cause::Failed(reason) => (None, Some(reason)),
            Cause::Stop(_) => (None, None),
        };
        member.on_released(order);
        tracing::info!(target: EVENTS, kind = "cluster.released", cell = member.cell, "this node let go of the cell");
        match failed.filter(|_| !member.has_lost()) {
            Some(reason) => Err(anyhow::anyhow!("the journal failed: {reason}").into()),
            None => Ok(()),
        }
    }
}
