//! Queues: declared, found, filled and deleted by name. Their messages are handed out by dispatchers
//! ([`stafett_delivery`]), one per queue, over one log per priority in use.
//!
//! - `definition`: the definition of a queue, and its stored format
//! - `queue`: one queue
//! - `registry`: all queues; `table`: queues by name, id and order; `load`: loading at the start
//! - `pending`: queues that may have messages
//! - `declare`: declaration; `change`: changes while a queue is there; `removal`: deletion
//! - `publication`: messages published together, as appends; `admission`: checks of queue limits
//! - `bounds`: bounds of a namespace
//! - `receive`: messages received without a consumer
//! - `policies`: settings for all queues whose names match
//! - `dead_letter`: targets of dead letters
//! - `topic_queue`: queues over topics; `topic_view`: a queue as a topic, for clients that read logs

mod admission;
mod bounds;
mod change;
mod dead_letter;
mod declare;
mod definition;
mod load;
mod metrics;
mod pending;
mod policies;
mod publication;
mod queue;
mod receive;
mod registry;
mod removal;
mod table;
#[cfg(test)]
mod tests;
mod topic_queue;
mod topic_view;

pub use bounds::NamespaceBounds;
pub use change::ChangeError;
pub use declare::{DeclareError, DeclaredQueue};
pub use definition::{Declare, OwnerId, QueueId, TopicQueueSpec};
pub use policies::{AppliedPolicies, BadPolicy, NewPolicy, Policy, PolicyError, PolicyKind, PolicyScope};
pub(crate) use publication::AtomicPublishError;
pub use publication::{AppendOutcome, AppendTicket, Publication, Refused, RouteIndex, StoredAt, Targets};
pub use queue::{ConsumeError, Queue};
pub use receive::{Acknowledge, Narrow, Receive, ReceiveError, Received, SettleLeases, Wanted};
pub(crate) use registry::DeadLetterRouter;
pub use registry::{QueueMemory, Queues};
pub use removal::{DeleteConditions, DeleteQueueError};
pub use stafett_queue::{DeadLetter, DeliveryLimit, Overflow, PolicySettings, QueueSettings, Setting};
pub use table::{QueuePage, QueueRange};
