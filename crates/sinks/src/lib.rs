//! Sinks: records of topics, written in bulk into stores that remember how far they are.
//!
//! A sink is an app (`sink.NAME`) whose position lives in its target: the store that is opened says where to
//! go on, and rows and position are stored together. So a failure between two steps of a flush loses nothing
//! and doubles nothing, whichever process goes on.
//!
//! This crate must not know the broker: it reads over Kafka's protocol and claims over HTTP, as clients do.
//!
//! ```text
//! record ── document ── transforms ── row ── gather ──full, time, end──▶ flush ──▶ target: rows + position
//!                 └─ poison ──────────────────────────────▶ NAME.dead ──┘ bisection
//! ```
//!
//! Without I/O and clocks:
//! - [`definition`]: a sink as its file declares it; `fields`, `secret`: parts of it
//! - [`columns`]: names and types; [`rows`]: values of a batch; `cells`: a JSON value as one of them;
//!   `headers`: those of a record
//! - `document`: fields of a record; [`transform`]: changes to them ([`personal`]: hashes and masks;
//!   `computed`: conditions, expressions and times; [`versions`]: old records);
//!   [`convert`]: a record as a row
//! - `lookup`, `query`: fields of a table, by key
//! - [`rollup`]: records of a batch summed up by time and attributes
//! - [`gather`]: rows of a partition until they are due; [`bisection`]: the search for refused rows
//! - [`pace`]: limits, and poison by period; [`quiet`]: times of day without writes
//!
//! With I/O:
//! - [`target`]: the trait of stores, and one folder for each kind
//! - [`flush`]: one batch into a target
//! - `pump`: one partition, from the topic into the target; `reader`: its records; `writer`: its batches,
//!   until they are stored; `dead`: dead letters
//! - [`turns`]: flushes at a time, as the store bears them
//! - [`trial`]: rows of the last records, without a target; [`verify`]: a roll-up computed again;
//!   [`compare`]: the rows of two stores, by `spans` of time
//! - [`scan`]: records and rows for programs that ask about them
//! - [`positions`]: looked up in topics, and set by an operator's word
//! - [`runner`]: one sink; `session`: the time in which it has claims (`held`); `claims`: its partitions, by
//!   `work` (an app), a group, or `amqp` (a queue); `ledger`: positions for targets that hold none
//! - [`broker`], [`http`], `remote`: connections; [`status`]: state and counters

pub mod bisection;
pub mod broker;
pub mod columns;
pub mod compare;
pub mod convert;
pub mod definition;
pub mod flush;
pub mod gather;
pub mod http;
pub mod pace;
pub mod positions;
pub mod quiet;
pub mod rollup;
pub mod rows;
pub mod runner;
pub mod scan;
pub mod status;
pub mod target;
pub mod transform;
pub mod trial;
pub mod turns;
pub mod verify;

mod amqp;
mod canonical;
mod cells;
mod claim;
mod claims;
mod computed;
mod dead;
mod document;
mod fields;
mod gate;
mod headers;
mod held;
mod ledger;
pub mod lookup;
pub mod personal;
mod pump;
pub mod query;
mod reader;
mod session;
mod spans;
mod tables;
pub mod versions;
mod work;
mod writer;

pub(crate) use stafett_objects::{remote, secret};

pub use definition::{Definition, DefinitionError};
pub use target::{Place, Target, promise_of, target_of};
pub use work::App;
