//! The broker over journals: on a disk, in memory, or on a disk that fails when a test says so.
//!
//! One program for all of them: each would be linked with everything that the broker stands on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commits;
mod definitions;
mod exchanges;
mod group_settings;
mod groups;
mod live;
mod live_logs;
mod plain;
mod queue_allocations;
mod queues;
mod simulated;
