//! The core that every front end calls: topics and groups over the journal.
//!
//! It speaks of topics, partitions, batches and offsets in its own words. It knows no protocol and no connection.
//!
//! - [`topic`]: a topic, its settings, and how both are stored
//! - [`topics`]: all topics, by name and by id
//! - [`broker`]: creating and deleting topics, producing, reading
//! - [`groups`]: groups of consumers and their committed offsets
//! - [`producer_ids`]: ids for idempotent producers, never given out twice

pub mod broker;
pub mod groups;
pub mod producer_ids;
pub mod topic;
mod topic_changes;
pub mod topics;

pub use broker::{Broker, BrokerSettings, CreateError, DeleteError, NewTopic, StartError};
pub use groups::{GroupError, GroupSettings, Groups};
pub use stafett_journal::{
    Append, Bounds, Outcome, Placed, ReadError, ReadFrom, ReadRequest, ReadTicket, Refusal, Run, Ticket,
    TimeQuery, TimeTicket, Watch,
};
pub use topic::{Topic, TopicId, TopicSettings};
pub use topics::Topics;
