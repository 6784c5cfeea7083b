//! The guarantees of the journal on disk, tested on a disk that fails.
//!
//! A scripted run appends to logs at every level, under ids and from owners too, fans out, changes state,
//! truncates, deletes, stores checkpoints and goes through many small segments. It is repeated with a failure
//! at every change that it makes to the disk. Then the journal is reopened, and its contents must be those
//! after some number of the run's steps, including every step acknowledged under a level that survives the
//! failure.
#![allow(
    clippy::print_stderr,
    clippy::format_push_string,
    clippy::items_after_statements,
    clippy::similar_names,
    clippy::needless_pass_by_value,
    clippy::needless_for_each,
    clippy::wildcard_enum_match_arm,
    reason = "what a failing test says matters more than how fast it says it"
)]

mod clocks;
mod errors;
mod flips;
mod full;
mod full_missing;
mod ledger;
mod missing;
mod named;
mod power;
mod retention;
mod run;
mod script;
mod spares;
mod threads;
