//! Refusals of commands.

use stafett_journal::Refusal;
use stafett_store::NotStored;
use stafett_topics::{ReadEnd, RecordError};

use crate::machine::{AssignError, DrainError, WorkerError};
use crate::task::TaskId;

/// Refusal of a command on an app. Nothing was stored, unless the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    #[error("there is no app of this name")]
    NoSuchApp,
    #[error("the app is there and differs in {0}")]
    ExistsDifferently(&'static str),
    #[error("workers hold tasks of the app")]
    InUse,
    #[error("the app is not paused")]
    NotPaused,
    #[error("the app is paused")]
    Paused,
    #[error("{why}")]
    Bad { field: &'static str, why: String },
    #[error("there is no topic {0:?}")]
    NoSuchTopic(Box<str>),
    #[error("topic {0:?} was deleted and made again: its records that were not done are lost")]
    TopicMadeAgain(Box<str>),
    #[error(
        "topic {one:?} has {partitions} partitions, and {other:?} has {others}: each task has one of all"
    )]
    NotCopartitioned {
        one: Box<str>,
        partitions: u32,
        other: Box<str>,
        others: u32,
    },
    #[error("there are {max} apps, as many as may be")]
    TooManyApps { max: usize },
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("the app has no task {0}")]
    NoSuchTask(TaskId),
    #[error("task {0} cannot be cut into as many slices: a slice has 10 bits at most")]
    TooFine(TaskId),
    #[error("the app, or a worker of it, reads whole partitions")]
    NotSplittable,
    #[error("task {0} has entries in tables whose entries belong to the task as a whole")]
    NotKeyed(TaskId),
    #[error("task {task} has an entry or a timer under {key:?}, a key of another slice: delete it first")]
    Stray { task: TaskId, key: Box<str> },
    #[error("there is no queue {0:?}")]
    NoSuchQueue(Box<str>),
    #[error("queue {0:?} is as long as it may be")]
    QueueFull(Box<str>),
    #[error("a result for queue {0:?} is larger than a message may be")]
    MessageTooLarge(Box<str>),
    #[error("the worker is not there now")]
    NoSuchWorker,
    #[error("the app has no table {0:?}")]
    NoSuchTable(Box<str>),
    #[error("the next commit of task {task} is {expected}, not {given}")]
    OutOfOrder { task: TaskId, expected: u64, given: u64 },
    #[error("{field} of {topic:?} is {given}, and has to be between {from} and {to}")]
    BadOffset {
        field: &'static str,
        topic: Box<str>,
        given: u64,
        from: u64,
        to: u64,
    },
    #[error("{what} would be larger than {max}")]
    TooLarge { what: &'static str, max: u64 },
    #[error("a result for topic {topic:?}: {why}")]
    Emit { topic: Box<str>, why: RecordError },
    #[error("task {task} rests at a gap of topic {topic:?}: offsets {from} to {to} are gone")]
    Gap {
        task: TaskId,
        topic: Box<str>,
        from: u64,
        to: u64,
    },
    #[error(
        "task {task} stops at offset {offset} of topic {topic:?}, which failed {attempts} times: {error}"
    )]
    Failed {
        task: TaskId,
        topic: Box<str>,
        offset: u64,
        attempts: u32,
        error: Box<str>,
    },
    #[error("task {task} stops at a timer of {due}, which failed {attempts} times: {error}")]
    TimerFailed {
        task: TaskId,
        due: i64,
        attempts: u32,
        error: Box<str>,
    },
    #[error("the log of task {task} cannot be read: {why}")]
    Unreadable { task: TaskId, why: String },
    #[error("an input of the task cannot be read: {0}")]
    Input(ReadEnd),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl AppError {
    /// Returns the epoch of a later owner of a task's log, for a refusal that tells of one; else 0.
    pub(crate) fn later_epoch(&self) -> u64 {
        if let Self::NotStored(NotStored::Refused(Refusal::StaleOwner { current, .. })) = self {
            current.0
        } else {
            0
        }
    }
}

impl From<AssignError> for AppError {
    fn from(why: AssignError) -> Self {
        match why {
            AssignError::NoSuchTask(task) => Self::NoSuchTask(task),
            AssignError::NoSuchWorker => Self::NoSuchWorker,
        }
    }
}

impl From<DrainError> for AppError {
    fn from(DrainError: DrainError) -> Self {
        Self::NoSuchWorker
    }
}
