//! Input topics that were deleted, and perhaps made again under their names.
//!
//! Records that a task had not done are lost with the topic before. Where the app stops at gaps, it rests
//! until an operator accepts that; else it goes on by itself. Each task then begins at the first record of
//! the new topic. State, timers and places in other topics stay.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_model::LogId;
use stafett_store::Changing;
use stafett_topics::{ReadEnd, ReadError, SPREAD, Topic, TopicCatalog};

use crate::app::App;
use crate::error::AppError;
use crate::slot::Slot;

/// Input topics of an app; `None` for one that is gone.
pub(crate) type Inputs = Vec<Option<Arc<Topic>>>;

/// Waits until the bounds of a partition of the topics are known, which may lie in other cells of a cluster.
pub(crate) async fn reach(
    catalog: &TopicCatalog,
    topics: impl Iterator<Item = &Arc<Topic>>,
    partition: u32,
) -> Result<(), AppError> {
    let logs: Vec<LogId> = topics.filter_map(|topic| topic.log(partition)).collect();
    if catalog.reach_logs(&logs).await {
        return Ok(());
    }
    let reason = "a cell of the cluster that it may lie in has no owner";
    Err(AppError::Input(ReadEnd::Failed(ReadError::Io {
        log: logs.first().copied().unwrap_or_default(),
        reason: reason.into(),
    })))
}

/// Refuses a topic with partitions in several cells, as records for it are stored with state of this cell.
pub(crate) fn check_whole(topic: &Topic, field: &'static str) -> Result<(), AppError> {
    if topic.is_whole() {
        return Ok(());
    }
    let why = format!("topic {:?}: {SPREAD}", topic.name);
    Err(AppError::Bad { field, why })
}

/// An input topic that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostTopic {
    pub name: Box<str>,
    /// True if there is another one of its name.
    pub is_made_again: bool,
}

impl App {
    /// Returns the input topics that are there.
    pub(crate) fn inputs(&self) -> Inputs {
        let topics = self.parts.catalog.topics();
        let stored = self.stored();
        stored.topics.iter().map(|id| topics.with_id(*id)).collect()
    }

    /// Returns the input topics. An error if one is gone.
    pub fn topics(&self) -> Result<Vec<Arc<Topic>>, AppError> {
        let stored = self.stored();
        let inputs = self.inputs().into_iter();
        let topics = inputs.zip(&stored.definition.topics).map(|(topic, name)| {
            topic.ok_or_else(|| match self.parts.catalog.topics().named(name) {
                Some(_) => AppError::TopicMadeAgain(name.clone()),
                None => AppError::NoSuchTopic(name.clone()),
            })
        });
        topics.collect()
    }

    /// Returns the input topics that are gone.
    pub fn lost_topics(&self) -> Vec<LostTopic> {
        let stored = self.stored();
        let names = stored.definition.topics.iter();
        let gone = self.inputs().into_iter().zip(names);
        let gone = gone.filter(|(topic, _)| topic.is_none());
        gone.map(|(_, name)| LostTopic {
            name: name.clone(),
            is_made_again: self.parts.catalog.topics().named(name).is_some(),
        })
        .collect()
    }

    /// Returns the error of a fetch whose topic went while it was read.
    pub(crate) fn gone_topic(&self) -> AppError {
        let first = || AppError::NoSuchTopic(self.stored().definition.topic(0));
        self.topics().err().unwrap_or_else(first)
    }

    /// Number of partitions that the app reads of each topic.
    pub fn partitions(&self) -> u32 {
        let stored = self.stored();
        let last = stored.tasks.last_key_value();
        last.map_or(0, |(task, _)| task.partition + 1)
    }

    /// Returns the input topics for a fetch. An app that does not stop at gaps takes topics that were made
    /// again.
    pub(crate) async fn readable_topics(&self) -> Result<Vec<Arc<Topic>>, AppError> {
        let topics = self.topics();
        let stops = self.stored().definition.stops_at_gap;
        if !matches!(topics, Err(AppError::TopicMadeAgain(_))) || stops {
            return topics;
        }
        if let Some(app) = self.this.upgrade() {
            app.accept_topics().await?;
        }
        self.topics()
    }

    /// Takes the topics that were made again. All claims end if there is one. Returns their names.
    pub fn accept_topics(self: &Arc<Self>) -> Changing<Vec<Box<str>>, AppError> {
        let app = Arc::clone(self);
        self.parts
            .changes
            .begin(async move { app.accept_topics_here().await })
    }

    async fn accept_topics_here(&self) -> Result<Vec<Box<str>>, AppError> {
        let turn = self.taking_topics.acquire().await;
        let _turn = turn.expect("the turn is never closed");
        let found = self.made_again()?;
        if found.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        for partition in 0..self.partitions() {
            reach(&self.parts.catalog, found.iter().flatten(), partition).await?;
        }
        let start = |topic: &Arc<Topic>, slot: &Slot| {
            let bounds = self.parts.catalog.bounds(topic.log(slot.task.partition)?)?;
            Some(bounds.start.0)
        };
        // Nothing is delivered until the row names the new topics, so a crash in between loses nothing more:
        // places are set again.
        let mut set: HashSet<LogId> = HashSet::new();
        loop {
            let slots: Vec<Arc<Slot>> = self.slots.read().values().cloned().collect();
            let left: Vec<_> = slots.iter().filter(|slot| !set.contains(&slot.log)).collect();
            if left.is_empty() {
                break;
            }
            for slot in left {
                let of = |topic: &Option<Arc<Topic>>| Some(start(topic.as_ref()?, slot).unwrap_or(0));
                let to: Vec<Option<u64>> = found.iter().map(of).collect();
                // One that was split meanwhile has followers.
                self.move_task(slot, &to, "topic").await?;
                set.insert(slot.log);
            }
        }
        let ids: Vec<_> = found.iter().map(|topic| Some(topic.as_ref()?.id)).collect();
        self.update(Vec::new(), |stored| {
            for (known, new) in stored.topics.iter_mut().zip(ids) {
                *known = new.unwrap_or(*known);
            }
        })
        .await?;
        let names: Vec<Box<str>> = found.iter().flatten().map(|topic| topic.name.clone()).collect();
        self.counts.gaps.inc_by((names.len() * set.len()) as u64);
        tracing::warn!(app = &*self.name, topics = ?names, "goes on with topics that were deleted and made again");
        Ok(names)
    }

    /// Returns the new topics, by input. An error if one has another number of partitions.
    fn made_again(&self) -> Result<Inputs, AppError> {
        let stored = self.stored();
        let mut found = Vec::new();
        for (topic, name) in self.inputs().iter().zip(&stored.definition.topics) {
            let named = self.parts.catalog.topics().named(name);
            let again = named.filter(|named| topic.is_none() && !named.id.is_queue());
            if let Some(again) = &again
                && again.partitions() != self.partitions()
            {
                return Err(AppError::NotCopartitioned {
                    one: name.clone(),
                    partitions: again.partitions(),
                    other: self.name.clone(),
                    others: self.partitions(),
                });
            }
            found.push(again);
        }
        Ok(found)
    }
}
