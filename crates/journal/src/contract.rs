//! The contract of every journal: logs and offsets, never files.
//!
//! What was acknowledged under a level is there after that level's failure, in order, once. What was refused
//! never appears. An append whose outcome is unknown may or may not be there after a restart, as a whole.
//!
//! # Levels
//!
//! A log has a level, and an append may ask for a lower one ([`Append::level`]). Then:
//!
//! - It is acknowledged under its own level: at `os` it never waits for a sync, and after a loss of power it
//!   may be gone.
//! - The order in a log stays one. A batch can be read once it has reached its own level and every batch
//!   before it in that log can be read: behind one that waits for a sync, a lower one is acknowledged at once
//!   and is read when that one is.
//! - What was acknowledged at a higher level keeps what lies before it: recovery goes on behind a prefix of
//!   what was appended, so a lower batch is lost only together with everything behind it.
//! - No offset ever names two records. Where lower batches were appended, offsets are reserved ahead,
//!   durably: the first of them in a log since the start waits for that, and after an end that may have lost
//!   some, the log goes on behind a gap.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{Durability, Epoch, LogId, Offset, ProducerId};

use crate::space::Space;
use crate::ticket::{ReadTicket, Ticket, TimeTicket};
use crate::watch::Watch;

/// A journal: one sequence of frames, and logs as indexes over it.
pub trait Journal: Send + Sync + fmt::Debug {
    /// The start of the program under which batches are being written.
    fn epoch(&self) -> Epoch;

    /// Reserves `count` ids for logs that a later [`Frame::CreateLogs`] creates: the first of a run without
    /// holes.
    fn allocate(&self, count: u32) -> LogId;

    /// Stages appends in the order given. Each is atomic; the ticket resolves when all of them have an
    /// outcome. Appends to the same log are stored in the order in which they were staged.
    fn append(&self, appends: Vec<Append>) -> Ticket;

    /// Bytes up to which a batch that is put together fits well. Larger ones are taken as long as they fit at
    /// all.
    fn batch_bytes(&self) -> usize {
        usize::MAX
    }

    /// Where the log starts and ends, or `None` if there is no such log.
    fn bounds(&self, log: LogId) -> Option<Bounds>;

    /// The latest owner that the log has had, or `None` if there is no such log.
    fn owner(&self, log: LogId) -> Option<OwnerEpoch>;

    /// The idempotent producers of which the log knows, by id, or `None` if there is no such log.
    fn producers(&self, log: LogId) -> Option<Vec<ProducerSeen>>;

    /// Reads whole batches of several logs, none of them beyond what is visible.
    fn read(&self, request: ReadRequest) -> ReadTicket;

    /// Finds the first batch that may hold a record of the wanted time.
    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket;

    /// An empty watch: add logs to it with [`Journal::watch_log`].
    fn watch(&self) -> Watch {
        Watch::new()
    }

    /// Lets `watch` hear of growth of `log` under `token`. False if there is no such log.
    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool;

    /// Whether space is short, and when it is not any more.
    fn space(&self) -> Space;

    /// Visits what a space of keyed state held when the journal was opened: the values, by key, and then the
    /// deltas, those of a key in the order in which they were appended. Call it before the first append.
    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable>;

    /// Why the journal can take no more appends for good, if so: it has to be opened again.
    fn failure(&self) -> Option<String>;

    /// Writes and syncs what is staged, stores a checkpoint and stops. Later appends are refused.
    fn close(&self);
}

