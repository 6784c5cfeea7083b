//! The journal and the broker on it, without the front ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stafett_broker::{AuditTrail, Broker, BrokerSettings, FrontEndHooks};
use stafett_cells::CellJournal;
use stafett_groups::GroupSettings;
use stafett_groups::consumer::Rules;
use stafett_journal::disk::{CompactionSettings, RewritePolicy};
use stafett_journal::{DiskJournal, Journal, LogSpec, Metrics, Retention};
use stafett_net::EVENTS;
use stafett_topics::{Cells, TopicDefaults};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::{self, Member, Ownership, ToCells};
use crate::config::Settings;
use crate::failure::Failure;
use crate::front_ends::Bound;
use crate::live;
use crate::oauth::Keys;
use crate::serve::Process;
use crate::trace;

/// Least time between two messages to a cell behind the first one about the ends of another one's logs.
const ENDS_PAUSE: Duration = Duration::from_secs(1);
/// Interval of checks for a failed journal.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// Returns the journal of a cell, which knows the logs of others.
fn over_cells(own: &Arc<dyn Journal>, cells: Cells) -> Arc<CellJournal> {
    // Cells behind the first one need the ends of all partitions for the lags of their groups alone.
    let is_first = cells.own == 0;
    let pause = if is_first { Duration::ZERO } else { ENDS_PAUSE };
    Arc::new(CellJournal::new(Arc::clone(own), cells, pause))
}

/// Has a broker be that of a cell: with groups that are spread, and logs in other cells. Returns the tasks
/// for these.
fn join_cells(
    broker: &Broker,
    journal: Arc<CellJournal>,
    member: &Arc<Member>,
    first: &Arc<Member>,
    settings: &Settings,
) -> JoinSet<()> {
    let groups = Arc::clone(broker.groups());
    if let Some(cells) = member.cells() {
        groups.join_cells(cells, member.epoch());
        // The list of nodes, with their names of groups, is there before a cell is opened.
        let view = member.view();
        let names = settings.kafka.spread_groups.iter().chain(&view.spread_groups);
        groups.spread(names.map(String::as_str));
    }
    let mut asking = JoinSet::new();
    let (ways, topics) = (
        Arc::new(ToCells::new(first, member)),
        Arc::clone(broker.catalog().topics()),
    );
    let (named, member) = (Arc::clone(member), Arc::clone(member));
    asking.spawn(async move { named.spread_groups(&groups).await });
    asking.spawn(async move {
        if member.cell != 0 {
            member.are_groups_spread().await;
        }
        journal.run(&topics, ways).await;
    });
    asking
}

/// The stored part of the process.
pub(crate) struct Core {
    journal: Arc<DiskJournal>,
    /// In a cluster: the cell.
    ownership: Option<Ownership>,
    broker: Arc<Broker>,
    /// At the first of several cells, and at others whose groups may have commits elsewhere: takes questions
    /// about logs to the others, until the core is closed.
    asking: JoinSet<()>,
    /// Keys of the authorization server.
    keys: Keys,
}

impl Core {
    /// Opens the journal and recovers the broker. `first`: this node as a member of the first cell.
    pub(crate) async fn open(process: &Process, first: Option<&Arc<Member>>) -> Result<Self, Failure> {
        let settings = &process.settings;
        let metrics = match &process.trace {
            Some(log) => Metrics::new().observed_by(trace::observer(Arc::clone(log))),
            None => Metrics::new(),
        };
        metrics.register(&mut process.registry());
        let (journal, ownership) = open_journal(process, metrics).await?;
        for fenced in &journal.report().fenced {
            tracing::error!(target: EVENTS, kind = "alarm.begins", name = "fenced", log = fenced.0, "damaged: it takes no appends");
        }
        for (log, from, to) in &journal.report().damaged {
            tracing::error!(target: EVENTS, kind = "alarm.begins", name = "damaged", log = log.0, first = from.0, end = to.0, "lost to damage");
        }
        let journal = Arc::new(journal);
        process.admin.journal.journal.open(Arc::clone(&journal));
        let cells = process.member.as_ref().and_then(|member| member.cells());
        let mut shared: Arc<dyn Journal> = Arc::<DiskJournal>::clone(&journal);
        let over_cells = cells.map(|cells| over_cells(&shared, cells));
        if let Some(journal) = &over_cells {
            shared = Arc::<CellJournal>::clone(journal);
        }
        let broker_settings = BrokerSettings {
            cells,
            tenure: process.tenure(),
            ..broker_settings(settings)
        };
        let broker = Broker::start(shared, broker_settings)
            .await
            .context("the broker cannot start")?;
        broker.access().require_remote_login(settings.require_login);
        if let Some(member) = &process.member {
            member.share_namespaces(&broker);
        }
        let asking = match (over_cells, &process.member, first) {
            (Some(journal), Some(member), Some(first)) => {
                join_cells(&broker, journal, member, first, settings)
            }
            _ => JoinSet::new(),
        };
        let keys = Keys::register(&mut process.registry());
        keys.change(broker.access(), settings).context("oauth.keys")?;
        broker.histories().set_bytes_max(settings.history.bytes_max);
        let mut registry = process.registry();
        broker.register_metrics(&mut registry);
        drop(registry);
        Ok(Self {
            journal,
            ownership,
            broker: Arc::new(broker),
            asking,
            keys,
        })
    }

