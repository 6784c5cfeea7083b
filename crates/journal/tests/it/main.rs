//! The journal as others use it: what each provider promises, and what the one on disk does when its disk
//! fails.
//!
//! One program for all of them: they run beside each other, and what they stand on is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]
#![allow(unreachable_pub, reason = "a test's crate has no outside")]

mod conformance;
mod faults;
mod rewrite;
mod shared_frames;
mod smoke;
mod support;
