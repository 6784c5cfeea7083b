//! The broker: what front ends ask of the core.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{
    Append, Bounds, Change, Frame, Journal, LogSpec, Outcome, ReadRequest, ReadTicket, Refusal, StateChange,
    StateItem, StateSpace, StateUnreadable, StateWait, Ticket, TimeQuery, TimeTicket, Watch,
};
use stafett_model::{Epoch, LogId, ProducerId, TopicName, TopicNameError};

use crate::groups::registry::LoadError;
use crate::groups::{GroupSettings, Groups};
use crate::producer_ids::ProducerIds;
use crate::topic::{Topic, TopicId, TopicSettings};
use crate::topics::{Claim, Topics};

/// Definitions of topics: key topic id (big-endian), value [`Topic::encode`].
const TOPIC_SPACE: StateSpace = StateSpace(1);
/// What there is one of: the cluster's id, the block of producer ids, the settings that topics followed last.
pub(crate) const CLUSTER_SPACE: StateSpace = StateSpace(2);
const CLUSTER_ID_KEY: &[u8] = b"cluster-id";
const DEFAULTS_KEY: &[u8] = b"defaults";

/// Partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;

#[derive(Debug)]
pub struct Broker {
    journal: Arc<dyn Journal>,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    producer_ids: ProducerIds,
    cluster_id: u128,
    settings: BrokerSettings,
    no_settings: Arc<TopicSettings>,
}

/// What topics follow that have set nothing of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerSettings {
    pub logs: LogSpec,
    /// Bytes of the largest batch that is taken.
    pub message_bytes_max: u32,
    pub append_time: bool,
    /// Partitions of a topic whose creator does not care.
    pub partitions: u32,
    pub groups: GroupSettings,
}

/// A topic that is to be created.
#[derive(Debug, Clone)]
pub struct NewTopic {
    pub name: Box<str>,
    /// `None`: as many as the broker's settings say.
    pub partitions: Option<u32>,
    pub settings: TopicSettings,
}

/// A change was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    #[error(transparent)]
    Refused(Refusal),
    #[error("the journal stopped before it could tell whether the change was stored")]
    Unknown,
}

