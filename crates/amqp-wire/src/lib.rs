//! AMQP 0-9-1, as RabbitMQ speaks it: bytes to frames, methods, content headers and tables, and back.
//!
//! ```text
//! bytes ─ frame::split ─▶ Frame { kind, channel, payload }
//!            method ────▶ Method::decode ──▶ one struct per method
//!            header ────▶ ContentHeader::decode ──▶ Properties, still encoded
//!            body ──────▶ the payload itself
//! ```
//!
//! Decoded values are slices of the received bytes: strings, tables and bodies are never copied. Tables are
//! checked once when they are read, with bounded nesting and without recursion, and walked afterwards.
//! Encoding goes straight into one buffer.
//!
//! - [`frame`]: frames, and the protocol header at the start of a connection
//! - [`methods`]: all methods, generated from one table
//! - [`content`]: content headers and their properties
//! - [`publication`]: a complete published message, borrowed from the receive buffer
//! - [`table`], [`value`]: tables and arrays, with the field types that RabbitMQ supports
//! - [`decode`], [`encode`]: the primitives
//! - [`reply_code`]: reasons for closing a channel or a connection
//!
//! This crate must not know the broker, connections or time.

pub mod content;
pub mod decode;
pub mod encode;
pub mod frame;
pub mod methods;
pub mod publication;
pub mod reply_code;
pub mod table;
pub mod value;

pub use content::{ContentHeader, Properties, PropertiesBuilder};
pub use decode::{DecodeError, Decoder};
pub use encode::Encoder;
pub use frame::{Frame, FrameError, FrameKind, FrameRef};
pub use methods::Method;
pub use publication::PublicationRef;
pub use reply_code::ReplyCode;
pub use table::{Array, Table, TableBuilder};
pub use value::Value;

/// A short string: UTF-8, at most 255 bytes.
pub use bytestring::ByteString;
