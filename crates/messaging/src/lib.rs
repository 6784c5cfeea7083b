//! Messages from publishers to consumers: exchanges, queues, delayed messages, readers of topics.
//!
//! - `messaging`: opens and stops all parts together
//! - `transfer`: moves messages from one queue to another
//! - [`exchanges`]: exchanges and bindings of each namespace; publishing
//! - `delayed`: messages that are routed at a later time
//! - [`queues`]: queues over the journal
//! - [`readers`]: readers of stored topics, each from a position of its own

mod delayed;
pub mod delivery;
pub mod exchanges;
mod messaging;
pub mod queues;
pub mod readers;
mod transfer;

pub use exchanges::{Binding, Destination, Exchange, Exchanges, NewBinding, NewExchange, Unbind};
pub use messaging::Messaging;
pub use queues::Queues;
pub use readers::Readers;
pub use stafett_journal::DiskSpace;
pub use transfer::{Moved, Stopped};
