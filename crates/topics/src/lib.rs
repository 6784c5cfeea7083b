//! Stored topics: a name, a definition, and one log per partition.
//!
//! - `topic`: a topic, its settings, and how both are stored
//! - `registry`: all topics, by name and by id
//! - `source`: topics as groups see them
//! - `change_log`: names of topics that changed lately
//! - [`names`]: names of topics in namespaces
//! - `producer_ids`: ids for idempotent producers, never given out twice

mod change_log;
pub mod names;
mod producer_ids;
mod registry;
mod source;
mod topic;

pub use producer_ids::ProducerIds;
pub use registry::{Claim, Topics};
pub use source::{TopicShape, TopicSource};
pub use topic::{OFFSETS_TOPIC, Topic, TopicId, TopicSettings, is_internal};
