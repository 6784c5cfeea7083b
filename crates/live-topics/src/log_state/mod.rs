//! State of log delivery, without I/O but for the positions that are staged.
//!
//! - [`backlog`]: clients that are behind
//! - [`positions`]: positions of clients
//! - [`index`]: topics in the stretches of a log
//! - [`gap_notice`]: ranges that clients do not get

mod backlog;
mod gap_notice;
mod index;
mod positions;

pub(crate) use backlog::{Backlog, CatchUpPass, CatchUpRange, CatchUpRanges, NextRead, PartitionProgress};
pub use gap_notice::{GapNotice, GapReason};
pub(crate) use index::Index;
pub use positions::LogPosition;
pub(crate) use positions::{Beginning, ClientPositions, Positions, TopicStart};
