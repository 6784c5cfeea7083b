//! Every target is held to one suite: killed between every two steps, fenced, given poison, and asked twice.
//!
//! PostgreSQL is started as a user of its own where the machine has it; where it has not, its tests say so.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

mod between;
mod clickhouse;
mod compare;
mod delta;
mod ducklake;
mod eyes;
mod fake;
mod files;
mod memory;
mod mongodb;
mod moto;
mod parquet;
mod peer;
mod postgres;
mod rollup;
mod s3;
mod script;
mod server;
mod suite;
mod webhook;
