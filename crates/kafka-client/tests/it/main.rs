//! The client against brokers that do what a test says.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod cluster;
mod connection;
mod producer;
mod stub;
