//! The client against scripted brokers.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a stub answers few APIs, and all others in one way"
)]

mod cluster;
mod connection;
mod producer;
mod stub;
