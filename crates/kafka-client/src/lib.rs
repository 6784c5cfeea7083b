//! A client of Kafka's protocol, for tools and load generators: small, correct, and lean where it matters.
//!
//! It speaks to any broker of that protocol. It must not know the broker in this repository: it depends on
//! the wire format and on the stored batch, on nothing that serves them.
//!
//! - [`error`]: what can go wrong; every error names the broker, the API and the reason in words
//! - [`options`]: timeouts and bounds
//! - [`connection`]: one connection: pipelined requests, bounded answers, versions agreed on
//! - [`client`]: a cluster: connections by broker, retries, coordinators
//! - [`topic`]: metadata of topics
//! - [`offsets`]: where partitions start and end, and which offset has a time
//! - [`producer`]: batches per partition, in order, retried; `lane` is one partition of it
//! - [`partitioner`]: which partition a key belongs to
//! - [`fetcher`]: reads many partitions by long polls; [`batches`] walks what it brings
//! - [`admin`]: topics, their settings and sizes
//! - [`groups`]: groups and their offsets, seen from outside
//! - [`membership`]: being a member of a group (classic protocol); [`assignor`] shares partitions out

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
pub mod producer;
mod refusal;
pub mod topic;

pub use client::Client;
pub use connection::{Answer, Connection};
pub use error::ClientError;
pub use fetcher::{FetchSettings, Fetched, Fetcher, Source};
pub use offsets::Place;
pub use options::Options;
pub use producer::{Acks, Delivery, Producer, ProducerSettings};
pub use topic::{Partition, Topic};
// What this crate's own types are made of.
pub use stafett_kafka_wire::{ErrorCode, Str, Uuid};
