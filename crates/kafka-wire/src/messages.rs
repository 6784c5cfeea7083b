//! Requests, responses and group metadata; one module per API holds their inner structs.
//!
//! All of it is generated from Kafka's schemas. Each struct has the fields of all versions. A field that the
//! version at hand lacks has its default value after reading. For writing it must have its default value,
//! unless the schema calls it ignorable.

pub use crate::generated::*;
