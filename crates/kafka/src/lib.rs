//! Kafka's clients as a front end of the broker.
//!
//! [`Kafka`] is what a listener serves. Requests that a connection has pipelined are executed together and
//! answered in order:
//!
//! ```text
//! socket ─ FrameReader ─▶ session ──▶ api/… ──▶ one append for all produce requests that were read together
//!                            │                       │ ticket
//!                            ▼                       ▼
//!                         answers: ready │ waits for a ticket │ runs when its turn comes ──▶ one vectored write
//! ```
//!
//! - `connection`: the asynchronous shell: reads, waits, writes
//! - `session`: turns a frame into an answer that is there or to come
//! - `answers`: what a connection still owes, in order
//! - `api`: one file per request
//! - `fetch_request`: what a fetch asks for; `fetch_state`: which partitions are worth a look;
//!   `fetch_sessions`: what is remembered between requests (KIP-227)
//! - `configs`: settings by the names that Kafka's tools give them; `resources`: what has settings
//! - `reader`, `writer`: requests and answers that are read and written without structs between
//! - `error`: from every error of the core to its code
//! - `offsets_topic`: committed offsets as records of `__consumer_offsets`
//! - `metrics`, `settings`
//!
//! This crate must not know files, other protocols or how the broker stores anything. It keeps no state of
//! its own beyond connections and fetch sessions: all else is the broker's.

mod answers;
mod api;
mod configs;
mod connection;
mod error;
mod fetch_request;
mod fetch_sessions;
mod fetch_state;
mod kafka;
mod language;
mod metrics;
mod offsets_topic;
mod reader;
mod resources;
mod session;
mod settings;
mod writer;

pub use kafka::Kafka;
pub use settings::{Endpoint, KafkaSettings};
