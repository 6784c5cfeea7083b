//! The contract of every journal: logs and offsets, never files.
//!
//! Everything acknowledged under a level survives that level's failure, in order, once. A refused append
//! never appears. An append whose outcome is unknown may or may not be present after a restart, as a whole.
//!
//! # Levels
//!
//! A log has a level, and an append may ask for a lower one ([`Append::level`]). Then:
//!
//! - It is acknowledged under its own level: at `os` it never waits for a sync, and may be lost with a loss
//!   of power.
//! - A log keeps one order. A batch becomes readable once it has reached its own level and every batch before
//!   it in the log is readable: behind one that waits for a sync, a lower one is acknowledged at once and
//!   becomes readable with that one.
//! - A batch acknowledged at a higher level keeps everything before it: recovery continues after a prefix of
//!   the appends, so a lower batch is lost only together with everything behind it.
//! - No offset is ever given to two records. For lower batches, offsets are reserved ahead, durably: the
//!   first such batch in a log since the start waits for that. After a stop that may have lost some, the log
//!   continues behind a gap.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{Durability, Epoch, LogId, Offset, ProducerId};

use crate::disk_space::DiskSpace;
use crate::ticket::{ReadTicket, Ticket, TimeTicket};
use crate::watch::Watch;

/// A journal: one sequence of frames, and logs as indexes over it.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Returns the epoch, the number of this start of the program, under which batches are written.
    fn epoch(&self) -> Epoch;

    /// Reserves `count` ids for logs that a later [`Frame::CreateLogs`] creates. Returns the first; the ids
    /// are contiguous.
    fn allocate(&self, count: u32) -> LogId;

    /// Stages appends in the order given. Each is atomic; the ticket resolves when all of them have an
    /// outcome. Appends to one log are stored in the order of staging.
    fn append(&self, appends: Vec<Append>) -> Ticket;

    /// True if an append under this id is stored or staged.
    fn knows(&self, request: RequestId) -> bool;

    /// Returns the preferred maximum size of an assembled batch. Larger ones are accepted as long as they fit
    /// at all.
    fn batch_bytes(&self) -> usize {
        usize::MAX
    }

    /// Returns the bounds of the log, or `None` if it does not exist.
    fn bounds(&self, log: LogId) -> Option<Bounds>;

    /// Returns the latest owner of the log, or `None` if the log does not exist.
    fn owner(&self, log: LogId) -> Option<OwnerEpoch>;

    /// Returns the log's idempotent producers by id, or `None` if the log does not exist.
    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>>;

    /// Returns the transactions that are open, of all logs.
    fn open_transactions(&self) -> Vec<OpenTransaction>;

    /// Reads whole batches of several logs, up to the end of each log.
    fn read(&self, request: ReadRequest) -> ReadTicket;

    /// Finds the first batch that may hold a record of the wanted time.
    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket;

    /// Creates an empty watch: add logs to it with [`Journal::watch_log`].
    fn watch(&self) -> Watch {
        Watch::new()
    }

    /// Notifies `watch` of growth of `log` under `token`. False if the log does not exist.
    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool;

    /// Returns the signal of short disk space.
    fn space(&self) -> DiskSpace;

    /// Visits the contents of a state space as of opening the journal: the values by key, then the deltas,
    /// those of a key in append order. Must be called before the first append.
    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable>;

    /// Returns the reason if the journal has failed permanently: it takes no more appends until it is
    /// reopened.
    fn failure(&self) -> Option<String>;

    /// Writes and syncs everything staged, stores a checkpoint and stops. Later appends are refused.
    fn close(&self);
}

/// Frames that are stored together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Append {
    pub frames: SmallVec<[Frame; 1]>,
    pub require: SmallVec<[Precondition; 1]>,
    /// Owner that appends. The append is refused if a log that it appends to or truncates has had a later
    /// owner. A later owner than all before takes over the logs that it appends to. `None` skips the check.
    pub owner: Option<OwnerEpoch>,
    /// Id under which the append can be sent again without effect: see [`RequestId`].
    pub request: Option<RequestId>,
    /// Lowers the level of this append's batches below that of their logs; never raises it. In logs at `os`
    /// and `interval`, `memory` counts as `os`: their offsets survive a killed process.
    pub level: Option<Durability>,
    /// True if the append settles or frees something. While space is short, an append without batches may use
    /// the reserved space, half of which is for these. Not needed for appends that truncate or delete logs,
    /// or only delete state.
    pub frees_space: bool,
    /// Durability wait of an append without batches. One with batches waits for the strictest of its logs.
    pub state: StateWait,
    /// True if an append with batches waits as `state` says, too.
    pub waits_for_state: bool,
    /// Bytes of the buffer that the bodies are slices of: the memory that they pin.
    pub pinned_bytes: usize,
}

