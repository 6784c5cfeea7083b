//! Real clients against the real binary: a short run of each.
//!
//! Every test starts a broker of its own on a free port and in a folder of its own, and stops it. A client
//! that is not on the machine makes its tests pass as skipped: they say so at once, and leave a line in
//! `target/clients/skipped`, which `make test` shows at its end. `scripts/setup` installs them all.
//!
//! The binary is `STAFETT_BIN`, else the `stafett` beside these tests in the build folder. To try the tests
//! themselves on Apache Kafka: `STAFETT_BIN=tools/peers/kafka`. With `STAFETT_TEST_KAFKA_ADDR=HOST:PORT` no
//! broker is started and that one is used; tests that must stop a broker then skip themselves.
#![cfg(test)]

mod access;
mod admin;
mod amqp;
mod amqp_kill;
mod amqp_languages;
mod apps;
mod assigned;
mod broker;
mod cluster;
mod cluster_cells;
mod cluster_nodes;
mod commands;
mod confluent;
mod console;
mod examples;
mod generated;
mod groups;
mod http;
mod java;
mod java_kill;
mod kcat;
mod kill;
mod lab_clients;
mod languages;
mod live;
mod management;
mod mechanisms;
mod members;
mod odd;
mod peer;
mod program;
#[path = "../../crates/sinks/tests/it/server.rs"]
#[allow(dead_code, reason = "another crate's tests need more of it")]
mod server;
mod slow_way;
mod tls;
mod torture;
