//! Changes of definitions: topics are created, changed, grown and deleted.
//!
//! Every change is a task of the broker's own: it goes on to its end when nobody waits for it any more, so
//! that what is stored and what is known never part, and no name stays claimed. Changes of one topic come one
//! after the other.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use stafett_journal::{Append, Change, Frame, LogSpec, Refusal, StateWait, Ticket};
use stafett_model::{LogId, TopicName, TopicNameError};
use stafett_store::{NotStored, only_outcome, spaces, state_frame};
use stafett_topics::{Claim, Topic, TopicId, TopicSettings};
use tokio::task::JoinHandle;

use crate::broker::Broker;
use crate::live::logs::{LogRule, topics_of};
use crate::queues::flush::Staged;

/// The pause before a refused change of logs is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;

/// A topic that is to be created.
#[derive(Debug, Clone)]
pub struct NewTopic {
    pub name: Box<str>,
    /// `None`: as many as the broker's settings say.
    pub partitions: Option<u32>,
    pub settings: TopicSettings,
}

/// Why a topic was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("a topic of this name exists")]
    Exists,
    #[error("a topic of this name is being created or deleted")]
    Changing,
    #[error("the name collides with that of the existing topic {0}")]
    Collides(Box<str>),
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

/// Why a topic did not get more partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    #[error("there is no such topic")]
    NoSuchTopic,
    #[error("the topic has {has} partitions, which is not less than {wanted}")]
    NotMore { has: u32, wanted: u32 },
    #[error("{0} partitions are not possible: expected 1 to {PARTITIONS_MAX}")]
    TooMany(u32),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Why settings were not changed; `E` is why the caller did not want to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlterError<E> {
    #[error("there is no such topic")]
    NoSuchTopic,
    #[error("too many of them have settings of their own")]
    TooMany,
    #[error(transparent)]
    Unwanted(E),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// A change under way. It happens whether or not this is awaited.
pub struct Changing<T, E> {
    task: JoinHandle<Result<T, E>>,
}

impl<T, E> Changing<T, E> {
    pub(crate) fn of(task: JoinHandle<Result<T, E>>) -> Self {
        Self { task }
    }
}

impl<T, E: From<NotStored>> Future for Changing<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready(ended.unwrap_or_else(|_| Err(NotStored::Unknown.into())))
    }
}

impl<T, E> fmt::Debug for Changing<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changing")
    }
}

