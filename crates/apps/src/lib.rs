//! Apps: jobs that read stored topics, keep state by key, and pass results on.
//!
//! An app is cut into tasks, each of which one worker has at a time. A task has a log of its own: a commit
//! is one append to it, with position, state, timers and results, so it is stored whole or not at all.
//! Epochs of claims are the owner epochs of these logs: a commit under an earlier one is refused by the
//! journal.
//!
//! - `task`: names of tasks; `balance`: shares; [`machine`]: workers and claims, as a pure state machine
//! - `definition`: apps as they are stored; `registry`: all apps
//! - `app`: one app and the commands of workers; `work`: records and state; `committing`: commits;
//!   `storing`: appends of tasks; `view`: tasks as they are shown
//! - `entry`: records of a task's log; `index`: where the entries are; `timer_index`: timers; `done`:
//!   finished keys; `state`: a task's state; `commit`: checks and builds an append;
//!   `delivery`: records for a worker; `mark`: state that decides about them; `slot`: a task with all this
//! - `failure`: a record or timer that fails, as it is stored; `failures`: those of a task; `fail`,
//!   `fail_timer`: attempts; `letters`: dead letters
//! - `split`: tasks cut into slices, and joined again; `joint`: their places
//! - `reset`: positions set by an operator, and settings changed; `lost_topics`: topics that were deleted,
//!   and made again
//! - `emit`: results outside of commits; `queues`: results that go into queues
//! - `expiry`: removal of expired entries
//! - `deadlines`: the task that keeps time; `error`, `metrics`
//!
//! This crate knows no protocol and no connection.

mod app;
mod balance;
mod commit;
mod committing;
mod deadlines;
mod definition;
mod delivery;
mod done;
mod emit;
mod entry;
mod error;
mod expiry;
mod fail;
mod fail_timer;
mod failure;
mod failures;
mod filter;
mod index;
mod joint;
mod letters;
mod lost_topics;
pub mod machine;
mod mark;
mod metrics;
mod pace;
mod queues;
mod registry;
mod reset;
mod slot;
mod split;
mod state;
mod storing;
mod task;
mod timer_index;
mod view;
mod work;

pub use app::{App, Claim, ClaimView, Session};
pub use commit::{Committed, Emitted, NewCommit, NewEntry};
pub use definition::{
    Definition, Format, Guarantee, NAME_BYTES_MAX, StoredApp, StoredTask, Table, TimeRules,
};
pub use delivery::{Delivered, FetchLimits, Fetched, Gap};
pub use entry::{Ahead, Position};
pub use error::AppError;
pub use fail::{Failed, NewFailure};
pub use fail_timer::NewTimerFailure;
pub use failure::{Attempt, FailedTimer, Failure};
pub use filter::{Filter, Passed};
pub use lost_topics::LostTopic;
pub use queues::{Appended, QueueMessages, QueueRefusal, QueueResults};
pub use registry::{Apps, Start};
pub use reset::{Reset, ResetTo, TaskReset};
pub use slot::Known;
pub use split::Cut;
pub use state::{DueTimer, Entry, Scan, StateTotals};
pub use task::{NotATask, SLICE_BITS_MAX, Slice, TaskId};
