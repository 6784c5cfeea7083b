//! Apps over a journal in memory, which is reopened as after a kill.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod damage;
mod deaths;
mod ends;
mod expiry;
mod failures;
mod filters;
mod guarantees;
mod joined;
mod kept;
mod letters;
mod lost_topics;
mod model;
mod power;
mod reset_power;
mod slices;
mod split;
mod split_power;
mod split_reads;
mod takeover;
mod timers;
mod together;
mod work;
mod world;