/// Why a topic was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("a topic of this name exists")]
    Exists,
    #[error("a topic of this name is being created or deleted")]
    Changing,
    #[error(transparent)]
    Name(#[from] TopicNameError),
    #[error("{0} partitions are not possible: expected 1 to {PARTITIONS_MAX}")]
    Partitions(u32),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Why a topic was not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    #[error("there is no such topic")]
    NoSuchTopic,
    #[error(transparent)]
    NotStored(#[from] NotStored),
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
    NotStored(#[from] NotStored),
}

impl Broker {
    /// Starts on a journal: loads every definition.
    pub async fn start(journal: Arc<dyn Journal>, settings: BrokerSettings) -> Result<Self, StartError> {
        let no_settings: Arc<TopicSettings> = Arc::default();
        let topics = Arc::new(Topics::default());
        let mut unknown = None;
        journal.load_state(TOPIC_SPACE, &mut |item| {
            let StateItem::Value { key, value } = item else {
                return;
            };
            let Ok(id) = key.try_into().map(u128::from_be_bytes) else {
                return;
            };
            match Topic::decode(TopicId(id), value, &no_settings) {
                Some(topic) => topics.insert(Arc::new(topic)),
                None => unknown = Some(id),
            }
        })?;
        if let Some(id) = unknown {
            return Err(StartError::Definition(id));
        }
        let (mut cluster_id, mut defaults) = (None, None);
        journal.load_state(CLUSTER_SPACE, &mut |item| match item {
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
        let broker = Self {
            journal,
            topics,
            groups,
            producer_ids,
            cluster_id: cluster_id.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128()),
            settings,
            no_settings,
        };
        if cluster_id.is_none() {
            broker
                .put(CLUSTER_ID_KEY, broker.cluster_id.to_be_bytes().to_vec())
                .await?;
        }
        broker.follow_settings(defaults).await?;
        Ok(broker)
    }

    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Groups of consumers, and how far each has come.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn settings(&self) -> &BrokerSettings {
        &self.settings
    }

    /// Identifies this data directory for as long as it exists.
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// The start of the program under which batches are being stored.
    pub fn epoch(&self) -> Epoch {
        self.journal.epoch()
    }

    /// Creates topics, each or none of it; durable when this returns.
    pub async fn create_topics(&self, new: Vec<NewTopic>) -> Vec<Result<Arc<Topic>, CreateError>> {
        let mut results = Vec::with_capacity(new.len());
        let mut appends = Vec::with_capacity(new.len());
        for topic in new {
            let prepared = self.prepare(topic);
            if let Ok(topic) = &prepared {
                appends.push(self.definition(topic));
            }
            results.push(prepared);
        }
        let mut outcomes = self.journal.append(appends).await.into_iter();
        for result in &mut results {
            let Ok(topic) = result else { continue };
            let failed = match outcomes.next() {
                Some(Outcome::Committed(_)) => {
                    self.topics.insert(Arc::clone(topic));
                    continue;
                }
                Some(Outcome::Refused(refusal)) => NotStored::Refused(refusal),
                Some(Outcome::Unknown) | None => NotStored::Unknown,
            };
            self.topics.release(&topic.name);
            *result = Err(failed.into());
        }
        results
    }

    /// Whether a topic could be created like this, without creating it.
    pub fn check_new(&self, topic: &NewTopic) -> Result<(), CreateError> {
        TopicName::check(&topic.name)?;
        let partitions = topic.partitions.unwrap_or(self.settings.partitions);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(CreateError::Partitions(partitions));
        }
        match self.topics.named(&topic.name) {
            Some(_) => Err(CreateError::Exists),
            None => Ok(()),
        }
    }

    /// Deletes a topic and what it holds; durable when this returns.
    pub async fn delete_topic(&self, topic: &Topic) -> Result<(), DeleteError> {
        if !self.topics.remove(topic) {
            return Err(DeleteError::NoSuchTopic);
        }
        let mut frames: Vec<Frame> = topic
            .log_runs()
            .map(|(first, count)| Frame::DeleteLogs {
                first: *first,
                count: *count,
            })
            .collect();
        frames.push(Frame::State(StateChange {
            space: TOPIC_SPACE,
            key: Bytes::copy_from_slice(&topic.id.0.to_be_bytes()),
            change: Change::Delete,
        }));
        let stored = self.store(frames).await;
        self.topics.release(&topic.name);
        self.groups.on_topic_deleted();
        Ok(stored?)
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

    /// Bytes of the largest batch that a topic takes.
    pub fn message_bytes_max(&self, topic: &Topic) -> u32 {
        topic
            .settings
            .message_bytes_max
            .unwrap_or(self.settings.message_bytes_max)
    }

    /// Whether a topic's records get the time of their append.
    pub fn is_append_time(&self, topic: &Topic) -> bool {
        topic.settings.append_time.unwrap_or(self.settings.append_time)
    }

    /// What a topic's logs promise.
    pub fn log_spec(&self, topic: &Topic) -> LogSpec {
        topic.settings.log_spec(&self.settings.logs)
    }

    fn prepare(&self, new: NewTopic) -> Result<Arc<Topic>, CreateError> {
        self.check_new(&new)?;
        match self.topics.claim(&new.name) {
            Claim::Claimed => {}
            Claim::Exists => return Err(CreateError::Exists),
            Claim::Changing => return Err(CreateError::Changing),
        }
        let partitions = new.partitions.unwrap_or(self.settings.partitions);
        let first = self.journal.allocate(partitions);
        let id = TopicId(uuid::Uuid::new_v4().as_u128());
        let settings = if new.settings == *self.no_settings {
            Arc::clone(&self.no_settings)
        } else {
            Arc::new(new.settings)
        };
        Ok(Arc::new(Topic::new(id, new.name, first, partitions, settings)))
    }

    fn definition(&self, topic: &Topic) -> Append {
        let spec = self.log_spec(topic);
        let mut frames: Vec<Frame> = topic
            .log_runs()
            .map(|(first, count)| Frame::CreateLogs {
                first: *first,
                count: *count,
                spec,
            })
            .collect();
        frames.push(Frame::State(StateChange {
            space: TOPIC_SPACE,
            key: Bytes::copy_from_slice(&topic.id.0.to_be_bytes()),
            change: Change::Put(topic.encode().into()),
        }));
        Append::state(frames, StateWait::Synced)
    }

    /// Lets the logs of topics that follow the broker's settings follow them, if they were others at the last start.
    async fn follow_settings(&self, before: Option<Vec<u8>>) -> Result<(), StartError> {
        let now = format!("{:?}", self.settings.logs).into_bytes();
        if before.as_ref() == Some(&now) {
            return Ok(());
        }
        if before.is_some() {
            for topic in self.topics.all() {
                let spec = self.log_spec(&topic);
                let changes = topic.log_runs().map(|(first, count)| Frame::ChangeLogs {
                    first: *first,
                    count: *count,
                    spec,
                });
                let append = Append::state(changes, StateWait::Written);
                drop(self.journal.append(vec![append]));
            }
        }
        Ok(self.put(DEFAULTS_KEY, now).await?)
    }

    async fn put(&self, key: &'static [u8], value: Vec<u8>) -> Result<(), NotStored> {
        let change = StateChange {
            space: CLUSTER_SPACE,
            key: Bytes::from_static(key),
            change: Change::Put(value.into()),
        };
        self.store([Frame::State(change)]).await
    }

    async fn store(&self, frames: impl IntoIterator<Item = Frame>) -> Result<(), NotStored> {
        match self
            .journal
            .append(vec![Append::state(frames, StateWait::Synced)])
            .await
            .pop()
        {
            Some(Outcome::Committed(_)) => Ok(()),
            Some(Outcome::Refused(refusal)) => Err(NotStored::Refused(refusal)),
            Some(Outcome::Unknown) | None => Err(NotStored::Unknown),
        }
    }
}
