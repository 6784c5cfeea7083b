//! Apps over a journal in memory, which is reopened as after a kill.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod failures;
mod model;
mod power;
mod takeover;
mod work;
mod world;
