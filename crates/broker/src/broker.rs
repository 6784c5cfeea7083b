//! The broker: the parts of the core over one journal, started and stopped together.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_accounts::AccessControl;
use stafett_apps::Apps;
use stafett_groups::{GroupSettings, Groups, MemberProtocol};
use stafett_journal::{Journal, StateUnreadable};
use stafett_live_topics::{Live, LiveSettings};
use stafett_messaging::Messaging;
use stafett_messaging::exchanges::ReadAttributes;
use stafett_model::Tenure;
use stafett_shares::Shares;
use stafett_store::{Clock, NotStored, ReadWallClock, spaces, store_synced, wall_ms};
use stafett_topics::{Cells, TopicCatalog, TopicDefaults, Topics};
use stafett_transactions::{RemoteTransactions, TransactionSettings, Transactions};

use crate::app_results::AppResults;
use crate::history::Histories;
use crate::overrides::{Overrides, ReadGroupSettings};
use crate::sinks::Sinks;

#[derive(Debug)]
pub struct Broker {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) catalog: Arc<TopicCatalog>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) transactions: Arc<Transactions>,
    remote_transactions: RemoteTransactions,
    pub(crate) messaging: Messaging,
    pub(crate) shares: Arc<Shares>,
    live_topics: Arc<Live>,
    access: Arc<AccessControl>,
    apps: Arc<Apps>,
    tenure: Tenure,
    cluster_id: u128,
    /// Default settings of topics, as the broker was started with.
    pub(crate) base: TopicDefaults,
    pub(crate) overrides: Overrides,
    pub(crate) histories: Histories,
    pub(crate) sinks: Sinks,
}

/// Settings of a broker.
#[derive(Debug, Clone)]
pub struct BrokerSettings {
    pub topics: TopicDefaults,
    pub groups: GroupSettings,
    pub transactions: TransactionSettings,
    pub live_topics: LiveSettings,
    pub hooks: FrontEndHooks,
    /// Cells of the cluster; `None` without one.
    pub cells: Option<Cells>,
    /// Time for which clients may be answered.
    pub tenure: Tenure,
    /// The system's clock, except in tests.
    pub wall_clock: ReadWallClock,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            topics: TopicDefaults::default(),
            groups: GroupSettings::default(),
            transactions: TransactionSettings::default(),
            live_topics: LiveSettings::default(),
            hooks: FrontEndHooks::default(),
            cells: None,
            tenure: Tenure::default(),
            wall_clock: wall_ms,
        }
    }
}

/// Knowledge of the front ends that the core needs: the formats of members' metadata, the names of groups'
/// settings, and the headers that front ends keep in their messages.
#[derive(Debug, Clone, Default)]
pub struct FrontEndHooks {
    /// Format of the metadata that members of classic groups exchange. Without it no group changes its
    /// protocol.
    pub member_protocol: Option<Arc<dyn MemberProtocol>>,
    pub group_settings: Option<ReadGroupSettings>,
    pub message_attributes: Vec<Arc<dyn ReadAttributes>>,
}

/// Error of starting a broker on its journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateUnreadable),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

fn stored_cluster_id(journal: &dyn Journal) -> Result<Option<u128>, StateUnreadable> {
    let stored = spaces::CLUSTER_ID.load(journal)?;
    Ok(stored.and_then(|id| id.try_into().ok()).map(u128::from_be_bytes))
}