/// What is stored together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Append {
    pub frames: SmallVec<[Frame; 1]>,
    pub require: SmallVec<[Precondition; 1]>,
    /// Who appends. It is refused if a log that it appends to or truncates has had a later owner; where it is
    /// itself later than all before, it takes over the logs that it appends to. Without, nobody is asked.
    pub owner: Option<OwnerEpoch>,
    /// Names the append, so that it can be sent again without harm: see [`RequestId`].
    pub request: Option<RequestId>,
    /// Lowers the level of this append's batches below that of their logs; it never raises it. In logs at
    /// `os` and `interval`, `memory` counts as `os`: their offsets outlive a killed process.
    pub level: Option<Durability>,
    /// Where space is short, an append without batches may use what is kept back: of that, half is for those
    /// that settle or free something, which this says. Appends that truncate or delete logs, or do nothing
    /// but delete state, need not say so.
    pub frees_space: bool,
    /// How long an append without batches waits. One with batches waits for the strictest of its logs.
    pub state: StateWait,
    /// Bytes of the buffer that the bodies are slices of: what keeping them costs.
    pub pinned_bytes: usize,
}

/// Which of those that have owned a log one after the other: a later one has a higher epoch. A log that
/// nobody has owned has 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OwnerEpoch(pub u64);

/// The name of an append, which its sender gives to no other.
///
/// An append under an id that was stored before is not stored again: it is committed with the places of the
/// first one, marked as duplicates, once that one has reached its level. Whether it is the same append is not
/// looked at. What was refused is not remembered, and can be tried again under the same id. The ids of the
/// last [`REQUESTS_KEPT`] appends that had one are known, however old; they outlive whatever their append
/// outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);

/// How many request ids are known.
pub const REQUESTS_KEPT: usize = 1 << 16;

/// How long an append that holds only state waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateWait {
    /// Until it is synced.
    #[default]
    Synced,
    /// Until it is written; it is synced within 100 ms.
    Written,
}

/// One frame of the journal.
#[derive(Debug, Clone)]
pub enum Frame {
    Batch(BatchFrame),
    State(StateChange),
    /// Creates the logs `first..first + count`, which [`Journal::allocate`] gave out: at most 65,536 of them.
    CreateLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    /// Changes durability or retention of logs that exist.
    ChangeLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    DeleteLogs {
        first: LogId,
        count: u32,
    },
    /// Frees what lies before an offset.
    Truncate {
        log: LogId,
        before: Offset,
    },
    /// Takes a log over without appending to it: refused if it has had a later owner.
    Claim {
        log: LogId,
        owner: OwnerEpoch,
    },
}

/// A batch and the logs that get it: one body, however many targets.
#[derive(Debug, Clone)]
pub struct BatchFrame {
    /// A batch in the stored layout, verified by the caller. Its placement is written anew.
    pub body: Bytes,
    pub targets: SmallVec<[Target; 1]>,
}

/// One log that gets a batch or a part of it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub log: LogId,
    pub records: Selection,
}

/// Which records of a batch, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    All,
    Range { first: u32, count: u32 },
}

/// Keyed state beside the logs: definitions, commits, settlements. The space 65,535 is the journal's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    pub space: StateSpace,
    pub key: Bytes,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Replaces the key's value and every delta since.
    Put(Bytes),
    /// Adds to the key's value; the owner folds deltas into a new value now and then.
    Delta(Bytes),
    Delete,
}

/// Whose state it is. Each owner of state has a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateSpace(pub u16);

/// A piece of state as it was recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateItem<'a> {
    Value { key: &'a [u8], value: &'a [u8] },
    Delta { key: &'a [u8], delta: &'a [u8] },
}

/// What has to hold when an append is staged, decided under the locks of its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The next offset of a log.
    NextOffset { log: LogId, offset: Offset },
}

/// What a log promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSpec {
    pub durability: Durability,
    pub retention: Retention,
}

/// How long a log keeps its batches; nothing set keeps them for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
}

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stored at its level. One entry per target of its batches, in their order.
    Committed(SmallVec<[Placed; 1]>),
    /// Not stored, and never will be.
    Refused(Refusal),
    /// The journal failed or stopped before it could tell.
    Unknown,
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub log: LogId,
    pub base: Offset,
    /// The batch was there already: an idempotent producer sent it again.
    pub duplicate: bool,
}

