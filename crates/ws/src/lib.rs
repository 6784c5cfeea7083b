//! WebSocket, the server's side of it (RFC 6455), without I/O.
//!
//! Frames are its own code because what is sent to thousands of receivers is one frame, made once: a server's
//! frames carry no mask and are the same for all.
//!
//! - [`frame`]: frames out of bytes and into bytes
//! - [`handshake`]: the answer that turns an HTTP connection into a WebSocket

pub mod frame;
pub mod handshake;
