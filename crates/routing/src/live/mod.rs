//! Subscriptions to live topics: designed for millions of topics and hundreds of millions of subscriptions.
//!
//! Clients and topics are numbers here; their meaning is up to the caller.
//!
//! - `set`: a compact set of numbers
//! - `chunks`: the form of large sets
//! - `table`: topics by name, each with its subscribers
//! - `hash_index`: from hashes of names to numbers
//! - `name`: a name, inline if it is short
//! - `pattern`: names with wildcards
//! - `patterns`: subscribers by pattern

mod chunks;
mod hash_index;
mod name;
mod pattern;
mod patterns;
mod set;
mod table;

pub use pattern::{Pattern, PatternError};
pub use patterns::Patterns;
pub use set::IdSet;
pub use table::{Slot, TopicTable};
