//! SQL over the records of topics and the files of sinks, within bounds of memory and time.
//!
//! SQLite computes; its tables are virtual: rows come from the broker while they are asked for, and none is
//! stored. A program of its own, so that neither a library in C nor a question of any cost is in the broker.
//!
//! ```text
//! question ── SQLite ── table ── cursor ──pieces── task: records of a topic, or rows of files
//! ```
//!
//! - [`source`]: topics and files as rows
//! - `table`: a source as a virtual table of SQLite
//! - [`question`]: one statement, its bounds, and its answer; `names`: names in its text

mod names;
pub mod question;
pub mod source;
mod table;

#[cfg(test)]
mod tests;
