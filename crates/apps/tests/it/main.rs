//! Apps over a journal in memory, which is reopened as after a kill.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod deaths;
mod failures;
mod kept;
mod lost_topics;
mod model;
mod power;
mod slices;
mod split;
mod split_power;
mod split_reads;
mod takeover;
mod together;
mod work;
mod world;
