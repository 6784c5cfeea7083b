//! The core that every front end calls: topics and groups over the journal.
//!
//! It speaks of topics, partitions, batches and offsets in its own words. It knows no protocol and no connection.
//!
//! - [`topic`]: a topic, its settings, and how both are stored
//! - [`topics`]: all topics, by name and by id
//! - [`broker`]: starting, producing, reading
//! - [`definitions`]: creating, changing, growing and deleting topics
//! - [`delayed`]: messages that wait for their time before they are routed
//! - [`exchanges`]: exchanges and bindings of each namespace
//! - [`groups`]: groups of consumers and their committed offsets
//! - [`live`]: live topics: who subscribes, who listens, what is published
//! - [`names`]: what topics are called in namespaces
//! - [`namespace`]: isolated sets of queues and exchanges
//! - [`queues`]: queues over the journal
//! - [`readers`]: those who read stored topics, each from a place of its own
//! - [`overrides`]: settings that are made while running, beyond single topics
//! - [`producer_ids`]: ids for idempotent producers, never given out twice
//! - [`transfer`]: moving what waits in one queue into another

pub mod broker;
pub mod definitions;
pub mod delayed;
pub mod exchanges;
pub mod groups;
pub mod live;
pub mod names;
pub mod namespace;
pub mod overrides;
pub mod producer_ids;
pub mod queues;
pub mod readers;
pub mod topic;
mod topic_changes;
pub mod topics;
pub mod transfer;

pub use broker::{Broker, BrokerSettings, Rules, StartError};
pub use definitions::{AlterError, Changing, CreateError, DeleteError, GrowError, NewTopic, PARTITIONS_MAX};
pub use exchanges::{Binding, Destination, Exchange, Exchanges, NewBinding, NewExchange, Stored, Unbind};
pub use groups::{GroupError, GroupSettings, Groups, Migration};
pub use live::{Live, LiveSettings};
pub use namespace::Namespace;
pub use overrides::{ReadGroupSettings, Scope};
pub use queues::Queues;
pub use readers::Readers;
pub use stafett_journal::{
    Append, Bounds, Outcome, Placed, ProducerSeen, ReadError, ReadFrom, ReadRequest, ReadTicket, Refusal,
    Retention, Run, Space, Ticket, TimeQuery, TimeTicket, Watch,
};
pub use topic::{Topic, TopicId, TopicSettings};
pub use topics::Topics;
pub use transfer::{Moved, Stopped};
