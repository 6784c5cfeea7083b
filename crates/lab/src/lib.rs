//! The lab: runs a described workload against one or several brokers, measures honestly, and draws the
//! result.
//!
//! It depends on wire formats and clients only, never on the broker of this repository: every system is
//! measured from outside, with the same instrument.
//!
//! - [`experiment`]: experiment files: questions, systems, loads and figures
//! - [`statistics`], a crate of its own: means and ratios with their intervals, and designs of factors
//! - [`analysis`], too: performance logs
//! - [`grid`]: the points of an experiment, and their order
//! - [`workload`]: the load: roles, rates, counts, latencies
//! - [`drivers`]: clients of each protocol
//! - [`agents`]: load from several machines; [`clients`]: by the clients that users take, in a program of
//!   their own
//! - [`measure`]: processes, the network, ceilings
//! - [`systems`]: brokers, started and watched; and [`environment`], the machine under them
//! - [`run`]: all points, one after the other
//! - [`report`]: draws results
//! - [`results`]: results on the disk
//! - [`page`]: all of this as a web page

pub mod agents;
pub mod clients;
pub mod drivers;
pub mod environment;
pub mod experiment;
pub mod grid;
pub mod measure;
#[cfg(feature = "page")]
pub mod page;
pub mod report;
pub mod results;
pub mod run;
pub mod systems;
pub mod workload;

pub use stafett_perflog as analysis;
pub use stafett_statistics as statistics;
pub use stafett_statistics::factorial;
