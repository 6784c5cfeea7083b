//! Counters of objects (queues, exchanges, logs, groups), and an hour of their history in memory.
//!
//! An object counts with atomics ([`Words`]), in one block that is allocated at its first count. Its first
//! change after a sweep puts it on a list ([`Sampler`]); a sweep each [`STEP_MS`] visits the objects on that
//! list alone. An idle object costs nothing.
//!
//! - `words`: the counters of an object, and the state of its sampling
//! - `series`: names and sources of the series of a kind of objects
//! - `history`: samples of one object: each 5 s for 15 minutes, and each 30 s up to an hour
//! - `timeline`: the samples of a request, one for each step
//! - `sampler`: the list of changed objects, their sweep, and the bound on the memory of histories
//!
//! This crate knows no clock, no I/O and no object.

mod history;
mod sampler;
mod series;
mod timeline;
mod words;

pub use history::{History, STEP_MS, STEPS_MAX};
pub use sampler::{Advance, Measured, Sampler, Ticks, Totals};
pub use series::{SERIES_MAX, Series, Source};
pub use timeline::{Sample, Timeline};
pub use words::{Tracked, Words};
