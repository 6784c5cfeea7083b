//! Changes of definitions: topics are created, changed, grown and deleted.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Append, Change, Frame, LogSpec, Refusal, StateWait, Ticket};
use stafett_model::{LogId, TopicName, TopicNameError};
use stafett_store::{Changing, NotStored, StageOutcome, only_outcome, spaces, store_synced};

use super::{RETRY_AFTER, TopicCatalog};
use crate::homes::{SPREAD, cell_of, elsewhere};
use crate::registry::Claim;
use crate::source::TopicSource as _;
use crate::topic::{Topic, TopicId, TopicSettings, is_internal};

/// Bound on the partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;

/// Definition of a topic to create.
#[derive(Debug, Clone)]
pub struct NewTopic {
    pub name: Box<str>,
    /// Number of partitions. `None` uses the defaults.
    pub partitions: Option<u32>,
    pub settings: TopicSettings,
}

/// Error of creating a topic.
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
    #[error("the namespace has as many topics as it may have, {max}")]
    TooMany { max: u64 },
    #[error("{SPREAD}")]
    Spread,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of deleting a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    #[error("there is no such topic")]
    NoSuchTopic,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of adding partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    #[error("there is no such topic")]
    NoSuchTopic,
    #[error("the topic has {has} partitions, which is not less than {wanted}")]
    NotMore { has: u32, wanted: u32 },
    #[error("{0} partitions are not possible: expected 1 to {PARTITIONS_MAX}")]
    TooMany(u32),
    #[error("an app reads the topic: with more partitions, keys would move away from their state")]
    HasApps,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of changing settings; `E` is the caller's own reason.
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

/// A topic to create.
pub(super) enum Unstored {
    New(NewTopic),
    /// One of the first cell, whose logs are named by their cells.
    As(Topic),
}

impl TopicCatalog {
    /// Creates topics, each completely or not at all; durable when this returns.
    pub async fn create(self: &Arc<Self>, new: Vec<NewTopic>) -> Vec<Result<Arc<Topic>, CreateError>> {
        self.create_all(new.into_iter().map(Unstored::New).collect())
            .await
    }

    pub(super) async fn create_all(
        self: &Arc<Self>,
        new: Vec<Unstored>,
    ) -> Vec<Result<Arc<Topic>, CreateError>> {
        let mut results = Vec::with_capacity(new.len());
        let mut appends = Vec::with_capacity(new.len());
        let mut claimed = Vec::with_capacity(new.len());
        for topic in new {
            let prepared = match topic {
                Unstored::New(topic) => self.prepare(topic),
                Unstored::As(topic) => self.prepare_as(&topic),
            };
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
        let catalog = Arc::clone(self);
        let settled = self
            .changes
            .begin(async move { Ok(catalog.finish_creation(claimed, ticket).await) });
        let settled: Result<Vec<_>, NotStored> = settled.await;
        let mut outcomes = settled.unwrap_or_default().into_iter();
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            if let Err(why) = outcomes.next().unwrap_or(Err(NotStored::Unknown)) {
                *result = Err(why.into());
            }
        }
        self.told().await;
        results
    }

    /// Waits until other cells of a cluster know of all changes up to now.
    async fn told(&self) {
        if let Some(copies) = self.copies.get() {
            copies.have(self.topics.version()).await;
        }
    }

    async fn finish_creation(
        self: &Arc<Self>,
        claimed: Vec<(Arc<Topic>, LogSpec)>,
        ticket: Ticket,
    ) -> Vec<Result<(), NotStored>> {
        let mut outcomes = ticket.await.into_iter();
        let settle = |(topic, spec): (Arc<Topic>, LogSpec)| {
            let stored = only_outcome(outcomes.next().as_ref());
            if stored.is_ok() {
                self.topics.insert(Arc::clone(&topic));
                self.reapply_log_spec(&topic, spec);
            } else {
                self.topics.release(&topic.name);
            }
            stored
        };
        claimed.into_iter().map(settle).collect()
    }

