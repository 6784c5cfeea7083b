//! The real binary, started by tests, and the layers that it is put together from.
//!
//! One program for all of them, so that tests that wait for processes wait beside each other.

mod apps;
mod audit;
mod bearer;
mod check;
mod commands;
mod common;
mod connections;
mod dashboard;
mod documents;
mod earlier;
mod guard;
mod ingest;
mod lab;
mod layering;
mod live_rights;
mod management_rights;
mod messages;
mod node;
mod permissions;
mod policies;
#[expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]
#[path = "../../../sinks/tests/it/server.rs"]
mod postgres;
mod queues;
mod refusals;
mod reload;
mod rights;
mod serve;
mod sink_topic;
mod sinks;
mod sinks_amqp;
mod sinks_claims;
mod sinks_kept;
mod sinks_lost;
mod sinks_poison;
mod sinks_queries;
mod sinks_stores;
mod sinks_tables;
mod sinks_tls;
mod sockets;
mod tidy;
mod tls;
