//! Queues over the journal: declared, filled, handed out, settled, deleted.
//!
//! A queue is a pure state machine (crate `stafett_queue`) behind a short lock, over one log per priority in
//! use. Its memory does not depend on the number of waiting messages.
//!
//! - `definition`: the definition of a queue, and its stored format
//! - `registry`: all queues: look-up, deletion; `declare`: declaration; `load`: loading at the start
//! - `publication`: messages published together, as appends; `append`: checks of queue limits
//! - `queue`: one queue and its operations; `context`: services that all queues share
//! - `pump`: hand-out; `ahead`: read-ahead of the lanes
//! - `outbox`: deliveries that wait for their connection; `credit`: credit shared by consumers; `source`:
//!   origins of deliveries
//! - `dead_letter`: targets of dead letters; `burial`: storing them there
//! - `moving`: moves of messages in flight; `taking`: messages pulled by a caller
//! - `peek`: reads of waiting messages without effect
//! - `flush`: stores settlements and frees logs; `marking`: stores hand-out marks, ahead of the hand-out
//! - `over`: queues over topics; `grown`: their logs that may have grown
//! - `leaving`: removal of many bindings to a deleted queue
//! - `log_view`: a queue as a topic, for clients that read logs
//! - `timer`: deadlines of all queues; `clock`: their time
//! - `scan`: after a start, removes transient messages of the previous run
//! - `shard`: tasks that notify queues of growth

mod ahead;
mod append;
mod burial;
mod consumer;
mod context;
mod credit;
mod dead_letter;
mod declare;
mod definition;
mod delivery_metrics;
mod dispatcher;
mod expire;
mod flush;
mod grown;
mod lanes;
mod leaving;
mod load;
mod log_view;
mod marking;
mod metrics;
mod moving;
mod outbox;
mod over;
mod peek;
mod publication;
mod pump;
mod queue;
mod registry;
mod room;
mod scan;
mod settling;
mod shard;
mod source;
mod taking;
#[cfg(test)]
mod tests;
mod timer;

pub use consumer::{Consumer, ConsumerSpec};
pub use credit::Credit;
pub use declare::{DeclareError, Declaring};
pub use definition::{Declare, Over, OwnerId, QueueId};
pub use dispatcher::{Counts, Dispatcher};
pub(crate) use moving::OpenMove;
pub use outbox::{Delivery, DeliveryBatch, Event, Outbox};
pub(crate) use publication::NotTogether;
pub use publication::{AppendTicket, Appended, Publication, Refused, RouteIndex, Targets};
pub use queue::{ConsumeError, Queue};
pub use registry::{DeleteQueueError, Queues, Route};
pub use settling::Settle;
pub(crate) use source::Waiter;
pub use source::{ReadSource, Source};
pub use stafett_queue::{DeadLetter, DeliveryId, Overflow, QueueSettings};
pub(crate) use taking::PulledBatch;