/// Rank of an owner of a log: a later owner has a higher epoch. A log that was never owned has 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OwnerEpoch(pub u64);

/// Id of an append, unique to it.
///
/// An append under an id that was stored before is not stored again: it is committed with the places of the
/// first one, marked as duplicates, once that one has reached its level. The contents are not compared. A
/// refused append is not remembered and can be retried under the same id. The ids of the last
/// [`REQUESTS_KEPT`] appends with an id are known, regardless of age; they survive whatever their append
/// survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);

/// Number of request ids that are known.
pub const REQUESTS_KEPT: usize = 1 << 16;

/// Durability wait of an append that holds only state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateWait {
    /// Waits until it is synced.
    #[default]
    Synced,
    /// Waits until it is written; it is synced within 100 ms.
    Written,
}

/// Waits as strictly as batches at a level, but never less than until it is written.
impl From<Durability> for StateWait {
    fn from(level: Durability) -> Self {
        match level {
            Durability::Sync => Self::Synced,
            Durability::Memory | Durability::Os | Durability::Interval { .. } => Self::Written,
        }
    }
}

/// One frame of the journal.
#[derive(Debug, Clone)]
pub enum Frame {
    Batch(BatchFrame),
    State(StateChange),
    /// Creates the logs `first..first + count`, allocated by [`Journal::allocate`]: at most 65,536.
    CreateLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    /// Changes durability or retention of existing logs.
    ChangeLogs {
        first: LogId,
        count: u32,
        spec: LogSpec,
    },
    DeleteLogs {
        first: LogId,
        count: u32,
    },
    /// Frees everything before an offset.
    Truncate {
        log: LogId,
        before: Offset,
    },
    /// Takes over a log without appending to it: refused if it has had a later owner.
    Claim {
        log: LogId,
        owner: OwnerEpoch,
    },
}

/// A batch and its target logs: one body for any number of targets.
#[derive(Debug, Clone)]
pub struct BatchFrame {
    /// A batch in the stored layout, verified by the caller. Its placement is overwritten.
    pub body: Bytes,
    pub targets: SmallVec<[Target; 1]>,
}

/// A log that gets a batch or a part of it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub log: LogId,
    pub records: Selection,
}

/// Selection of records of a batch, by index.
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
    /// Replaces the key's value and all its deltas.
    Put(Bytes),
    /// Adds to the key's value; the owner of the state folds deltas into a new value from time to time.
    Delta(Bytes),
    Delete,
}

/// Namespace of keyed state. Each owner of state has a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateSpace(pub u16);

/// A recovered item of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateItem<'a> {
    Value { key: &'a [u8], value: &'a [u8] },
    Delta { key: &'a [u8], delta: &'a [u8] },
}

/// Condition on staging an append, checked under the locks of its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Next offset of a log.
    NextOffset { log: LogId, offset: Offset },
    /// The log has batches of the producer. Else the append is refused as out of sequence: `first` is the
    /// sequence number of its batch.
    HasBatchesOf {
        log: LogId,
        producer: ProducerId,
        first: i32,
    },
}

impl Precondition {
    /// Returns the log that the condition is about.
    pub fn log(&self) -> LogId {
        match self {
            Self::NextOffset { log, .. } | Self::HasBatchesOf { log, .. } => *log,
        }
    }
}

/// Settings of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSpec {
    pub durability: Durability,
    pub retention: Retention,
    /// Compaction by key; `None` keeps every record.
    pub compaction: Option<Compaction>,
}

/// Retention of a log; by default unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
}

