//! Transactions: appends to many logs, and commits of groups, that count together or not at all.
//!
//! A transaction belongs to a transactional id, which one producer at a time uses. Its batches are ordinary
//! appends that name the producer; readers of committed batches stop before them. Its end is one append: a
//! control batch for all of its logs, the commits, and the state of the producer. So it is stored whole or
//! not at all, and there is nothing to be finished after a restart, but in other cells of a cluster. That a
//! transaction is open is known from the logs ([`stafett_journal::Journal::open_transactions`]).
//!
//! - `producer`: the state machine of one transactional id
//! - `registry`: all of them, their locks, and their steps
//! - `end`: how an end is stored
//! - `cells`: transactions over several cells, at their coordinator; `remote`: in the other cells
//! - `withdrawal`: deletion of groups and commits that transactions have
//! - `timeouts`: transactions that take too long, and ids that are not used any more
//! - `stored`: their rows; `metrics`; `error`

mod cells;
mod end;
mod error;
mod metrics;
mod producer;
mod registry;
mod remote;
mod stored;
mod timeouts;
mod withdrawal;

pub use cells::{COMMITS_ELSEWHERE_BYTES_MAX, Marker, Parts};
pub use error::TransactionError;
pub use producer::{Instance, Place, Status};
pub use registry::{Description, TransactionSettings, Transactions};
pub use remote::{Coordinator, RemoteMarker, RemoteTransactions};