/// Why an append was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0} does not exist")]
    NoSuchLog(LogId),
    #[error("{log} is fenced: some of its batches are damaged")]
    Fenced { log: LogId },
    #[error("producer {producer:?} sent sequence {given} to {log}, expected {expected}")]
    OutOfSequence {
        log: LogId,
        producer: ProducerId,
        given: i32,
        expected: i32,
    },
    #[error("producer {producer:?} wrote to {log} with epoch {given}, which epoch {current} replaced")]
    StaleProducer {
        log: LogId,
        producer: ProducerId,
        given: i16,
        current: i16,
    },
    #[error("{log} is at offset {next}, not at {expected}")]
    NotAtOffset {
        log: LogId,
        next: Offset,
        expected: Offset,
    },
    #[error("{log} has an owner of epoch {current}, later than {given}", given = .given.0, current = .current.0)]
    StaleOwner {
        log: LogId,
        given: OwnerEpoch,
        current: OwnerEpoch,
    },
    #[error("{0} has no offsets left")]
    OffsetsExhausted(LogId),
    #[error("a batch of {bytes} bytes does not fit into a segment of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the disk is full")]
    DiskFull,
    #[error("the journal is closed")]
    Closed,
}

/// Where a log starts and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that can be read.
    pub start: Offset,
    /// Behind the last offset that can be read.
    pub end: Offset,
    /// Stored bytes between the two, about.
    pub bytes: u64,
}

/// An idempotent producer of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerSeen {
    pub id: ProducerId,
    pub epoch: i16,
    /// Of its last record.
    pub sequence: i32,
    /// When its last batch came, ms since 1970.
    pub at: i64,
}

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    pub logs: Vec<ReadFrom>,
    /// Bytes for all logs together.
    pub bytes_max: usize,
    /// Whether the first batch found is returned even if it alone is larger than the bounds.
    pub first_batch_whole: bool,
}

/// From where to read one log. The first batch returned is the one that holds the offset.
#[derive(Debug, Clone, Copy)]
pub struct ReadFrom {
    pub log: LogId,
    pub offset: Offset,
    pub bytes_max: usize,
}

/// What was read of one log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Whole batches, in order, cut into pieces anywhere.
    pub pieces: Vec<Bytes>,
    pub bytes: usize,
    /// Behind the last record of the last batch, or the wanted offset if there is none.
    pub next: Offset,
    pub bounds: Option<Bounds>,
}

/// Why a log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("{0} does not exist")]
    NoSuchLog(LogId),
    #[error("{log} has offsets {start} to {end}, not {wanted}")]
    OutOfRange {
        log: LogId,
        wanted: Offset,
        start: Offset,
        end: Offset,
    },
    #[error("{log} is damaged from offset {from} to {to}")]
    Damaged { log: LogId, from: Offset, to: Offset },
    #[error("{log} could not be read: {reason}")]
    Io { log: LogId, reason: Arc<str> },
}

/// Which batch to look for, by its records' time in ms since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeQuery {
    /// The first batch with a record at or after the time.
    AtOrAfter(i64),
    /// The batch with the latest record, the first of them.
    Latest,
}

/// The recovered state could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the recovered state cannot be read: {0}")]
pub struct StateUnreadable(pub String);

impl Append {
    /// An append of one batch to one log.
    pub fn batch(log: LogId, body: Bytes) -> Self {
        let pinned_bytes = body.len();
        let targets = SmallVec::from_buf([Target {
            log,
            records: Selection::All,
        }]);
        let frame = Frame::Batch(BatchFrame { body, targets });
        Self {
            frames: SmallVec::from_buf([frame]),
            pinned_bytes,
            ..Self::default()
        }
    }

    /// The same append at a level no higher than `level`.
    #[must_use]
    pub fn at(self, level: Durability) -> Self {
        Self {
            level: Some(level),
            ..self
        }
    }

    /// An append of frames that hold no batch.
    pub fn state(frames: impl IntoIterator<Item = Frame>, state: StateWait) -> Self {
        Self {
            frames: frames.into_iter().collect(),
            state,
            ..Self::default()
        }
    }
}