impl Broker {
    /// Lets a change go on to its end whether or not anybody waits for it.
    pub(crate) fn change<T, E>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Changing<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        Changing {
            task: self.changes.spawn(work),
        }
    }

    /// Returns when every change that was begun has ended. Called when nobody begins any more.
    pub async fn finish_changes(&self) {
        self.changes.close();
        self.changes.wait().await;
        self.exchanges.finish().await;
        self.delayed.stop().await;
        self.readers().finish().await;
        self.queues.finish().await;
        self.live().finish_changes().await;
    }

    /// Opens the logs behind live topics, and delivers what is appended to them from now on.
    pub async fn open_live_logs(self: &Arc<Self>) -> Result<(), CreateError> {
        let rules = self.live().settings.logs.clone();
        self.change_live_logs(&rules).await
    }

    /// Puts other rules in force of what is stored behind live topics; if a stored topic cannot be made,
    /// those before stay.
    pub async fn change_live_logs(self: &Arc<Self>, rules: &[LogRule]) -> Result<(), CreateError> {
        let topics = topics_of(self, rules).await?;
        self.live().set_logs(topics);
        Ok(())
    }

    /// Creates topics, each or none of it; durable when this returns.
    pub async fn create_topics(self: &Arc<Self>, new: Vec<NewTopic>) -> Vec<Result<Arc<Topic>, CreateError>> {
        let mut results = Vec::with_capacity(new.len());
        let mut appends = Vec::with_capacity(new.len());
        let mut claimed = Vec::with_capacity(new.len());
        for topic in new {
            let prepared = self.prepare(topic);
            if let Ok(topic) = &prepared {
                let spec = self.log_spec(topic);
                appends.push(definition(topic, spec));
                claimed.push((Arc::clone(topic), spec));
            }
            results.push(prepared);
        }
        if claimed.is_empty() {
            return results;
        }
        let ticket = self.append(appends);
        let broker = Arc::clone(self);
        let settled = self.change(async move { Ok(broker.settle_created(claimed, ticket).await) });
        let settled: Result<Vec<_>, NotStored> = settled.await;
        let mut outcomes = settled.unwrap_or_default().into_iter();
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            if let Err(why) = outcomes.next().unwrap_or(Err(NotStored::Unknown)) {
                *result = Err(why.into());
            }
        }
        results
    }

    async fn settle_created(
        self: &Arc<Self>,
        claimed: Vec<(Arc<Topic>, LogSpec)>,
        ticket: Ticket,
    ) -> Vec<Result<(), NotStored>> {
        let mut outcomes = ticket.await.into_iter();
        let settle = |(topic, spec): (Arc<Topic>, LogSpec)| {
            let stored = only_outcome(outcomes.next().as_ref());
            if stored.is_ok() {
                self.topics.insert(Arc::clone(&topic));
                self.catch_up(&topic, spec);
            } else {
                self.topics.release(&topic.name);
            }
            stored
        };
        claimed.into_iter().map(settle).collect()
    }

    /// Whether a topic could be created like this, without creating it.
    pub fn check_new(&self, topic: &NewTopic) -> Result<(), CreateError> {
        TopicName::check(&topic.name)?;
        let partitions = topic.partitions.unwrap_or_else(|| self.settings().partitions);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(CreateError::Partitions(partitions));
        }
        match self.topics.named_alike(&topic.name) {
            Some(other) if other.name == topic.name => Err(CreateError::Exists),
            Some(other) => Err(CreateError::Collides(other.name.clone())),
            None => Ok(()),
        }
    }

    /// Deletes a topic and what it holds; durable when it is done.
    pub fn delete_topic(self: &Arc<Self>, id: TopicId) -> Changing<(), DeleteError> {
        let broker = Arc::clone(self);
        self.change(async move { broker.delete_topic_here(id).await })
    }

    /// The parts of a run of logs that exist. Damage to the journal may have taken the others, and an append
    /// that names one of them is refused.
    fn existing(&self, (first, count): (LogId, u32)) -> Vec<(LogId, u32)> {
        let mut parts: Vec<(LogId, u32)> = Vec::new();
        for id in (first.0..).map(LogId).take(count as usize) {
            if self.journal.bounds(id).is_none() {
                continue;
            }
            match parts.last_mut() {
                Some((begin, length)) if begin.0 + u64::from(*length) == id.0 => *length += 1,
                _ => parts.push((id, 1)),
            }
        }
        parts
    }

    /// The same within another change, that goes on to its end.
    pub(crate) async fn delete_topic_here(&self, id: TopicId) -> Result<(), DeleteError> {
        let topic = self.topics.claim_existing(id).await;
        let topic = topic.ok_or(DeleteError::NoSuchTopic)?;
        let mut frames: Vec<Frame> = runs(&topic)
            .flat_map(|run| self.existing(run))
            .map(|(first, count)| Frame::DeleteLogs { first, count })
            .collect();
        frames.push(stored(id, Change::Delete));
        let deleted = self.store(frames).await;
        if deleted.is_ok() {
            self.topics.remove(&topic);
            self.readers().on_deleted(id);
            self.queues.on_topic_deleted(id);
            self.groups.on_topic_deleted();
            self.exchanges.forget_topic(&topic.name);
        }
        self.topics.release(&topic.name);
        Ok(deleted?)
    }

    /// Gives a topic more partitions, `wanted` in all; durable when it is done.
    pub fn grow_topic(self: &Arc<Self>, id: TopicId, wanted: u32) -> Changing<Arc<Topic>, GrowError> {
        let broker = Arc::clone(self);
        self.change(async move {
            let topic = broker.topics.claim_existing(id).await;
            let topic = topic.ok_or(GrowError::NoSuchTopic)?;
            let spec = broker.log_spec(&topic);
            let grown = broker.grow(&topic, wanted, spec).await;
            match &grown {
                Ok(grown) => {
                    broker.topics.insert(Arc::clone(grown));
                    broker.catch_up(grown, spec);
                    broker.readers().on_grown(grown);
                    broker.queues.on_topic_grown(grown);
                }
                Err(_) => broker.topics.release(&topic.name),
            }
            grown
        })
    }

    async fn grow(&self, topic: &Topic, wanted: u32, spec: LogSpec) -> Result<Arc<Topic>, GrowError> {
        let has = topic.partitions();
        let count = wanted.saturating_sub(has);
        if count == 0 {
            return Err(GrowError::NotMore { has, wanted });
        }
        if wanted > PARTITIONS_MAX {
            return Err(GrowError::TooMany(wanted));
        }
        let first = self.journal.allocate(count);
        let grown = topic.with_more(first, count);
        let logs = Frame::CreateLogs { first, count, spec };
        self.store([logs, stored(topic.id, Change::Put(grown.encode().into()))])
            .await?;
        Ok(Arc::new(grown))
    }

    /// Changes the settings of a topic to what `edit` makes of them; durable when it is done.
    pub fn alter_topic<E: Send + 'static>(
        self: &Arc<Self>,
        id: TopicId,
        edit: impl FnOnce(&TopicSettings) -> Result<TopicSettings, E> + Send + 'static,
    ) -> Changing<Arc<Topic>, AlterError<E>> {
        let broker = Arc::clone(self);
        self.change(async move {
            let topic = broker.topics.claim_existing(id).await;
            let topic = topic.ok_or(AlterError::NoSuchTopic)?;
            let altered = match edit(&topic.settings) {
                Ok(settings) => {
                    let settings = TopicSettings {
                        declared: topic.settings.declared.clone(),
                        ..settings
                    };
                    broker.alter(&topic, settings).await.map_err(AlterError::from)
                }
                Err(why) => Err(AlterError::Unwanted(why)),
            };
            match &altered {
                Ok((altered, spec)) => {
                    broker.topics.insert(Arc::clone(altered));
                    broker.catch_up(altered, *spec);
                }
                Err(_) => broker.topics.release(&topic.name),
            }
            altered.map(|(altered, _)| altered)
        })
    }

    async fn alter(
        &self,
        topic: &Topic,
        settings: TopicSettings,
    ) -> Result<(Arc<Topic>, LogSpec), NotStored> {
        let before = self.log_spec(topic);
        let altered = topic.with_settings(self.shared(settings));
        let spec = self.log_spec(&altered);
        let mut frames = Vec::new();
        if spec != before {
            frames.extend(respec(topic, spec));
        }
        frames.push(stored(topic.id, Change::Put(altered.encode().into())));
        self.store(frames).await?;
        Ok((Arc::new(altered), spec))
    }

    /// Lets a topic's logs follow the broker's settings, if these changed while its definition was being
    /// stored. Refused, that is tried again until the broker stops.
    fn catch_up(self: &Arc<Self>, topic: &Topic, stored: LogSpec) {
        let spec = self.log_spec(topic);
        if spec == stored {
            return;
        }
        let Staged::Refused(why) = Staged::of(&*self.journal, respec(topic, spec)) else {
            return;
        };
        tracing::warn!(
            "topic {}: its logs wait to follow the settings: {why}",
            topic.name
        );
        let (broker, id, stop) = (Arc::downgrade(self), topic.id, self.queues.stopped());
        let again = async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let Some(broker) = broker.upgrade() else { return };
                let Some(topic) = broker.topics.with_id(id) else {
                    return;
                };
                let respec = respec(&topic, broker.log_spec(&topic));
                match Staged::of(&*broker.journal, respec) {
                    Staged::Stored | Staged::Waits(_) | Staged::Refused(Refusal::Closed) => return,
                    Staged::Refused(_) => {}
                }
            }
        };
        self.queues
            .spawn(async move { stop.run_until_cancelled(again).await });
    }

    fn prepare(&self, new: NewTopic) -> Result<Arc<Topic>, CreateError> {
        self.check_new(&new)?;
        match self.topics.claim(&new.name) {
            Claim::Claimed => {}
            Claim::Exists => return Err(CreateError::Exists),
            Claim::Changing => return Err(CreateError::Changing),
            Claim::Collides(other) => return Err(CreateError::Collides(other)),
        }
        let partitions = new.partitions.unwrap_or_else(|| self.settings().partitions);
        let first = self.journal.allocate(partitions);
        let id = TopicId(uuid::Uuid::new_v4().as_u128());
        let settings = self.shared(new.settings);
        Ok(Arc::new(Topic::new(id, new.name, first, partitions, settings)))
    }

    /// Most topics have no settings of their own, and share one value.
    fn shared(&self, settings: TopicSettings) -> Arc<TopicSettings> {
        if settings == *self.no_settings {
            Arc::clone(&self.no_settings)
        } else {
            Arc::new(settings)
        }
    }
}

fn runs(topic: &Topic) -> impl Iterator<Item = (LogId, u32)> {
    topic.log_runs().map(|(first, count)| (*first, *count))
}

/// What lets a topic's logs promise something else.
pub(crate) fn respec(topic: &Topic, spec: LogSpec) -> impl Iterator<Item = Frame> {
    runs(topic).map(move |(first, count)| Frame::ChangeLogs { first, count, spec })
}

fn definition(topic: &Topic, spec: LogSpec) -> Append {
    let mut frames: Vec<Frame> = runs(topic)
        .map(|(first, count)| Frame::CreateLogs { first, count, spec })
        .collect();
    frames.push(stored(topic.id, Change::Put(topic.encode().into())));
    Append::state(frames, StateWait::Synced)
}

fn stored(id: TopicId, change: Change) -> Frame {
    state_frame(
        spaces::TOPICS,
        Bytes::copy_from_slice(&id.0.to_be_bytes()),
        change,
    )
}
