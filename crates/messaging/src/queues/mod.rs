//! Queues over the journal: declared, filled, handed out, settled, deleted.
//!
//! A queue is a pure state machine (crate `stafett_queue`) behind a short lock, over one log per priority in
//! use. Its size does not depend on how many messages wait.
//!
//! - `definition`: what a queue is declared as, and how that is stored
//! - `registry`: all queues: found, deleted; `declare`: how they are declared; `load`: how they come
//!   back after a start
//! - `publication`: messages that are published together, made into appends; `append`: what queues with
//!   limits say to it
//! - `queue`: one queue, and what is asked of it
//! - `pump`: hands out; `cursor`: what was read and not yet handed out; `ahead`: of which lanes
//! - `outbox`: where deliveries wait for their connection; `credit`: credit that consumers share;
//!   `source`: who delivers
//! - `dead_letter`: where messages go that leave a queue as dead letters; `burial`: how they get there
//! - `moving`: how messages in flight move; `taking`: messages that are taken to be moved
//! - `peek`: looks into a queue
//! - `flush`: stores what was settled, and frees logs; `marking`: stores how far messages are handed out,
//!   before they are
//! - `over`: queues whose messages are those of a topic; `grown`: which of its logs have something new
//! - `leaving`: what led to a queue that is gone
//! - `log_view`: a queue as a topic, for clients that read logs
//! - `timer`: keeps time for all queues; `clock`: the time it keeps
//! - `scan`: after a start, takes out what ended with the run before
//! - `shard`: lets queues know that their logs grew

mod ahead;
mod append;
mod burial;
pub(crate) mod clock;
mod consumer;
mod credit;
pub(crate) mod cursor;
mod dead_letter;
mod declare;
mod definition;
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
mod scan;
mod settling;
mod shard;
mod source;
mod taking;
#[cfg(test)]
mod tests;
mod timer;

pub use consumer::{ConsumeError, Consumer, ConsumerSpec};
pub use credit::Credit;
pub use declare::{DeclareError, Declaring};
pub use definition::{Declare, Over, OwnerId, QueueId};
pub use outbox::{Delivery, Event, Outbox, Run};
pub(crate) use publication::NotTogether;
pub use publication::{AppendTicket, Appended, Publication, Refused, RouteIndex, Targets};
pub use queue::{Counts, Queue};
pub use registry::{DeleteQueueError, Queues, Route};
pub use settling::Settle;
pub use source::Source;
pub(crate) use source::Waiter;
pub use stafett_queue::{DeadLetter, DeliveryId, Overflow, QueueSettings};
pub(crate) use taking::Taken;
