//! Server side of WebSocket (RFC 6455), without I/O.
//!
//! The crate has its own frame code because a message to thousands of receivers is encoded once: frames of a
//! server carry no mask and are the same for all.
//!
//! - [`frame`]: decodes and encodes frames
//! - [`handshake`]: answers the request that turns an HTTP connection into a WebSocket

pub mod frame;
pub mod handshake;