/// Compaction of a log: of the records with the same key, the newest stays. A record without a value, a
/// tombstone, deletes its key. Offsets do not change: those of removed records become gaps, and a batch may
/// be left without records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Compaction {
    /// Time for which a tombstone is kept after the first compaction of the records before it.
    pub tombstones_kept: Duration,
    /// Age, by timestamp, that a record reaches before it takes part.
    pub lag_min: Duration,
    /// Age of the oldest record not yet compacted from which compaction no longer waits for
    /// `dirty_share_min`; `None` for no bound.
    pub lag_max: Option<Duration>,
    /// Share of the log's bytes that has to be not yet compacted, in millionths.
    pub dirty_share_min: u32,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            tombstones_kept: Duration::from_hours(24),
            lag_min: Duration::ZERO,
            lag_max: None,
            dirty_share_min: 500_000,
        }
    }
}

/// Outcome of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stored at its level. One entry per target of its batches, in their order.
    Committed(SmallVec<[PlacedBatch; 1]>),
    /// Not stored, and never will be.
    Refused(Refusal),
    /// The journal failed or stopped before the outcome was known.
    Unknown,
}

/// Place of a stored batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedBatch {
    pub log: LogId,
    pub base: Offset,
    /// True if the batch was stored before: an idempotent producer sent it again.
    pub duplicate: bool,
}

/// Reason for refusing an append.
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
    #[error("producer {producer:?} has an open transaction in {log}, and sent a batch outside of it")]
    OutsideTransaction { log: LogId, producer: ProducerId },
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

/// Start and end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First readable offset.
    pub start: Offset,
    /// Offset behind the last readable one.
    pub end: Offset,
    /// End, or the first offset of a transaction before it whose end is not readable yet: every batch before
    /// this is committed or aborted.
    pub stable: Offset,
    /// Approximate stored bytes between start and end.
    pub bytes: u64,
}

/// State of an idempotent producer of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStatus {
    pub id: ProducerId,
    pub epoch: i16,
    /// Sequence number of its last record.
    pub sequence: i32,
    /// Arrival of its last batch, ms since 1970.
    pub at: i64,
    /// First offset of its open transaction.
    pub open: Option<Offset>,
}

/// Transaction of a producer that has written to a log and has not ended there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    pub log: LogId,
    pub producer: ProducerId,
    /// Latest epoch of the producer in the log; -1 if it is unknown.
    pub epoch: i16,
    /// Offset of its first batch.
    pub first: Offset,
}

/// Aborted transaction of a log: the batches of the producer in between do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer: ProducerId,
    /// Offset of its first batch.
    pub first: Offset,
    /// Offset of its control batch.
    pub last: Offset,
}

/// Visibility of the batches of open and aborted transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visibility {
    /// Every stored batch, up to the end.
    #[default]
    Stored,
    /// Batches before [`Bounds::stable`]; with them the aborted transactions that they belong to.
    Committed,
}

/// A read of several logs.
#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    pub logs: Vec<ReadFrom>,
    /// Byte limit for all logs together.
    pub bytes_max: usize,
    /// True if the first batch found is returned even if it exceeds the limits.
    pub first_batch_whole: bool,
}

/// Start of a read of one log. The first batch returned is the one that contains the offset.
#[derive(Debug, Clone, Copy)]
pub struct ReadFrom {
    pub log: LogId,
    pub offset: Offset,
    pub bytes_max: usize,
    pub visibility: Visibility,
}

/// Batches read from one log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogSlice {
    /// Whole batches, in order, split into pieces at arbitrary places.
    pub pieces: Vec<Bytes>,
    pub bytes: usize,
    /// Offset behind the last batch, or the wanted offset if there is none.
    pub next: Offset,
    pub bounds: Option<Bounds>,
    /// Aborted transactions with offsets in the range read, by their first offset. Empty unless the read was
    /// one of committed batches.
    pub aborted: Vec<AbortedTransaction>,
}

/// Reason why a log could not be read.
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

/// Search for a batch by its records' time, in ms since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeQuery {
    /// First batch with a record at or after the time.
    AtOrAfter(i64),
    /// Batch with the latest record; the first such batch.
    Latest,
}

/// Error: the recovered state could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the recovered state cannot be read: {0}")]
pub struct StateUnreadable(pub String);

impl Append {
    /// Creates an append of one batch to one log.
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

    /// Limits the append's level to at most `level`.
    #[must_use]
    pub fn at(self, level: Durability) -> Self {
        Self {
            level: Some(level),
            ..self
        }
    }

    /// Creates an append of frames without batches.
    pub fn state(frames: impl IntoIterator<Item = Frame>, state: StateWait) -> Self {
        Self {
            frames: frames.into_iter().collect(),
            state,
            ..Self::default()
        }
    }
}
