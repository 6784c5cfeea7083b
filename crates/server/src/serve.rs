//! The process, from start to end.
//!
//! ```text
//! settings → logs → runtime → metrics → HTTP (/health says 503)
//!   → core: stored data is read        recovering
//!   → front ends: listeners open       ready
//!   → SIGHUP                           the settings are read again
//!   → SIGTERM or SIGINT                draining: no new connections, work in progress is finished
//!   → core is closed → HTTP ends → exit code 0
//!   → the journal failed               the same, and then a restart on the same sockets: acknowledged
//!                                      writes are recovered; clients do not know the outcome of writes
//!                                      in progress
//! ```
//!
//! In a cluster listeners open first: while the node stands by, connections are relayed to the owner
//! (`cluster`). A node that loses the cell, or lets it go, stands by again.
//!
//! Listening sockets outlive a failure: clients that connect meanwhile wait, and no other program gets the
//! port. HTTP reports the state until shortly before the next start.
//!
//! Shutdown takes at most [`END_MAX`], unless a request gives connections more time; a second signal ends
//! the draining early.

use std::future::pending;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus_client::registry::Registry;
use stafett_admin::events::Feeds;
use stafett_admin::{Backend, JournalDesk, Masks, Operations, Overviews, PollingMembers, Reads, WebSockets};
use stafett_amqp::Management;
use stafett_broker::AuditTrail;
use stafett_http::{Health, Slot};
use stafett_journal::disk::Clock;
use stafett_live::LiveFront;
use stafett_model::Lock;
use stafett_net::EVENTS;
use stafett_net::{ByteBudget, NetMetrics, Shared, Shutdown, Trace};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::announce;
use crate::cells::Cells;
use crate::cluster::{Member, Move};
use crate::config::{Flags, Loaded, Settings};
use crate::core::Core;
use crate::endpoints::Sockets;
use crate::failure::Failure;
use crate::limits;
use crate::listeners::Listeners;
use crate::live;
use crate::logging;
use crate::node::{self, Commands, ThisNode};
use crate::reload::{Given, Reload};
use crate::sampling;
use crate::signals::{Stop, StopSignals};
use crate::sinks::{SinksHere, Supervisor};
use crate::tls::Certificates;
use crate::trace;
use crate::usage;

/// Time limit from the first signal to the end of the process: up to the end of the run enforced by
/// [`ExitGuard`], then the limit of background tasks.
pub(crate) const END_MAX: Duration = Duration::from_millis(9500);
/// Part of [`END_MAX`] for connections to finish work in progress.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(7);
/// Part of [`END_MAX`] for the HTTP listener.
pub(crate) const HTTP_END_MAX: Duration = Duration::from_millis(500);
/// Part of [`END_MAX`] for the performance log.
pub(crate) const TRACE_END_MAX: Duration = Duration::from_millis(200);
/// Part of [`END_MAX`] for operations.
const OPERATIONS_END_MAX: Duration = Duration::from_millis(500);
/// Part of [`END_MAX`] for the audit.
const AUDIT_END_MAX: Duration = Duration::from_millis(200);
/// Largest part of [`END_MAX`] for background tasks.
const BACKGROUND_END_MAX: Duration = Duration::from_millis(500);

/// Maximum number of consecutive failed recoveries after the journal has failed.
const RECOVERIES_MAX: u32 = 5;
/// Half of the pause before the first restart. The pause doubles with each restart, up to a bound, and is
/// reset after a time without failures.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(3);
const FAILURES_FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// Outcome of a run of the process.
pub(crate) enum End {
    Stopped {
        deadline: Instant,
    },
    /// The journal accepts no more appends.
    Failed {
        reason: String,
    },
    /// In a cluster: another node may own the cell. This one stands by again.
    LetGo,
}

/// Reason to serve no longer.
pub(crate) enum Cause {
    Stop(Stop),
    Failed(String),
    /// In a cluster: another node is to own the cell.
    Order(Move),
}

impl Cause {
    /// A part that does not end has ended.
    const ENDED: Self = Self::Stop(Stop {
        by: "the end of a part",
        drain: None,
    });
}

