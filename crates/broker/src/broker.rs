//! The broker: what front ends ask of the core.

use std::sync::Arc;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use stafett_groups::registry::LoadError;
use stafett_groups::{GroupSettings, Groups};
use stafett_journal::{
    Append, Bounds, Change, Frame, Journal, LogSpec, ProducerSeen, ReadRequest, ReadTicket, Refusal, Space,
    StateChange, StateItem, StateUnreadable, StateWait, Ticket, TimeQuery, TimeTicket, Watch,
};
use stafett_model::{Codec, Durability, Epoch, LogId, Namespace, Offset, ProducerId, SharedLock};
use stafett_store::{NotStored, only_outcome, spaces};
use stafett_topics::{ProducerIds, Topic, TopicId, TopicSettings, Topics};
use tokio_util::task::TaskTracker;

use crate::definitions::respec;
use crate::delayed::{Delayed, Releasing};
use crate::exchanges::way::{Way, WayBack};
use crate::exchanges::{BindError, Destination, Exchanges, NewBinding, Stored};
use crate::live::{Live, LiveSettings};
use crate::overrides::Overrides;
use crate::queues::Queues;
use crate::queues::clock::Clock;
use crate::queues::load::LoadQueuesError;
use crate::readers::Readers;

const CLUSTER_ID_KEY: &[u8] = b"cluster-id";
const DEFAULTS_KEY: &[u8] = b"defaults";
/// Topics whose logs are changed together when what they follow changes.
const TOPICS_AT_ONCE: usize = 1000;

#[derive(Debug)]
pub struct Broker {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) exchanges: Arc<Exchanges>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) way: Way,
    pub(crate) delayed: Releasing,
    readers: Arc<Readers>,
    live: Arc<Live>,
    producer_ids: ProducerIds,
    cluster_id: u128,
    /// As it was started.
    base: BrokerSettings,
    /// What holds now: those with what was set since.
    settings: Arc<SharedLock<BrokerSettings>>,
    pub(crate) overrides: Overrides,
    pub(crate) no_settings: Arc<TopicSettings>,
    /// Changes of definitions that are under way.
    pub(crate) changes: TaskTracker,
}

/// What topics follow that have set nothing of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerSettings {
    pub logs: LogSpec,
    /// Bytes of the largest batch that is taken.
    pub message_bytes_max: u32,
    pub append_time: bool,
    /// Milliseconds that a record's own time may lie before the clock; `u64::MAX` is any time.
    pub earlier_ms_max: u64,
    /// Milliseconds that a record's own time may lie behind the clock.
    pub later_ms_max: u64,
    /// What batches are compressed with; `None` keeps them as their producer made them.
    pub codec: Option<Codec>,
    /// Partitions of a topic whose creator does not care.
    pub partitions: u32,
    pub groups: GroupSettings,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            logs: LogSpec::default(),
            message_bytes_max: 1_048_588,
            append_time: false,
            earlier_ms_max: u64::MAX,
            later_ms_max: 3_600_000,
            codec: None,
            partitions: 1,
            groups: GroupSettings::default(),
        }
    }
}

impl BrokerSettings {
    /// What a topic's batches have to be like.
    pub(crate) fn rules(&self, topic: &Topic) -> Rules {
        let own = &*topic.settings;
        Rules {
            message_bytes_max: own.message_bytes_max.unwrap_or(self.message_bytes_max),
            append_time: own.append_time.unwrap_or(self.append_time),
            earlier_ms_max: own.earlier_ms_max.unwrap_or(self.earlier_ms_max),
            later_ms_max: own.later_ms_max.unwrap_or(self.later_ms_max),
            codec: own.codec.unwrap_or(self.codec),
        }
    }
}

/// What a topic's batches have to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub message_bytes_max: u32,
    pub append_time: bool,
    pub earlier_ms_max: u64,
    pub later_ms_max: u64,
    pub codec: Option<Codec>,
}

