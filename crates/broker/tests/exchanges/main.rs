//! Exchanges and bindings over a journal, and what is published through them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod definitions;
mod delayed;
mod faults;
mod faults_delayed;
mod publish;
mod races;
#[path = "../simulated/mod.rs"]
mod simulated;
mod steps;
mod support;
mod topics;