    /// Checks that topics could be created together, without creating them. Their names are claimed
    /// meanwhile.
    pub fn check_all(&self, new: &[NewTopic]) -> Vec<Result<(), CreateError>> {
        let checked: Vec<_> = new.iter().map(|topic| self.claim_new(topic)).collect();
        for (topic, _) in new.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()) {
            self.topics.release(&topic.name);
        }
        checked
    }

    fn check_new(&self, topic: &NewTopic) -> Result<(), CreateError> {
        TopicName::check(&topic.name)?;
        let partitions = topic.partitions.unwrap_or_else(|| self.defaults().partitions);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(CreateError::Partitions(partitions));
        }
        match self.topics.named_alike(&topic.name) {
            Some(other) if other.name == topic.name => Err(CreateError::Exists),
            Some(other) => Err(CreateError::Collides(other.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the parts of a run of logs that exist. Others may have been lost to damage of the journal, and
    /// an append that names one of them is refused.
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

    /// Returns the frames that delete a topic.
    pub(super) fn deletion(&self, topic: &Topic) -> Vec<Frame> {
        let logs = own_runs(topic).flat_map(|run| self.existing(run));
        let logs = logs.map(|(first, count)| Frame::DeleteLogs { first, count });
        logs.chain([stored(topic.id, Change::Delete)]).collect()
    }

    /// Deletes a topic and its logs; durable when this returns. `on_deleted` is called while the name is
    /// still claimed. Must run as a change of its own, or within one.
    pub async fn delete(&self, id: TopicId, on_deleted: impl FnOnce(&Topic)) -> Result<(), DeleteError> {
        let topic = self.topics.claim_existing(id).await;
        let topic = topic.ok_or(DeleteError::NoSuchTopic)?;
        // The name may not come back with an earlier topic.
        let earlier = self
            .superseded
            .iter()
            .filter(|earlier| earlier.name == topic.name);
        let frames = earlier.chain([&topic]).flat_map(|topic| self.deletion(topic));
        let deleted = store_synced(&*self.journal, frames).await;
        if deleted.is_ok() {
            self.topics.remove(&topic);
            on_deleted(&topic);
        }
        self.topics.release(&topic.name);
        deleted?;
        self.told().await;
        Ok(())
    }

    /// Adds partitions to a topic, for a total of `wanted`; durable when this returns. Must run as a change
    /// of its own, or within one.
    pub async fn grow(self: &Arc<Self>, id: TopicId, wanted: u32) -> Result<Arc<Topic>, GrowError> {
        self.grow_in(id, wanted, |topic, more| {
            let cells = self.cells();
            let last = topic.cells(cells.own, 0..topic.partitions()).pop();
            self.cells_of(topic.id, &topic.settings, last.map(|(cell, _)| cell), more)
        })
        .await
    }

    /// Adds the partitions that a topic of the first cell has more. Must run as a change of its own.
    pub(super) async fn grow_as(self: &Arc<Self>, like: &Topic) -> Result<Arc<Topic>, GrowError> {
        let total = like.partitions();
        let of_more = |topic: &Topic, _| like.cells(self.cells().own, topic.partitions()..total);
        self.grow_in(like.id, total, of_more).await
    }

    async fn grow_in(
        self: &Arc<Self>,
        id: TopicId,
        wanted: u32,
        cells_of_more: impl FnOnce(&Topic, u32) -> Vec<(u32, u32)>,
    ) -> Result<Arc<Topic>, GrowError> {
        let topic = self.topics.claim_existing(id).await;
        let topic = topic.ok_or(GrowError::NoSuchTopic)?;
        let spec = self.log_spec(&topic);
        let grown = self.store_grown(&topic, wanted, spec, cells_of_more).await;
        match &grown {
            Ok(grown) => {
                self.topics.insert(Arc::clone(grown));
                self.reapply_log_spec(grown, spec);
            }
            Err(_) => self.topics.release(&topic.name),
        }
        if grown.is_ok() {
            self.told().await;
        }
        grown
    }

    async fn store_grown(
        &self,
        topic: &Topic,
        wanted: u32,
        spec: LogSpec,
        cells_of_more: impl FnOnce(&Topic, u32) -> Vec<(u32, u32)>,
    ) -> Result<Arc<Topic>, GrowError> {
        let has = topic.partitions();
        let count = wanted.saturating_sub(has);
        if count == 0 {
            return Err(GrowError::NotMore { has, wanted });
        }
        if wanted > PARTITIONS_MAX {
            return Err(GrowError::TooMany(wanted));
        }
        let more = self.logs_in(topic.id, &cells_of_more(topic, count), has);
        let grown = topic.with_logs(runs(topic).chain(more.iter().copied()).collect());
        let logs = created(more.into_iter(), spec);
        let definition = stored(topic.id, Change::Put(grown.encode().into()));
        store_synced(&*self.journal, logs.chain([definition])).await?;
        Ok(Arc::new(grown))
    }

    /// Replaces the settings of a topic by the result of `edit`; durable when the change has ended.
    pub fn alter<E: Send + 'static>(
        self: &Arc<Self>,
        id: TopicId,
        edit: impl FnOnce(&TopicSettings) -> Result<TopicSettings, E> + Send + 'static,
    ) -> Changing<Arc<Topic>, AlterError<E>> {
        let catalog = Arc::clone(self);
        self.changes.begin(async move {
            let topic = catalog.topics.claim_existing(id).await;
            let topic = topic.ok_or(AlterError::NoSuchTopic)?;
            let altered = match edit(&topic.settings) {
                Ok(settings) => {
                    let settings = TopicSettings {
                        declared: topic.settings.declared.clone(),
                        spread: topic.settings.spread,
                        ..settings
                    };
                    catalog
                        .store_altered(&topic, settings)
                        .await
                        .map_err(AlterError::from)
                }
                Err(why) => Err(AlterError::Unwanted(why)),
            };
            match &altered {
                Ok((altered, spec)) => {
                    catalog.topics.insert(Arc::clone(altered));
                    catalog.reapply_log_spec(altered, *spec);
                }
                Err(_) => catalog.topics.release(&topic.name),
            }
            if altered.is_ok() {
                catalog.told().await;
            }
            altered.map(|(altered, _)| altered)
        })
    }

    async fn store_altered(
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
        store_synced(&*self.journal, frames).await?;
        Ok((Arc::new(altered), spec))
    }

    /// Lets a topic's logs follow the defaults, if these changed while its definition was being stored. A
    /// refusal is retried until the broker stops.
    fn reapply_log_spec(self: &Arc<Self>, topic: &Topic, stored: LogSpec) {
        let spec = self.log_spec(topic);
        if spec == stored {
            return;
        }
        let StageOutcome::Refused(why) = StageOutcome::of(&*self.journal, respec(topic, spec)) else {
            return;
        };
        tracing::warn!(
            "topic {}: its logs wait to follow the settings: {why}",
            topic.name
        );
        let (catalog, id, stop) = (Arc::downgrade(self), topic.id, self.stop.clone());
        let again = async move {
            loop {
                tokio::time::sleep(RETRY_AFTER).await;
                let Some(catalog) = catalog.upgrade() else { return };
                let Some(topic) = catalog.topics.with_id(id) else {
                    return;
                };
                let respec = respec(&topic, catalog.log_spec(&topic));
                match StageOutcome::of(&*catalog.journal, respec) {
                    StageOutcome::Stored
                    | StageOutcome::Waits(_)
                    | StageOutcome::Refused(Refusal::Closed) => return,
                    StageOutcome::Refused(_) => {}
                }
            }
        };
        drop(self.changes.begin(async move {
            stop.run_until_cancelled(again).await;
            Ok::<(), NotStored>(())
        }));
    }

    /// Checks a topic, and claims its name.
    fn claim_new(&self, new: &NewTopic) -> Result<(), CreateError> {
        self.check_new(new)?;
        self.claim_name(&new.name)?;
        if !is_internal(&new.name)
            && let Some(max) = self.topics.exceeded_bound(&new.name)
        {
            self.topics.release(&new.name);
            return Err(CreateError::TooMany { max });
        }
        Ok(())
    }

    fn claim_name(&self, name: &str) -> Result<(), CreateError> {
        match self.topics.claim(name) {
            Claim::Claimed => Ok(()),
            Claim::Exists => Err(CreateError::Exists),
            Claim::Changing => Err(CreateError::Changing),
            Claim::Collides(other) => Err(CreateError::Collides(other)),
        }
    }

    fn prepare(&self, new: NewTopic) -> Result<Arc<Topic>, CreateError> {
        self.claim_new(&new)?;
        let partitions = new.partitions.unwrap_or_else(|| self.defaults().partitions);
        let id = self.topics.new_id();
        let cells = self.cells_of(id, &new.settings, None, partitions);
        let settings = self.shared(new.settings);
        let logs = self.logs_in(id, &cells, 0);
        Ok(Arc::new(Topic::of_runs(id, new.name, logs, settings)))
    }

    /// Prepares a topic as in the first cell.
    fn prepare_as(&self, like: &Topic) -> Result<Arc<Topic>, CreateError> {
        self.claim_name(&like.name)?;
        let cells = like.cells(self.cells().own, 0..like.partitions());
        Ok(Arc::new(like.with_logs(self.logs_in(like.id, &cells, 0))))
    }

    /// Returns the cells of new partitions of a topic, as runs. `after` is the cell of the last one before.
    fn cells_of(
        &self,
        id: TopicId,
        settings: &TopicSettings,
        after: Option<u32>,
        partitions: u32,
    ) -> Vec<(u32, u32)> {
        let cells = self.cells();
        if settings.spread == Some(true) {
            return cells.spread(id, after, partitions);
        }
        vec![(cells.own, partitions)]
    }

    /// Returns logs for partitions from a number on in these cells: new ones here, and those that stand for
    /// logs in other cells.
    fn logs_in(&self, topic: TopicId, cells: &[(u32, u32)], mut partition: u32) -> Vec<(LogId, u32)> {
        let own = self.cells().own;
        let mut logs = Vec::with_capacity(cells.len());
        for (cell, count) in cells {
            let first = if *cell == own {
                self.journal.allocate(*count)
            } else {
                elsewhere(topic, *cell, partition)
            };
            partition += count;
            logs.push((first, *count));
        }
        logs
    }
}

fn runs(topic: &Topic) -> impl Iterator<Item = (LogId, u32)> {
    topic.log_runs().map(|(first, count)| (*first, *count))
}

/// Iterates over the logs of this cell.
fn own_runs(topic: &Topic) -> impl Iterator<Item = (LogId, u32)> {
    runs(topic).filter(|(first, _)| cell_of(*first).is_none())
}

/// Returns the frames that create those of logs that are of this cell.
fn created(logs: impl Iterator<Item = (LogId, u32)>, spec: LogSpec) -> impl Iterator<Item = Frame> {
    let own = logs.filter(|(first, _)| cell_of(*first).is_none());
    own.map(move |(first, count)| Frame::CreateLogs { first, count, spec })
}

/// Returns the frames that change the durability and retention of a topic's logs.
pub(super) fn respec(topic: &Topic, spec: LogSpec) -> impl Iterator<Item = Frame> {
    own_runs(topic).map(move |(first, count)| Frame::ChangeLogs { first, count, spec })
}

fn definition(topic: &Topic, spec: LogSpec) -> Append {
    let mut frames: Vec<Frame> = created(runs(topic), spec).collect();
    frames.push(stored(topic.id, Change::Put(topic.encode().into())));
    Append::state(frames, StateWait::Synced)
}

fn stored(id: TopicId, change: Change) -> Frame {
    spaces::TOPICS.change(Bytes::copy_from_slice(&id.0.to_be_bytes()), change)
}