/// Runs the broker until it is told to stop. `flags` are those that the settings were loaded with.
pub(crate) fn run(loaded: Loaded, flags: Flags) -> Result<(), Failure> {
    let (feeds, audit) = (Feeds::default(), AuditTrail::default());
    let level = logging::start(&loaded.settings.log, &feeds, &audit)?;
    limits::bound_heaps();
    let descriptors = limits::raise_descriptors();
    let runtime = runtime(&loaded.settings).context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let (commands, received) = node::commands();
        let reload = Reload::listen(loaded, flags, level, received.settings)?;
        let signals = StopSignals::listen(received.stop).context("signals cannot be taken over")?;
        Box::pin(run_again(reload, signals, commands, (descriptors, feeds, audit))).await
    });
    let deadline = ended.as_ref().ok().copied();
    runtime.shutdown_timeout(background_end_max(deadline, Instant::now()));
    ended.map(drop)
}

/// Returns the time that the background has to end, where the process has a deadline.
fn background_end_max(deadline: Option<Instant>, now: Instant) -> Duration {
    deadline.map_or(BACKGROUND_END_MAX, |deadline| {
        deadline.saturating_duration_since(now).min(BACKGROUND_END_MAX)
    })
}

/// Runs the process, and restarts it after the journal has failed: the cause may be gone, for example a full
/// queue of a network disk or a device that came back. A persistent failure is returned after several
/// recoveries in a row have failed. Returns the deadline for the end of the process.
async fn run_again(
    mut reload: Reload,
    mut signals: StopSignals,
    commands: Commands,
    (descriptors, feeds, audit): (u64, Feeds, AuditTrail),
) -> Result<Instant, Failure> {
    if !reload.has_file() {
        // Without a file to read again, SIGHUP stops the process.
        signals = signals.and_hangup().context("signals cannot be taken over")?;
    }
    let sockets = Arc::<Sockets>::default();
    let member = Member::start(reload.settings(), descriptors).await?;
    let cells = Cells::start(member.as_ref(), &reload.given(), &commands, descriptors);
    let served = Box::pin(run_served(
        &mut reload,
        &mut signals,
        &commands,
        (&sockets, member.as_ref()),
        (descriptors, feeds, audit),
    ));
    let ended = served.await;
    cells.end().await;
    if let (Ok(_), Some(member)) = (&ended, member) {
        member.leave().await;
    }
    ended
}

/// Runs what this process serves by itself, again and again: all of it, or in a cluster the first cell.
async fn run_served(
    reload: &mut Reload,
    signals: &mut StopSignals,
    commands: &Commands,
    (sockets, member): (&Arc<Sockets>, Option<&Arc<Member>>),
    (descriptors, feeds, audit): (u64, Feeds, AuditTrail),
) -> Result<Instant, Failure> {
    let (mut short_runs, mut unrecovered) = (0, 0);
    loop {
        let started = Instant::now();
        let shared = (Arc::clone(sockets), member.cloned());
        let mut process = Process::new(&reload.given(), commands.clone(), descriptors, shared)?;
        process.admin.feeds = feeds.clone();
        process.audit = audit.clone();
        audit.register_metrics(&mut process.registry());
        let failure = match process.run(signals, reload).await {
            Ok(End::Stopped { deadline }) => return Ok(deadline),
            Ok(End::LetGo) => {
                process.http.end(Duration::ZERO, pending()).await;
                signals.repeat();
                continue;
            }
            Ok(End::Failed { reason }) => {
                unrecovered = 0;
                anyhow::anyhow!("the journal failed: {reason}").into()
            }
            Err(failure) if short_runs == 0 || unrecovered == RECOVERIES_MAX => return Err(failure),
            Err(failure) => {
                unrecovered += 1;
                failure
            }
        };
        if started.elapsed() >= FAILURES_FORGOTTEN_AFTER {
            short_runs = 0;
        }
        short_runs += 1;
        let pause = (RESTART_PAUSE * (1 << short_runs.min(16))).min(RESTART_PAUSE_MAX);
        tracing::error!(target: EVENTS, kind = "alarm.begins", name = "journal_failed", reason = %failure, pause = ?pause,
            "starting again");
        signals.repeat();
        tokio::select! {
            biased;
            stop = signals.next() => {
                tracing::info!(by = stop.by, "stopped before starting again");
                return Err(failure);
            }
            () = sleep(pause) => {}
        }
        process.http.end(HTTP_END_MAX, pending()).await;
    }
}

fn runtime(settings: &Settings) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(count) = settings
        .worker_threads
        .and_then(|count| usize::try_from(count).ok())
    {
        builder.worker_threads(count);
    }
    builder.thread_name("stafett").enable_all().build()
}

