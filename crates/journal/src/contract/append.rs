//! Appends: their contents and conditions, and their outcomes.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{Durability, LogId, Offset, ProducerId};

/// Frames that are stored together or not at all, unless the append is divisible.
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
    /// True if batches for logs of several cells of a cluster may be stored cell by cell: where one cell does
    /// not store its part, the outcome is unknown. In one journal all is stored together.
    pub is_divisible: bool,
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
