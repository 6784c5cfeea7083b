//! The journal: everything is written once, in arrival order, into one sequence; logs are indexes over it.
//!
//! The [`Journal`] trait is the contract: logs and offsets, never files. This crate knows only the headers of
//! batches, and no protocol, topic or queue at all.
//!
//! - [`contract`]: the trait and its types
//! - [`ticket`]: pending results of appends and reads
//! - [`watch`]: notification of growth; [`space`]: notification of free disk space
//! - [`disk`]: the provider on local disk
//! - [`memory`]: the provider in memory
//! - [`metrics`]: metrics of a journal
//! - `undecided`: a journal controlled by a test, behind the feature `testing`
//! - `simulated`: a disk with faults controlled by a test, behind the feature `testing`

pub mod contract;
pub mod disk;
pub mod memory;
pub mod metrics;
mod requests;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;
pub mod space;
pub mod ticket;
#[cfg(any(test, feature = "testing"))]
pub mod undecided;
pub mod watch;

pub use contract::{
    Append, BatchFrame, Bounds, Change, Frame, Journal, LogSpec, Outcome, OwnerEpoch, Placed, Precondition,
    ProducerSeen, REQUESTS_KEPT, ReadError, ReadFrom, ReadRequest, Refusal, RequestId, Retention, Run,
    Selection, StateChange, StateItem, StateSpace, StateUnreadable, StateWait, Target, TimeQuery,
};
pub use disk::{DiskJournal, OpenError, RecoveryReport, Settings};
pub use memory::MemoryJournal;
pub use metrics::Metrics;
pub use space::Space;
pub use ticket::{Glance, ReadTicket, Ticket, TimeTicket};
#[cfg(any(test, feature = "testing"))]
pub use undecided::UndecidedJournal;
pub use watch::Watch;
