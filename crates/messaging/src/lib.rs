//! Messages from publishers to consumers: exchanges, queues, delayed messages, readers of topics.
//!
//! - `messaging`: opens and stops all parts together
//! - `consumers`: all consumers, with whose they are
//! - `content_filter`: the filter of a consumer
//! - `publish`: messages are routed and stored: published ones, delayed ones, and those that are moved
//! - [`exchanges`]: exchanges and bindings of each namespace
//! - `delayed`: messages that are routed at a later time
//! - [`queues`]: queues by name; [`readers`]: readers of stored topics, each from a position of its own
//!
//! No folder uses one that is listed above it.

mod consumers;
mod content_filter;
mod delayed;
pub mod exchanges;
mod messaging;
mod publish;
pub mod queues;
pub mod readers;

pub use consumers::{
    ConsumerEntry, ConsumerFacts, ConsumerHolder, ConsumerSource, Consumers, ListedConsumer,
};
pub use exchanges::{Binding, Destination, Exchange, Exchanges, NewBinding, NewExchange, Unbind};
pub use messaging::Messaging;
pub use publish::{
    CommitError, Committed, JointSender, MoveTarget, Moved, Preview, Publish, PublishError, PublishRefusal,
    PublishTicket, Published, QUEUES_MAX, Send, SendError, SentTogether, Stopped, Transaction,
};
pub use queues::Queues;
pub use readers::Readers;
pub use stafett_journal::DiskSpace;
