//! The journal: everything is written once, in arrival order, into one sequence; logs are indexes over it.
//!
//! The [`Journal`] trait is the contract: logs and offsets, never files. This crate knows only the headers of
//! batches, and no protocol, topic or queue at all.
//!
//! - `contract`: the trait and its types
//! - [`ticket`]: pending results of appends and reads
//! - `watch`: notification of growth; `disk_space`: notification of free disk space
//! - [`disk`]: the provider on local disk
//! - `memory`: the provider in memory
//! - `metrics`: metrics of a journal; `quantiles`: quantiles of their times
//! - `manual_journal`: a journal controlled by a test, behind the feature `testing`
//! - `simulated`: a disk with faults controlled by a test, behind the feature `testing`

mod contract;
pub mod disk;
mod disk_space;
#[cfg(any(test, feature = "testing"))]
pub mod manual_journal;
mod memory;
mod metrics;
mod quantiles;
mod request_ids;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;
pub mod ticket;
mod watch;

pub use contract::{
    AbortedTransaction, Append, BatchFrame, Bounds, Change, Compaction, Frame, Journal, LogSlice, LogSpec,
    OpenTransaction, Outcome, OwnerEpoch, PlacedBatch, Precondition, ProducerStatus, REQUESTS_KEPT, Reaching,
    ReadError, ReadFrom, ReadRequest, Refusal, RequestId, Retention, Selection, StateChange, StateItem,
    StateSpace, StateUnreadable, StateWait, Target, TimeQuery, Visibility,
};
pub use disk::{DiskJournal, OpenError, RecoveryReport, Settings};
pub use disk_space::DiskSpace;
#[cfg(any(test, feature = "testing"))]
pub use manual_journal::ManualJournal;
pub use memory::MemoryJournal;
pub use metrics::{Metrics, Observed, Observer};
pub use quantiles::TimeQuantiles;
pub use ticket::{ReadTicket, Ticket, TicketSettler, TicketView, TimeTicket};
pub use watch::{Watch, Watcher, Watchers};
