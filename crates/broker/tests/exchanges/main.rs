//! Exchanges and bindings over a journal, and what is published through them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod definitions;
mod delayed;
mod publish;
mod races;
mod support;
mod topics;
