//! Server side of WebSocket (RFC 6455).
//!
//! The crate has its own frame code because a message to thousands of receivers is encoded once: frames of a
//! server carry no mask and are the same for all. It must not know the services behind its sessions.
//!
//! - [`frame`]: decodes and encodes frames, without I/O
//! - [`handshake`]: answers the request that turns an HTTP connection into a WebSocket
//! - [`session`]: the machine behind a connection
//! - [`connection`]: one connection, which runs a session
//! - [`msgpack`]: MessagePack in binary frames

pub mod connection;
pub mod frame;
pub mod handshake;
pub mod msgpack;
pub mod session;
mod traced;

pub use session::Session;
