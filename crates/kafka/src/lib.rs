//! Front end of the broker for Kafka clients.
//!
//! A listener serves [`Kafka`]. Pipelined requests of a connection are executed together and answered in
//! order:
//!
//! ```text
//! socket ─ FrameReader ─▶ session ──▶ api/… ──▶ one append for all produce requests read together
//!                                      │               │ ticket
//!                                      ▼               ▼
//!        ┌──────────▶ response_queue: operation │ waits for a ticket │ ready ──▶ one vectored write
//!        │ outcome                        │
//!   connection ◀── performs, in turn ─────┘
//! ```
//!
//! `session` is a synchronous machine: a request is answered at once, or goes on with the outcome of an
//! operation. So handlers are tested without sockets and runtimes.
//!
//! - `connection`: asynchronous shell: reads, performs operations, writes
//! - `session`: turns a frame into an answer, ready or pending; `call`: header and response of a request
//! - `operation`: work that requests wait for, and how it is performed; `time_search`, `epoch_search`:
//!   searches in logs
//! - `response_queue`: pending answers of a connection, in order; `produce_results`: those of `Produce`
//! - `authority`: the caller of a connection; `gate`: rights that each request needs; `sasl`: logins; `acl`:
//!   ACLs
//!   as rules; `access_operation`: changes of users and rules
//! - `api`: one file per request
//! - `fetch_request`: the request; `fetch_state`, `fetch_partition`: partitions to be read; `fetch_sessions`:
//!   state kept between requests (KIP-227)
//! - `share_sessions`: sessions of share groups' members (KIP-932); `share_partition`: a partition in a
//!   share fetch; `share_request`: acknowledgements in
//!   requests; `share_operation`: work that these requests wait for
//! - `configs`: settings under Kafka's names; `resources`: kinds of things that have settings
//! - `request_reader`, `response_writer`: requests and answers without generated structs
//! - `error`: error codes of all core errors; `leader_epoch`: the epoch of all partitions
//! - `events`: log lines that are events
//! - `internal_topic`: topics of the broker's own
//! - `offsets_topic`: committed offsets as records of `__consumer_offsets`
//! - `client`, `wait`: entries in the registry of connections
//! - `front_end`: the front end of a listener; `context`: the state that its connections share
//! - `cells`: cells of a cluster, which pass requests on to the first one
//! - `member_protocol`: metadata that members of classic groups exchange
//! - `metrics`, `settings`
//!
//! This crate must not know files, other protocols or how the broker stores anything. It has no state of its
//! own except connections and sessions: the broker has the rest.

mod access_operation;
mod acl;
mod api;
mod authority;
mod call;
mod cell_commits;
mod cell_transactions;
mod cells;
mod client;
mod configs;
mod connection;
mod context;
mod epoch_search;
mod error;
mod events;
mod fetch_partition;
mod fetch_request;
mod fetch_sessions;
mod fetch_state;
mod front_end;
mod gate;
mod group_cells;
mod internal_topic;
mod leader_epoch;
mod log_limit;
mod member_protocol;
mod metrics;
mod offsets_topic;
mod operation;
mod produce_results;
mod request_reader;
mod resources;
mod response_queue;
mod response_writer;
mod sasl;
mod session;
mod settings;
mod share_operation;
mod share_partition;
mod share_request;
mod share_sessions;
#[cfg(test)]
mod tests;
mod throttle;
mod time_search;
mod traced;
mod transaction_operation;
mod wait;

pub use cell_transactions::{TransactionDoor, abort_abandoned, mark_cell};
pub use cells::{Cells, FirstCell, Passed};
pub use front_end::{Kafka, add_hooks};
pub use settings::{BrokerAddress, Brokers, Endpoint, KafkaSettings};
