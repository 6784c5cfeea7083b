//! A queue as a pure state machine over logs: which message is delivered to which consumer next, and which
//! messages are in flight, returned and settled.
//!
//! No I/O, clock or protocol here, and no messages: only offsets. The driver reads the logs, reports their
//! contents, and stores the resulting [`Changes`]. The state's size depends on the messages in flight and on
//! the gaps between settled offsets, never on the number of waiting messages.
//!
//! - `settings`: settings of a queue; `changed_settings`: those changed while it exists;
//!   `policy_settings`: those that a policy makes; `settings_codec`: the stored form of each
//! - `offset_set`: a compressed set of offsets
//! - [`lane`]: delivery state over one log; a queue has one per priority in use
//! - `state`: all lanes of a queue, and the order between them
//! - `in_flight`: messages in flight of a lane
//! - [`consumers`]: choice of the next consumer
//! - `state_codec`: stored form of the state
//! - [`expiry`]: expiry of messages
//! - [`death_history`]: dead-letter history and cycle detection

mod changed_settings;
pub mod consumers;
pub mod death_history;
pub mod expiry;
mod in_flight;
pub mod lane;
mod offset_set;
mod policy_settings;
mod settings;
mod settings_codec;
mod state;
mod state_codec;

pub use changed_settings::{ChangedSettings, Setting};
pub use consumers::{ConsumerKey, ConsumerRules, Consumers};
pub use lane::{Lane, TakenRun};
pub use offset_set::OffsetSet;
pub use policy_settings::{DeliveryLimit, PolicySettings};
pub use settings::{DeadLetter, Overflow, QueueSettings};
pub use state::{DeliveryId, DeliveryInfo, LaneOrder, QueueState, ReadyMessage, ReturnOutcome};
pub use state_codec::{Changes, MalformedState};
