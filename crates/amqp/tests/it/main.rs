//! The front end over a broker, spoken to in frames.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod again;
mod blocked;
mod bound;
mod deleted_hosts;
mod flood;
mod support;
