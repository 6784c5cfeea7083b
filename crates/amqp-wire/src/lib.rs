//! AMQP 0-9-1, as RabbitMQ speaks it: bytes to frames, methods, content headers and tables, and back.
//!
//! ```text
//! bytes ─ frame::split ─▶ Frame { kind, channel, payload }
//!            method ────▶ Method::decode ──▶ one struct per method
//!            header ────▶ ContentHeader::decode ──▶ Properties, still as they came
//!            body ──────▶ the payload itself
//! ```
//!
//! What is read are slices of what came in: strings, tables and bodies are never copied. Tables are checked
//! once when they are read, with bounded nesting and without recursion, and walked afterwards. What is
//! written goes straight into one buffer.
//!
//! - [`frame`]: frames, and the protocol header that a connection begins with
//! - [`methods`]: every method there is, generated from one table
//! - [`content`]: content headers and their properties
//! - [`publication`]: a message on its way in, where it lies
//! - [`table`], [`value`]: tables and arrays, with the field types that RabbitMQ knows
//! - [`decode`], [`encode`]: the primitives
//! - [`reply_code`]: why a channel or a connection ends
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
