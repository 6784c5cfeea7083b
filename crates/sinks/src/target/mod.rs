//! Targets: stores that take rows and remember how far they are.
//!
//! Position and fence are the target's own: `open` raises a number there, and a write under a lower one is
//! refused. So nothing depends on the source of the records, or on a clock. A position names its topic by the
//! id that the broker gave it: another topic of the same name has other records.

pub mod amqp;
pub mod clickhouse;
pub mod delta;
pub mod files;
mod ledger;
pub mod mongodb;
pub mod postgres;
mod steps;
pub mod topic;
pub mod webhook;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use stafett_expr::PlacedRecord;
use stafett_model::StoredRecord;
use stafett_objects::RemoteError;
use uuid::Uuid;

use crate::broker::Servers;
use crate::definition::{Definition, SourceSpec, TargetSpec};
use crate::rows::Slice;
use amqp::AmqpTarget;
use clickhouse::Clickhouse;
use delta::Delta;
use files::{Files, WallClock};
pub use ledger::Ledger;
use mongodb::Mongodb;
use postgres::Postgres;
pub use steps::Steps;
use topic::TopicTarget;
use webhook::Webhook;

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub topic: String,
    pub partition: u32,
}

impl Place {
    /// Returns a record of it as steps see it.
    pub(crate) fn holding<'a>(&'a self, record: &'a StoredRecord) -> PlacedRecord<'a> {
        PlacedRecord {
            topic: &self.topic,
            partition: self.partition,
            record,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A place as its broker has it, with the offset from which a target goes on that knows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub next: u64,
    /// Offset of the first record that is still there.
    pub earliest: u64,
    /// Id of the topic. `None` for a queue, and where a broker gives topics no ids.
    pub topic: Option<Uuid>,
}

impl Start {
    /// A place whose topic has no id.
    pub fn at(next: u64) -> Self {
        Self {
            next,
            earliest: next,
            topic: None,
        }
    }

    /// The same place, to go on from another offset.
    #[must_use]
    pub fn with_next(self, next: u64) -> Self {
        Self { next, ..self }
    }

    /// The same place, without the id of its topic.
    #[must_use]
    pub fn unnamed(self) -> Self {
        Self { topic: None, ..self }
    }

    /// Compares the id with that of a position. One that is not known may be the same.
    pub(crate) fn is_of(&self, known: Option<Uuid>) -> bool {
        known.is_none() || self.topic.is_none() || known == self.topic
    }
}

/// State of a place in a target that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Offset behind all that the target has.
    pub next: u64,
    /// Number under which later writes count.
    pub epoch: u64,
    /// End of a batch that was begun and not finished. It is written again within the same bounds.
    pub begun: Option<u64>,
    /// Id of the topic whose position this is, where the target has it. A place that is opened with an id has
    /// it from then on; without one, it keeps its own.
    pub topic: Option<Uuid>,
}

/// Rows to store, with the position behind them.
#[derive(Debug)]
pub struct Part<'a> {
    pub place: &'a Place,
    pub epoch: u64,
    /// Position before.
    pub from: u64,
    /// Position behind.
    pub next: u64,
    /// Bounds of the batch of which this is all or a part.
    pub batch: (u64, u64),
    pub rows: Slice<'a>,
    /// Records between the two, for the line of the flush.
    pub records: u64,
}

/// Promise of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    ExactlyOnce,
    /// As long as the store knows a batch that comes again: within its window.
    ExactlyOnceWithin,
    AtLeastOnce,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExactlyOnce => "exactly once",
            Self::ExactlyOnceWithin => "exactly once within the window of the store",
            Self::AtLeastOnce => "at least once",
        })
    }
}

/// Reason why a target did not do as it was asked. Each says if a retry is of use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Away, slow, locked, or the outcome is unknown: open again, and compare the position.
    #[error("{0}")]
    Retry(String),
    /// One of the rows will never be taken: type, constraint or size.
    #[error("{text}")]
    Poison { class: String, text: String },
    /// Nothing will be taken until settings, rights or space are other ones.
    #[error("{0}")]
    Stop(String),
    /// Another writer has the place.
    #[error("another writer took {0} over")]
    Fenced(Place),
    /// The position is one of an earlier topic of that name.
    #[error(
        "topic_made_again: the topic of {0} was deleted and made again; accept-gap goes on from its first record"
    )]
    MadeAgain(Place),
}

impl From<RemoteError> for TargetError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Retry(text) => Self::Retry(text),
            RemoteError::Stop(text) => Self::Stop(text),
        }
    }
}

/// A place that takes rows and remembers how far it is.
#[async_trait]
pub trait Target: Send {
    /// Takes a partition over, so that earlier writers are refused, and says from where to go on. A place of
    /// which the target knows nothing begins at `start.next`.
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError>;

    /// Stores rows and position, or neither.
    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError>;

    /// Returns the positions that are there, without taking anything over.
    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError>;

    /// Sets a position, of a sink that is stopped: also that of another topic of the same name. Earlier
    /// writers are refused from then on.
    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError>;

    /// Has a place that `open` gave under an epoch go on elsewhere, behind a gap or in another topic: all its
    /// rows count as before. If another writer has taken it over since, that is `Fenced`.
    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError>;

    /// Returns statements for, or names of, missing parts; and makes them if `make` says so.
    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError>;

    fn promise(&self) -> Promise;
}

/// Surroundings of targets, beside their definitions.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub steps: Steps,
    pub wall: WallClock,
    /// The broker of the sink.
    pub servers: Servers,
    /// Hosts in private networks to which webhooks may go; `*` is all of them.
    pub webhook_allow: Vec<String>,
    /// Positions of a target that holds none.
    pub ledger: Option<Arc<dyn Ledger>>,
}

/// Returns the promise of a sink: that of its target, but messages of a queue may come twice.
pub fn promise_of(definition: &Definition, target: &dyn Target) -> Promise {
    match definition.source {
        SourceSpec::Queue(_) => Promise::AtLeastOnce,
        SourceSpec::Own | SourceSpec::Broker(_) => target.promise(),
    }
}

/// Makes the target of a sink.
pub fn target_of(definition: &Definition, surroundings: &Surroundings) -> Box<dyn Target> {
    let (name, columns, steps) = (&definition.name, &definition.columns, surroundings.steps.clone());
    match &definition.target {
        TargetSpec::Files(spec) => Box::new(Files::new(name, spec, columns, surroundings.wall, steps)),
        TargetSpec::Postgres(spec) => Box::new(Postgres::new(name, spec, columns, &definition.mode, steps)),
        TargetSpec::Topic(spec) => Box::new(TopicTarget::new(name, spec, columns, surroundings)),
        TargetSpec::Amqp(spec) => Box::new(AmqpTarget::new(name, spec, columns, surroundings)),
        TargetSpec::Webhook(spec) => Box::new(Webhook::new(name, spec, columns, surroundings)),
        TargetSpec::Ducklake(spec) => Box::new(Postgres::of_lake(name, spec, columns, steps)),
        TargetSpec::Delta(spec) => Box::new(Delta::new(name, spec, columns, surroundings.wall, steps)),
        TargetSpec::Mongodb(spec) => Box::new(Mongodb::new(name, spec, columns, steps)),
        TargetSpec::Clickhouse(spec) => Box::new(Clickhouse::new(name, spec, columns, surroundings)),
    }
}
