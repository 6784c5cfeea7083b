//! The wire format of Kafka's protocol: every request that a broker of a 4.x cluster serves to clients, its
//! response, and the frames around them, in both directions.
//!
//! - [`messages`] holds the generated structs, one module per API; `tools/kafka-codegen` writes them.
//! - [`frame`] opens a request or response frame and closes one for sending.
//! - [`ApiKey`], [`ErrorCode`] and [`VersionRange`] are the protocol's numbers.
//! - [`Decoder`] and [`Encoder`] are the primitives for generated code.
//! - [`consumer_protocol`] reads and writes the metadata that classic group members send each other.
//!
//! Decoding copies nothing: strings, bytes and records are slices of the frame, so a decoded value that is
//! kept for longer than its request must be copied out, or it pins the frame. Encoding does not copy large
//! byte fields.
//!
//! Input is hostile: each length and count is checked against the remaining bytes and against a memory budget
//! ([`DecodeLimits`]) before anything is allocated.
//!
//! This crate must not know topics, offsets, brokers or sockets: it turns bytes into structs and back. Record
//! batches pass through as opaque bytes.

mod decode;
#[cfg(test)]
mod decode_tests;
mod encode;
#[cfg(test)]
mod encode_tests;
mod encoded;
mod error_code;
mod errors;
mod generated;
#[cfg(test)]
mod oracle_tests;
mod records;
#[cfg(any(test, feature = "sampling"))]
mod sample;
#[cfg(test)]
mod sample_tests;
mod str;
mod uuid;
mod version;
mod wire;

pub mod consumer_protocol;
pub mod frame;
pub mod header;
pub mod messages;

pub use crate::decode::{DecodeLimits, Decoder};
pub use crate::encode::Encoder;
pub use crate::encoded::Encoded;
pub use crate::error_code::ErrorCode;
pub use crate::errors::{DecodeError, EncodeError};
pub use crate::generated::api_key::ApiKey;
pub use crate::header::{RequestHeader, ResponseHeader};
pub use crate::records::Records;
pub use crate::str::Str;
pub use crate::uuid::Uuid;
pub use crate::version::VersionRange;
pub use crate::wire::{Message, Request, Wire};
