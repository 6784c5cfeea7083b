//! The core that every front end calls: topics and groups over the journal.
//!
//! It speaks of topics, partitions, batches and offsets in its own words. It knows no protocol and no
//! connection.
//!
//! - [`broker`]: starting, producing, reading
//! - [`definitions`]: creating, changing, growing and deleting topics
//! - [`delayed`]: messages that wait for their time before they are routed
//! - [`exchanges`]: exchanges and bindings of each namespace
//! - [`live`]: live topics: who subscribes, who listens, what is published
//! - [`queues`]: queues over the journal
//! - [`readers`]: those who read stored topics, each from a place of its own
//! - [`overrides`]: settings that are made while running, beyond single topics
//! - [`transfer`]: moving what waits in one queue into another

pub mod broker;
pub mod definitions;
pub mod delayed;
pub mod exchanges;
pub mod live;
mod namespace;
pub mod overrides;
pub mod queues;
pub mod readers;
pub mod transfer;

pub use broker::{Broker, BrokerSettings, Rules, StartError};
pub use definitions::{AlterError, Changing, CreateError, DeleteError, GrowError, NewTopic, PARTITIONS_MAX};
pub use exchanges::{Binding, Destination, Exchange, Exchanges, NewBinding, NewExchange, Unbind};
pub use live::{Live, LiveSettings};
pub use overrides::{ReadGroupSettings, Scope};
pub use queues::Queues;
pub use readers::Readers;
pub use stafett_journal::{
    Append, Bounds, Outcome, Placed, ProducerSeen, ReadError, ReadFrom, ReadRequest, ReadTicket, Refusal,
    Retention, Run, Space, Ticket, TimeQuery, TimeTicket, Watch,
};
pub use stafett_model::Namespace;
pub use stafett_store::Stored;
pub use stafett_topics::{OFFSETS_TOPIC, Topic, TopicId, TopicSettings, Topics, is_internal};
pub use transfer::{Moved, Stopped};