/// State shared by the parts of the process.
pub(crate) struct Process {
    pub(crate) settings: Settings,
    /// Limit on the open files and sockets of the process.
    pub(crate) descriptors: u64,
    pub(crate) registry: Arc<RwLock<Registry>>,
    /// The performance log, if there is one.
    pub(crate) trace: Option<Arc<Trace>>,
    pub(crate) net: Arc<NetMetrics>,
    pub(crate) health: Health,
    pub(crate) node: Arc<ThisNode>,
    /// Parts behind the API, some of which are available while the broker serves alone.
    pub(crate) admin: Backend,
    /// Entries of the audit, which outlive a restart of the parts.
    audit: AuditTrail,
    /// RabbitMQ's HTTP API.
    pub(crate) management: Management,
    /// Sinks that the broker keeps.
    pub(crate) sinks: Arc<SinksHere>,
    /// Live topics, which share the HTTP listener and end with the other front ends.
    pub(crate) live: LiveFront,
    /// The listeners of the message protocols.
    pub(crate) front_ends: Listeners,
    /// The HTTP listener, which answers until all others have ended.
    pub(crate) http: Listeners,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) sockets: Arc<Sockets>,
    /// This node in a cluster; `None` if it is alone.
    pub(crate) member: Option<Arc<Member>>,
}

impl Process {
    pub(crate) fn new(
        given: &Given,
        commands: Commands,
        descriptors: u64,
        (sockets, member): (Arc<Sockets>, Option<Arc<Member>>),
    ) -> Result<Self, Failure> {
        let settings = given.settings.clone();
        let mut registry = Registry::with_prefix("stafett");
        let net = Arc::new(NetMetrics::register(&mut registry));
        usage::register(&mut registry);
        if let Some(member) = &member {
            member.metrics.register(&mut registry);
        }
        let budget = ByteBudget::new(settings.budget());
        budget.register(&mut registry);
        let health = Health::new();
        let trace = trace::start(&settings, &given.in_force, &mut registry)?;
        let mut shared =
            Shared::new(Shutdown::new(), Arc::clone(&budget)).with_clock(|| Clock::system().now_ms());
        shared.trace.clone_from(&trace);
        let connections = Arc::clone(&shared.connections);
        let node = Arc::new(ThisNode {
            started_at: Clock::system().now_ms(),
            health: health.clone(),
            net: Arc::clone(&net),
            registry: Arc::clone(&connections),
            budget,
            request_bytes_max: settings.request_memory_bytes,
            settings: given.in_force.clone(),
            commands,
            listeners: Lock::default(),
            data_dir: settings.data_dir.clone(),
            disk_free_bytes_min: settings.journal.disk_free_bytes_min,
            descriptors_max: descriptors,
            usage: Lock::default(),
            overloaded_since: Lock::default(),
            member: member.clone(),
        });
        let doors = || member.as_ref().map(|member| member.doors.clone());
        let http = Listeners::new(shared.ending_with(Shutdown::new()), doors());
        let front_ends = Listeners::new(shared, doors());
        let live = LiveFront::new(
            live::front_settings(&settings),
            front_ends.shared.shutdown.clone(),
            front_ends.tasks.clone(),
        );
        let sinks = SinksHere::new(&mut registry);
        let admin = backend(&settings, &front_ends, &node, &sinks);
        Ok(Self {
            settings,
            descriptors,
            trace,
            registry: Arc::new(RwLock::new(registry)),
            admin,
            audit: AuditTrail::default(),
            management: Management::new(Arc::<ThisNode>::clone(&node), connections),
            net,
            health,
            node,
            sinks,
            live,
            http,
            front_ends,
            certificates: Arc::clone(&given.certificates),
            sockets,
            member,
        })
    }

