//! The broker over journals: on a disk, in memory, or on a simulated disk that fails on request.
//!
//! One program for all of them: each would be linked with all of the broker's dependencies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod audit;
mod cells;
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
mod shares;
mod simulated;
mod torn;
mod transactions;
mod transactions_model;
mod transactions_over_cells;
