//! What every other crate speaks of: names, offsets, durability levels, batches and records.
//!
//! This crate is pure. It does no I/O, knows no clock, no async runtime and no protocol, and it is the only crate
//! that reads or builds the bytes of a stored batch.
//!
//! - [`id`]: logs, offsets, positions, epochs, as types that do not mix
//! - [`durability`]: the dial: what has happened before a write is acknowledged
//! - [`batch`]: the stored batch: its header, its checksum, its place in a log
//! - [`checksum`]: CRC-32C, the one checksum of every format here

pub mod batch;
pub mod checksum;
pub mod durability;
pub mod id;

pub use batch::{BatchError, BatchHeader};
pub use durability::Durability;
pub use id::{Epoch, LogId, Offset, ProducerId};
