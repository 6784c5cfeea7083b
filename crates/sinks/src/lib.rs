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
//! - [`definition`]: a sink as its file declares it; `fields`, `quantity`, `secret`: parts of it
//! - [`columns`]: names and types; [`rows`]: values of a batch; `cells`: a JSON value as one of them
//! - `document`: fields of a record; [`transform`]: changes to them; [`convert`]: a record as a row
//! - [`gather`]: rows of a partition until they are due; [`bisection`]: the search for refused rows
//! - [`pace`]: limits, and poison by period
//!
//! With I/O:
//! - [`target`]: the trait of stores, and one folder for each kind
//! - [`flush`]: one batch into a target
//! - `pump`: one partition, from the topic into the target; `reader`: its records; `writer`: its batches,
//!   until they are stored; `dead`: dead letters
//! - [`trial`]: rows of the last records, without a target
//! - [`runner`]: one sink; `work`: its claims; [`http`]: requests; [`status`]: state and counters

pub mod bisection;
pub mod columns;
pub mod convert;
pub mod definition;
pub mod flush;
pub mod gather;
pub mod http;
pub mod pace;
pub mod rows;
pub mod runner;
pub mod status;
pub mod target;
pub mod transform;
pub mod trial;

mod cells;
mod dead;
mod document;
mod fields;
mod pump;
mod quantity;
mod reader;
mod secret;
mod work;
mod writer;

pub use definition::{Definition, DefinitionError};
pub use target::{Place, Target};
pub use work::App;
