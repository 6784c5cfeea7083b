//! Delivery: messages of a list of logs are handed out to consumers, settled, and their state is stored.
//!
//! A [`Dispatcher`] is a pure state machine (crate `stafett_queue`) behind a short lock, over a list of logs.
//! Its memory does not depend on the number of waiting messages. It does not know its owner but for a few
//! events ([`DispatcherOwner`]); nothing here knows queues, namespaces, exchanges or topics by name.
//!
//! - `context`: journal, clock, tasks and lists of work of all dispatchers of one kind
//! - `dispatcher`: one dispatcher and its state; `lanes`: its logs; `grown_lanes`: those to check for growth
//! - `hand_out`: the hand-out; `expire`: messages that expire or are dropped instead; `read_ahead`: reading
//! - `consumers`: consumers; `pull`: messages pulled by a caller; `search`: reads without effect
//! - `filtered`: consumers with a filter; `finder`: the search for their messages
//! - `selection`: an index of messages by the value of a header
//! - `leases`: messages in flight that return after a time; `held`: messages in flight with their holders
//! - `settling`: settlements and purges; `settle_on_append`: settlement by an append that stores elsewhere;
//!   `dead_letters`: messages that have died
//! - `settings`: settings in force, and their change; `room`: room within the limits
//! - `counts`: counters of one dispatcher, and their sampling
//! - `outbox`: deliveries that wait for their connection; `shared_credit`: credit shared by consumers;
//!   `source`: origins of deliveries
//! - `persistence`: stores settlements and frees logs; `marking`: stores hand-out marks, ahead of the
//!   hand-out
//! - `startup_scan`: after a start, removes transient messages of the previous run
//! - `wakeups`: tasks that hand out when a log has grown; `expiry_timer`: deadlines

mod consumers;
mod context;
mod counts;
mod dead_letters;
mod dispatcher;
mod expire;
mod expiry_timer;
mod filtered;
mod finder;
mod grown_lanes;
mod hand_out;
mod held;
mod lanes;
mod leases;
mod marking;
mod metrics;
mod outbox;
mod persistence;
mod pull;
mod read_ahead;
mod room;
mod search;
mod selection;
mod settings;
mod settle_on_append;
mod settling;
mod shared_credit;
mod source;
mod startup_scan;
#[cfg(test)]
mod tests;
mod wakeups;

pub use consumers::{Consumer, ConsumerSpec, ConsumerState, WeakConsumer};
pub use context::DeliveryContext;
pub use counts::{MessageCounts, QueueSeries};
pub use dispatcher::{Counts, Dispatcher};
pub use dispatcher::{DeliveryState, DispatcherOwner, DispatcherSpec, StoringLetters};
pub use filtered::MessageFilter;
pub use held::{Held, Holder};
pub use lanes::{LaneLog, LogOwnership};
pub use leases::LeaseId;
pub use outbox::{Delivery, DeliveryBatch, Event, Outbox};
pub use pull::{Chosen, GetWait, PulledBatch, complete_stored};
pub use search::{MessageState, MessageStatus, Search, SearchBounds, SearchHint, SearchOrder, SearchPlace};
pub use settle_on_append::OpenMove;
pub use settling::Settle;
pub use shared_credit::Credit;
pub use source::Waiter;
pub use source::{ReadSource, Source};
pub use stafett_queue::DeliveryId;