    /// Opens the listeners of the message protocols; returns the address of Kafka's, without TLS.
    pub(crate) async fn open_front_ends(
        &self,
        process: &Process,
        bound: Option<Bound>,
    ) -> Result<Option<SocketAddr>, Failure> {
        let bound = match bound {
            Some(bound) => bound,
            None => Bound::open(process).await?,
        };
        let kafka = crate::front_ends::open(&self.broker, process, bound);
        let opened = self.broker.open_live_logs().await;
        opened.context("a log behind live topics cannot be opened: see the setting live.logs")?;
        process.live.open(Arc::clone(self.broker.live_topics()));
        let (broker, tenure) = (Arc::clone(&self.broker), self.broker.tenure().clone());
        process.admin.broker.open_while(broker, tenure);
        Ok(kafka)
    }

    /// Applies the rules of `settings` for logs behind live topics.
    pub(crate) async fn change_live_logs(&self, settings: &Settings) -> anyhow::Result<()> {
        let changed = self.broker.change_live_logs(&settings.live.logs).await;
        changed.context("a log behind live topics cannot be opened")
    }

    /// Stores entries of the audit as they come. Does not return.
    pub(crate) async fn store_audit(&self, audit: &AuditTrail) {
        audit.store(self.broker.access(), self.broker.catalog()).await;
    }

    /// Stores the last entries of the audit.
    pub(crate) async fn end_audit(&self, audit: &AuditTrail, time_max: Duration) {
        let stored = audit.store_waiting(self.broker.access(), self.broker.catalog());
        if !timeout(time_max, stored).await.unwrap_or(false) {
            tracing::warn!("entries of the audit were not stored");
        }
    }

    /// Reads the keys of the authorization server again.
    pub(crate) fn change_bearer(&self, settings: &Settings) -> anyhow::Result<()> {
        self.keys.change(self.broker.access(), settings)
    }

    /// Fetches the keys of the authorization server where they come from a URL. Does not return.
    pub(crate) async fn follow_keys(&self) {
        self.keys.follow(self.broker.access()).await;
    }

