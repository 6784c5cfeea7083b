//! Requests, responses and group metadata, one module per API for the structs inside of them.
//!
//! All of it is generated from Kafka's schemas. Each struct's fields are those of all versions; a field that
//! the version at hand does not have is at its default after reading, and must be at its default for writing
//! unless the schema calls it ignorable.

pub use crate::generated::*;