/// Why a broker could not start on its journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateUnreadable),
    #[error("the definition of topic {0:032x} is of a format that this version does not know")]
    Definition(u128),
    #[error(transparent)]
    Groups(#[from] LoadError),
    #[error(transparent)]
    Queues(#[from] LoadQueuesError),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Inserts a topic that was loaded. Of two with one name the later one is served: the deletion of the earlier
/// one was lost with a part of the journal. Ids of logs rise.
fn insert_newer(topics: &Topics, topic: Topic) {
    let Some(other) = topics.named(&topic.name) else {
        return topics.insert(Arc::new(topic));
    };
    tracing::error!(
        topic = &*topic.name,
        "two definitions of one topic are left: the deletion of the earlier one is lost, and the later one is served"
    );
    if other.log(0) < topic.log(0) {
        topics.remove(&other);
        topics.insert(Arc::new(topic));
    }
}

impl Broker {
    /// Starts on a journal: loads every definition.
    pub async fn start(journal: Arc<dyn Journal>, settings: BrokerSettings) -> Result<Self, StartError> {
        Self::start_with(journal, settings, LiveSettings::default()).await
    }

    /// Like [`Broker::start`], with settings of live topics.
    pub async fn start_with(
        journal: Arc<dyn Journal>,
        settings: BrokerSettings,
        live: LiveSettings,
    ) -> Result<Self, StartError> {
        let no_settings: Arc<TopicSettings> = Arc::default();
        let topics = Arc::new(Topics::default());
        let mut unknown = None;
        journal.load_state(spaces::TOPICS, &mut |item| {
            let StateItem::Value { key, value } = item else {
                return;
            };
            let Ok(id) = key.try_into().map(u128::from_be_bytes) else {
                return;
            };
            match Topic::decode(TopicId(id), value, &no_settings) {
                Some(topic) => insert_newer(&topics, topic),
                None => unknown = Some(id),
            }
        })?;
        if let Some(id) = unknown {
            return Err(StartError::Definition(id));
        }
        let (mut cluster_id, mut defaults) = (None, None);
        journal.load_state(spaces::CLUSTER, &mut |item| match item {
            StateItem::Value {
                key: CLUSTER_ID_KEY,
                value,
            } => {
                cluster_id = value.try_into().ok().map(u128::from_be_bytes);
            }
            StateItem::Value {
                key: DEFAULTS_KEY,
                value,
            } => defaults = Some(value.to_vec()),
            StateItem::Value { .. } | StateItem::Delta { .. } => {}
        })?;
        let producer_ids = ProducerIds::load(&*journal)?;
        let groups = Groups::open(
            Arc::clone(&journal),
            Arc::clone(&topics),
            settings.groups,
            settings.logs.durability,
        )?;
        let overrides = Overrides::load(&*journal)?;
        // Everything is loaded before anything is appended.
        let live = Arc::new(Live::open(Arc::clone(&journal), live)?);
        let now = Arc::new(SharedLock::new(overrides.over(settings)));
        let (way, delayed) = open_way(&journal, &topics, settings.logs.durability, &now)?;
        let broker = Self {
            readers: Readers::new(Arc::clone(&journal)),
            journal,
            topics,
            groups,
            exchanges: Arc::clone(&way.exchanges),
            queues: Arc::clone(&way.queues),
            way,
            delayed,
            live,
            producer_ids,
            cluster_id: cluster_id.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128()),
            base: settings,
            settings: now,
            overrides,
            no_settings,
            changes: TaskTracker::new(),
        };
        broker.begin(cluster_id.is_none(), defaults.as_deref()).await?;
        Ok(broker)
    }

    /// What is to be done before anybody uses it; `defaults` is what topics followed in the run before.
    async fn begin(&self, is_new: bool, defaults: Option<&[u8]>) -> Result<(), NotStored> {
        if is_new {
            self.put(CLUSTER_ID_KEY, self.cluster_id.to_be_bytes().to_vec())
                .await?;
        }
        self.follow_settings(defaults).await?;
        self.finish_namespaces().await
    }

    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Whether space is short: who is not to be refused waits until it is not.
    pub fn space(&self) -> Space {
        self.journal.space()
    }

    /// Groups of consumers, and how far each has come.
    pub fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Exchanges and bindings of all namespaces.
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// What is counted of messages on their way through exchanges, of those that wait there, and of those
    /// that are read.
    pub fn register_routing_metrics(&self, registry: &mut Registry) {
        self.exchanges.metrics.register(registry);
        self.delayed.metrics().register(registry);
        self.readers.register_metrics(registry);
    }

    /// Binds a queue, an exchange or a topic to an exchange; the same once more changes nothing.
    pub fn bind(&self, namespace: &Namespace, new: NewBinding) -> Result<Stored, BindError> {
        let queue = match &new.destination {
            Destination::Queue(name) => self.queues.get(namespace, name),
            Destination::Exchange(_) | Destination::Topic(_) => None,
        };
        let outlives = self.way.outlives(namespace, &new.destination);
        let destination = new.destination.clone();
        let stored = self
            .exchanges
            .bind(namespace, new, outlives.ok_or(BindError::NoSuchDestination)?)?;
        // Whoever deleted it meanwhile may have looked for its bindings before this one was there.
        let is_gone = match &queue {
            Some(queue) => queue.is_deleted(),
            None => self.way.outlives(namespace, &destination).is_none(),
        };
        if is_gone {
            self.exchanges.forget(namespace, &destination);
            return Err(BindError::NoSuchDestination);
        }
        Ok(stored)
    }

    /// All queues.
    pub fn queues(&self) -> &Arc<Queues> {
        &self.queues
    }

    /// Those who read stored topics from places of their own.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Live topics.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// What holds now.
    pub fn settings(&self) -> BrokerSettings {
        *self.settings.read()
    }

    /// What it was started with.
    pub fn base_settings(&self) -> BrokerSettings {
        self.base
    }

    /// Identifies this data directory for as long as it exists.
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// The start of the program under which batches are being stored.
    pub fn epoch(&self) -> Epoch {
        self.journal.epoch()
    }

    /// Appends verified batches. Those of one log are stored in their order.
    pub fn append(&self, appends: Vec<Append>) -> Ticket {
        self.journal.append(appends)
    }

    pub fn read(&self, request: ReadRequest) -> ReadTicket {
        self.journal.read(request)
    }

    pub fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        self.journal.find_time(log, query)
    }

    pub fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.journal.bounds(log)
    }

    /// The idempotent producers of which a log knows.
    pub fn producers(&self, log: LogId) -> Option<Vec<ProducerSeen>> {
        self.journal.producers(log)
    }

    /// An empty watch: add logs to it with [`Broker::watch_log`].
    pub fn watch(&self) -> Watch {
        self.journal.watch()
    }

    pub fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        self.journal.watch_log(watch, log, token)
    }

    /// An id that no producer has had.
    pub async fn new_producer_id(&self) -> Result<ProducerId, NotStored> {
        self.producer_ids.next(&*self.journal).await
    }

    /// What a topic's batches have to be like.
    pub fn rules(&self, topic: &Topic) -> Rules {
        self.settings().rules(topic)
    }

    /// Frees what lies before an offset, log by log; durable when this returns.
    pub async fn truncate(&self, logs: &[(LogId, Offset)]) -> Vec<Result<(), NotStored>> {
        let append = |&(log, before): &(LogId, Offset)| {
            Append::state([Frame::Truncate { log, before }], StateWait::Synced)
        };
        let outcomes = self.journal.append(logs.iter().map(append).collect()).await;
        outcomes
            .into_iter()
            .map(|outcome| only_outcome(Some(&outcome)))
            .collect()
    }

    /// What a topic's logs promise.
    pub fn log_spec(&self, topic: &Topic) -> LogSpec {
        topic.settings.log_spec(&self.settings().logs)
    }

    /// Brings what was set while running into force.
    pub(crate) async fn apply_overrides(&self) -> Result<(), NotStored> {
        let (before, now) = (self.settings(), self.overrides.over(self.base));
        *self.settings.write() = now;
        if before.logs == now.logs {
            return Ok(());
        }
        self.follow_settings(Some(&stored_form(&before.logs))).await
    }

    /// Lets the logs of topics that follow the broker's settings follow them, if they were others before.
    async fn follow_settings(&self, before: Option<&[u8]>) -> Result<(), NotStored> {
        let now = stored_form(&self.settings().logs);
        if before == Some(&now) {
            return Ok(());
        }
        if before.is_some() {
            let mut topics = self.topics.all();
            topics.retain(|topic| !topic.id.is_queue());
            for topics in topics.chunks(TOPICS_AT_ONCE) {
                let append = |topic: &Arc<Topic>| {
                    Append::state(respec(topic, self.log_spec(topic)), StateWait::Written)
                };
                let outcomes = self.journal.append(topics.iter().map(append).collect()).await;
                for outcome in &outcomes {
                    match only_outcome(Some(outcome)) {
                        // A topic that is being deleted has no logs to change.
                        Ok(()) | Err(NotStored::Refused(Refusal::NoSuchLog(_))) => {}
                        // The settings are not stored, so that the next start tries it again.
                        Err(why) => return Err(why),
                    }
                }
            }
        }
        self.put(DEFAULTS_KEY, now).await
    }

    async fn put(&self, key: &'static [u8], value: Vec<u8>) -> Result<(), NotStored> {
        let change = StateChange {
            space: spaces::CLUSTER,
            key: Bytes::from_static(key),
            change: Change::Put(value.into()),
        };
        self.store([Frame::State(change)]).await
    }

    pub(crate) async fn store(&self, frames: impl IntoIterator<Item = Frame>) -> Result<(), NotStored> {
        let append = Append::state(frames, StateWait::Synced);
        only_outcome(self.journal.append(vec![append]).await.pop().as_ref())
    }
}

