//! A queue as a pure state machine over logs: which message goes to whom next, what is in flight, what came
//! back and what is settled.
//!
//! There is no I/O here, no clock and no protocol, and no message: only offsets. Whoever drives it reads the
//! logs, tells it what it read, and stores the [`Changes`] that it is given. Its size depends on what is in
//! flight and on how ragged the settled part is, never on how many messages wait.
//!
//! - [`settings`]: what a queue promises
//! - [`offset_set`]: a set of offsets, compressed
//! - [`lane`]: the delivery state over one log; a queue has one per priority in use
//! - [`state`]: all lanes of a queue, and the order between them
//! - `in_flight`: what somebody has
//! - [`consumers`]: who gets the next message
//! - [`change`]: what of the state outlives a restart, as bytes
//! - [`expiry`]: when a message has waited for too long
//! - [`deaths`]: the history of dead letters, and where it goes round in circles

pub mod change;
pub mod consumers;
pub mod deaths;
pub mod expiry;
mod in_flight;
pub mod lane;
pub mod offset_set;
pub mod settings;
pub mod state;

pub use change::{Changes, Malformed};
pub use consumers::{ConsumerKey, ConsumerRules, Consumers};
pub use lane::Lane;
pub use offset_set::OffsetSet;
pub use settings::{DeadLetter, Overflow, QueueSettings};
pub use state::{DeliveryId, HandedOut, LaneOrder, QueueState, Ready, Returned};
