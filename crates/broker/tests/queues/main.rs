//! Queues over a journal, as front ends use them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod delivery;
mod faults;
mod limits;
mod log_view;
mod over;
mod readers;
#[path = "../simulated/mod.rs"]
mod simulated;
mod support;
