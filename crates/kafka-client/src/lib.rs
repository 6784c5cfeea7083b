//! A client of Kafka's protocol, for tools and load generators: small, correct, and lean where it matters.
//!
//! It works with any broker of that protocol. It must not know the broker in this repository: it depends on
//! the wire format and on the stored batch, not on the code that serves them.
//!
//! - [`error`]: errors that name broker, API and reason
//! - [`options`]: timeouts and bounds
//! - [`connection`]: one connection: pipelined requests, bounded answers, negotiated versions
//! - [`client`]: a cluster: connections by broker, retries, coordinators
//! - `pool`: connections that readers share
//! - [`topic`]: metadata of topics
//! - [`offsets`]: start and end offsets of partitions, and offsets by time
//! - [`producer`]: batches per partition, in order, retried; `lane` is one partition of it
//! - [`raw`]: producer of a load generator: batches over many topics, each written once
//! - [`partitioner`]: partition of a key
//! - [`fetcher`]: reads many partitions by long polls; [`batches`] splits its responses, [`values`] finds the
//!   values in them
//! - [`admin`]: topics, their settings and sizes
//! - [`groups`]: groups and their offsets, from outside
//! - [`transactions`]: transactional ids, from outside; [`transactional`]: transactions of one's own
//! - [`membership`]: a member of a group (classic protocol); [`assignor`] distributes partitions

pub mod admin;
pub mod assignor;
pub mod batches;
pub mod client;
pub mod connection;
pub mod error;
pub mod fetcher;
pub mod groups;
mod lane;
pub mod membership;
pub mod offsets;
pub mod options;
pub mod partitioner;
mod pool;
pub mod producer;
pub mod raw;
mod refusal;
pub mod topic;
pub mod transactional;
pub mod transactions;
pub mod values;

pub use client::Client;
pub use connection::{Answer, Connection};
pub use error::ClientError;
pub use fetcher::{FetchSettings, Fetched, Fetcher, Source};
pub use offsets::Place;
pub use options::{Login, Options};
pub use pool::PooledClient;
pub use producer::{Acks, Delivery, Producer, ProducerSettings};
pub use topic::{Partition, Topic};
pub use transactional::Transactional;
// Re-exported types that this crate's API uses.
pub use stafett_kafka_wire::{ErrorCode, Str, Uuid};