/// Loads exchanges, queues and what waits between them, and lets each find the others.
fn open_way(
    journal: &Arc<dyn Journal>,
    topics: &Arc<Topics>,
    durability: Durability,
    settings: &Arc<SharedLock<BrokerSettings>>,
) -> Result<(Way, Releasing), StartError> {
    let (exchanges, left) = Exchanges::open(Arc::clone(journal))?;
    let clock = Arc::new(Clock::start());
    let delayed = Arc::new(Delayed::open(Arc::clone(journal), Arc::clone(&clock))?);
    let queues = Queues::open(Arc::clone(journal), Arc::clone(topics), durability, clock)?;
    let way = Way {
        exchanges: Arc::new(exchanges),
        queues,
        topics: Arc::clone(topics),
        delayed,
        settings: Arc::clone(settings),
    };
    way.queues.set_router(Arc::new(WayBack::of(&way)));
    let exists =
        |namespace: &Namespace, destination: &Destination| way.outlives(namespace, destination).is_some();
    way.exchanges.clean(left, exists);
    let releasing = Releasing::spawn(Arc::clone(&way.delayed), WayBack::of(&way));
    Ok((way, releasing))
}

/// How what topics follow is remembered.
fn stored_form(logs: &LogSpec) -> Vec<u8> {
    format!("{logs:?}").into_bytes()
}