    /// Applies the rules of `settings` for duplicates.
    pub(crate) fn change_duplicates(&self, settings: &Settings) {
        let live::DuplicateSettings { rules, max } = live::duplicate_settings(settings);
        self.broker.live_topics().change_duplicates(rules, max);
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    pub(crate) fn shared(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Waits until the journal has failed, or the cell is lost, and returns the reason. The process then has
    /// to recover.
    pub(crate) async fn failed(&self) -> String {
        loop {
            if let Some(ownership) = &self.ownership {
                ownership.show();
            }
            let loss = || self.ownership.as_ref().and_then(Ownership::loss);
            if let Some(reason) = self.journal.failure().or_else(loss) {
                return reason;
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }

    /// Writes staged data and stops. Called after all front ends have ended.
    pub(crate) async fn close(self) {
        self.broker.stop().await;
        drop(self.asking);
        let (journal, ownership) = (self.journal, self.ownership);
        let closed = tokio::task::spawn_blocking(move || {
            journal.close();
            if let Some(ownership) = ownership {
                ownership.release();
            }
        })
        .await;
        if let Err(error) = closed {
            tracing::error!(%error, "the journal did not close");
        }
    }
}

/// Opens the journal: in the data directory, or in a cluster once this node owns it.
async fn open_journal(
    process: &Process,
    metrics: Metrics,
) -> anyhow::Result<(DiskJournal, Option<Ownership>)> {
    let settings = &process.settings;
    let journal_settings = journal_settings(settings);
    if let Some(member) = &process.member {
        let health = &process.node.health;
        let storage = cluster::storage_settings(settings, member.cell)?;
        storage.metrics.register(&mut process.registry());
        let opened = cluster::open(settings, storage, member, health, journal_settings, metrics).await?;
        return Ok((opened.0, Some(opened.1)));
    }
    let path = settings.data_dir.clone();
    let opened =
        tokio::task::spawn_blocking(move || DiskJournal::open(&path, journal_settings, metrics)).await;
    let journal = opened.context("recovery was interrupted")?.with_context(|| {
        format!(
            "the data directory {} cannot be opened",
            settings.data_dir.display()
        )
    })?;
    Ok((journal, None))
}

fn journal_settings(settings: &Settings) -> stafett_journal::Settings {
    let journal = &settings.journal;
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    stafett_journal::Settings {
        segment_bytes: u32::try_from(journal.segment_bytes).unwrap_or(u32::MAX),
        tail_cache_bytes: size(journal.tail_cache_bytes),
        kept_back_segments: size(journal.recycle_segments),
        disk_free_bytes_min: journal.disk_free_bytes_min,
        rewrite_bytes_per_second: journal.rewrite_bytes_per_second,
        compaction: CompactionSettings {
            map_bytes: size(journal.compaction_memory_bytes),
            every: journal.compaction_interval_ms,
        },
        rewrite: RewritePolicy {
            arrival_bytes_max: journal.arrival_bytes_max,
            ..RewritePolicy::default()
        },
        ..stafett_journal::Settings::default()
    }
}

fn broker_settings(settings: &Settings) -> BrokerSettings {
    let mut hooks = FrontEndHooks::default();
    stafett_kafka::add_hooks(&mut hooks);
    stafett_amqp::add_hooks(&mut hooks);
    BrokerSettings {
        topics: TopicDefaults {
            logs: LogSpec {
                durability: settings.durability,
                retention: Retention {
                    age: settings.retention_ms,
                    bytes: settings.retention_bytes,
                },
                compaction: None,
            },
            message_bytes_max: u32::try_from(settings.kafka.message_bytes_max).unwrap_or(u32::MAX),
            partitions: u32::try_from(settings.kafka.default_partitions).unwrap_or(1),
            ..TopicDefaults::default()
        },
        groups: group_settings(settings),
        live_topics: live::broker_settings(settings),
        hooks,
        ..BrokerSettings::default()
    }
}

fn group_settings(settings: &Settings) -> GroupSettings {
    let groups = &settings.groups;
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let consumer = Rules {
        session_ms: u64::from(ms(groups.consumer_session_ms)),
        heartbeat_ms: ms(groups.consumer_heartbeat_ms),
        heartbeat_ms_min: ms(groups.consumer_heartbeat_min_ms),
        members_max: size(groups.consumer_members_max),
    };
    let base = GroupSettings::default();
    GroupSettings {
        initial_delay_ms: ms(groups.initial_delay_ms),
        session_ms_min: ms(groups.session_ms_min),
        session_ms_max: ms(groups.session_ms_max),
        members_max: size(groups.members_max),
        consumer,
        share: Rules {
            members_max: base.share.members_max,
            ..consumer
        },
        heartbeats_per_second: u32::try_from(groups.consumer_heartbeats_per_second).unwrap_or(u32::MAX),
        migration: groups.consumer_migration,
        groups_max: size(groups.groups_max),
        memory_bytes_max: size(groups.memory_bytes_max),
        commit_text_bytes_max: size(groups.commit_text_bytes_max),
        commit_retention: groups.commit_retention_ms,
        sweep_every: groups.sweep_ms,
        ..base
    }
}
