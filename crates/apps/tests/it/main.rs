//! Apps over a journal in memory, which is reopened as after a kill.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod failures;
mod kept;
mod model;
mod power;
mod split;
mod takeover;
mod work;
mod world;
