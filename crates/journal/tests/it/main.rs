//! Tests of the journal's public interface: the guarantees of each provider, and the behaviour of the one on
//! disk when its disk fails.
//!
//! One program for all of them: they run in parallel, and their dependencies are linked once.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]
#![allow(unreachable_pub, reason = "a test's crate has no outside")]

mod compaction;
#[macro_use]
mod conformance;
mod faults;
mod rewrite;
mod shared_frames;
mod smoke;
mod support;

mod providers {
    on_provider!(memory);
    on_provider!(disk);
    on_provider!(disk_with_small_segments);
}