impl Broker {
    /// Starts on a journal: loads every definition. Must be called within a Tokio runtime.
    pub async fn start(journal: Arc<dyn Journal>, settings: BrokerSettings) -> Result<Self, StartError> {
        // All parts are loaded before the first append.
        let (base, hooks) = (settings.topics, settings.hooks);
        let catalog = Arc::new(TopicCatalog::load(Arc::clone(&journal), base)?);
        if let Some(cells) = settings.cells {
            catalog.spread_over(cells);
        }
        let followed = catalog.load_followed()?;
        let cluster_id = stored_cluster_id(&*journal)?;
        let clock = Arc::new(Clock::start_on(settings.wall_clock));
        let groups = Groups::open(
            Arc::clone(&journal),
            Arc::clone(catalog.topics()),
            settings.groups,
            base.logs.durability,
            hooks.member_protocol,
            Arc::clone(&clock),
        )?;
        let transactions = Transactions::open(
            &journal,
            &catalog,
            &groups,
            &clock,
            TransactionSettings {
                wait: groups.wait(),
                ..settings.transactions
            },
        )?;
        let remote_transactions = RemoteTransactions::new(Arc::clone(&journal), Arc::clone(&catalog));
        let overrides = Overrides::load(&*journal, hooks.group_settings)?;
        let live_topics = Arc::new(Live::open(
            Arc::clone(&journal),
            LiveSettings {
                tenure: settings.tenure.clone(),
                ..settings.live_topics
            },
            Arc::clone(&clock),
        )?);
        let messaging = Messaging::open(&journal, &catalog, &hooks.message_attributes, &clock)?;
        let access = Arc::new(AccessControl::load(&journal)?);
        let shares = Shares::open(&journal, catalog.topics(), base.logs.durability, &clock)?;
        let apps = Apps::open(&journal, &catalog, &clock)?;
        apps.set_queues(Arc::new(AppResults(messaging.joint_sender())));
        let broker = Self {
            sinks: Sinks::load(&*journal)?,
            cluster_id: cluster_id.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128()),
            journal,
            catalog,
            groups,
            transactions,
            remote_transactions,
            messaging,
            shares,
            live_topics,
            access,
            apps,
            tenure: settings.tenure,
            base,
            overrides,
            histories: Histories::default(),
        };
        if cluster_id.is_none() {
            let put = spaces::CLUSTER_ID.put(broker.cluster_id.to_be_bytes().to_vec());
            store_synced(&*broker.journal, [put]).await?;
        }
        broker.finish_start(followed.as_deref()).await?;
        Ok(broker)
    }

    /// Completes changes that a stop had cut off, and applies stored settings.
    async fn finish_start(&self, followed: Option<&[u8]>) -> Result<(), StartError> {
        self.catalog.finish_deletions();
        self.apps.finish_splits().await?;
        self.apply_group_settings();
        let defaults = self.overrides.over(self.base);
        self.catalog.follow_defaults(defaults, followed).await?;
        self.finish_namespaces().await?;
        self.apply_all_limits();
        Ok(())
    }

    /// Waits until every change has ended, and stops. No change may begin afterwards.
    pub async fn stop(&self) {
        self.apps.finish().await;
        self.transactions.finish().await;
        self.catalog.finish().await;
        self.messaging.finish().await;
        self.shares.finish().await;
        self.live_topics.finish_changes().await;
    }

    /// Registers the metrics of all parts.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.groups.register_metrics(registry);
        self.transactions.register_metrics(registry);
        self.messaging.register_metrics(registry);
        self.shares.register_metrics(registry);
        self.live_topics.metrics().register(registry);
        self.apps.register_metrics(registry);
    }

    /// Returns the time for which clients may be answered.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns the stored topics, by name and by id.
    pub fn topics(&self) -> &Topics {
        self.catalog.topics()
    }

    /// Returns the stored topics with their definitions and logs.
    pub fn catalog(&self) -> &Arc<TopicCatalog> {
        &self.catalog
    }

    /// Returns the consumer groups and their commits.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Returns the transactions of other cells with batches in this one.
    pub fn remote_transactions(&self) -> &RemoteTransactions {
        &self.remote_transactions
    }

    /// Returns the transactional ids and their transactions.
    pub fn transactions(&self) -> &Arc<Transactions> {
        &self.transactions
    }

    /// Returns queues, exchanges, delayed messages and readers of topics.
    pub fn messaging(&self) -> &Messaging {
        &self.messaging
    }

    /// Returns the places of share groups in stored topics.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Returns the live topics.
    pub fn live_topics(&self) -> &Arc<Live> {
        &self.live_topics
    }

    /// Returns users, tokens and rules.
    pub fn access(&self) -> &Arc<AccessControl> {
        &self.access
    }

    /// Returns the apps: stateful consumers.
    pub fn apps(&self) -> &Arc<Apps> {
        &self.apps
    }

    /// Returns the samples of the last hour.
    pub fn histories(&self) -> &Histories {
        &self.histories
    }

    /// Returns the default settings of topics, as the broker was started with.
    pub fn base_settings(&self) -> TopicDefaults {
        self.base
    }

    /// Returns the id of this data directory, which never changes.
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }
}