    /// Runs from start to end. After a failure, HTTP still answers.
    async fn run(&self, signals: &mut StopSignals, reload: &mut Reload) -> Result<End, Failure> {
        let http = self.serve_http().await?;
        let mut standby = self.stand_by(&http).await?;
        let mut opening = Box::pin(Core::open(self, self.member.as_ref()));
        let core = tokio::select! {
            core = &mut opening => core,
            stop = signals.next() => {
                tracing::info!(by = stop.by, "stopped while recovering");
                let deadline = Instant::now() + END_MAX;
                self.end_opening(opening).await;
                standby.end().await;
                return Ok(End::Stopped { deadline });
            }
        };
        let core = match core {
            Ok(core) => core,
            Err(failure) => return self.not_opened(failure, standby).await,
        };
        let kafka = match core.open_front_ends(self, standby.bound.take()).await {
            Ok(kafka) => kafka,
            Err(failure) => {
                self.front_ends.end(Duration::ZERO, pending()).await;
                core.close().await;
                return self.not_opened(failure, standby).await;
            }
        };
        let plain = http.plain;
        self.begin(http, &standby, &core);
        announce::ready(kafka, plain);
        tracing::info!(target: EVENTS, kind = "node.ready", version = env!("CARGO_PKG_VERSION"),
            durability = %self.settings.durability, "ready");

        let sinks = Supervisor::start(self, core.shared(), [kafka, plain]);
        let cause = tokio::select! {
            stop = self.told_to_stop(signals) => Cause::Stop(stop),
            reason = core.failed() => Cause::Failed(reason),
            order = self.ordered() => Cause::Order(order),
            () = reload.run(&core, &self.net, self.trace.clone()) => Cause::ENDED,
            () = sampling::run(core.broker(), &self.node) => Cause::ENDED,
            () = self.mark_cells(core.shared()) => Cause::ENDED,
            () = core.store_audit(&self.audit) => Cause::ENDED,
            () = core.follow_keys() => Cause::ENDED,
        };
        let drain_max = self.drain_max(&cause);
        let end_max = self.end_max(&cause, drain_max);
        let deadline = Instant::now() + end_max;
        let _guard = ExitGuard::after(end_max);
        self.stop_serving(&cause);
        let hurry = async {
            signals.next().await;
        };
        self.end_clients(&cause, drain_max, sinks, hurry).await;
        if (timeout(OPERATIONS_END_MAX, self.admin.operations.end()).await).is_err() {
            tracing::warn!("operations go on while the broker stops");
        }
        core.end_audit(&self.audit, AUDIT_END_MAX).await;
        self.admin.broker.close();
        self.management.close();
        core.close().await;
        self.ended(cause, deadline, standby).await
    }

    /// Returns the registry of all metrics, to add some.
    pub(crate) fn registry(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the state of the HTTP API.
fn backend(
    settings: &Settings,
    front_ends: &Listeners,
    node: &Arc<ThisNode>,
    sinks: &Arc<SinksHere>,
) -> Backend {
    Backend {
        sinks: Arc::<SinksHere>::clone(sinks),
        masks: Masks::of(&settings.http.mask),
        connections: Arc::clone(&front_ends.shared.connections),
        broker: Slot::default(),
        operations: Operations::default(),
        feeds: Feeds::default(),
        sockets: WebSockets {
            shutdown: front_ends.shared.shutdown.clone(),
            tasks: front_ends.tasks.clone(),
            limits: live::socket_limits(settings),
        },
        reads: Reads::default(),
        members: PollingMembers::default(),
        overviews: Overviews::default(),
        node: Arc::<ThisNode>::clone(node),
        journal: JournalDesk::new(
            settings.journal.backup_dir.clone(),
            settings.durability.to_string(),
        ),
    }
}

/// Ends the process if shutdown hangs; disarmed when it is dropped.
struct ExitGuard {
    _alive: mpsc::SyncSender<()>,
}

impl ExitGuard {
    fn after(limit: Duration) -> Self {
        let (alive, ended) = mpsc::sync_channel(0);
        let guard = thread::Builder::new().name("end".to_owned()).spawn(move || {
            if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::error!("the end took too long; what was not written is not acknowledged");
                std::process::exit(1);
            }
        });
        if let Err(error) = guard {
            tracing::warn!(%error, "the end is not guarded");
        }
        Self { _alive: alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_ends_with_the_process() {
        let now = Instant::now();
        for (left_ms, expected_ms) in [(9500, 500), (500, 500), (120, 120), (0, 0)] {
            let deadline = now + Duration::from_millis(left_ms);
            let end_max = background_end_max(Some(deadline), now);
            assert_eq!(end_max, Duration::from_millis(expected_ms));
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(background_end_max(Some(now), later), Duration::ZERO);
        assert_eq!(background_end_max(None, now), BACKGROUND_END_MAX);
    }
}
