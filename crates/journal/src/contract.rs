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

mod append;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use stafett_model::{Epoch, LogId, Offset, ProducerId};

pub use self::append::{
    Append, BatchFrame, Change, Compaction, Frame, LogSpec, Outcome, OwnerEpoch, PlacedBatch, Precondition,
    REQUESTS_KEPT, Refusal, RequestId, Retention, Selection, StateChange, StateItem, StateSpace, StateWait,
    Target,
};
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

    /// Waits until the bounds of logs are known and they can be read, or it is clear that this does not come
    /// soon. `None` if it is so: of a journal of its own it always is.
    fn reach(&self, _logs: &[LogId]) -> Option<Reaching> {
        None
    }

    /// Returns the bounds of all logs that have records, in no order.
    fn filled(&self) -> Vec<(LogId, Bounds)>;

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

/// Wait for logs that cannot be read yet: true once they can.
pub type Reaching = Pin<Box<dyn Future<Output = bool> + Send>>;

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

impl Bounds {
    /// Returns true if there are offsets or bytes between start and end.
    pub fn has_any(&self) -> bool {
        self.end > self.start || self.bytes > 0
    }
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
