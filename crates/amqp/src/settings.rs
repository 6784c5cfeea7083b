//! Settings of the front end.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpSettings {
    /// Maximum bytes of a frame, offered to clients.
    pub frame_bytes_max: u32,
    /// Maximum number of channels of a connection, offered to clients.
    pub channels_max: u16,
    /// Interval of heartbeats, offered to clients. 0 means none.
    pub heartbeat: Duration,
    /// Maximum bytes of a body.
    pub message_bytes_max: u64,
    /// Time limit from connecting to an open connection.
    pub handshake_timeout: Duration,
    /// True if a connection creates its virtual host if that does not exist.
    pub create_virtual_hosts: bool,
}

impl Default for AmqpSettings {
    fn default() -> Self {
        Self {
            frame_bytes_max: 128 * 1024,
            channels_max: 2047,
            heartbeat: Duration::from_mins(1),
            message_bytes_max: 16 << 20,
            handshake_timeout: Duration::from_secs(10),
            create_virtual_hosts: false,
        }
    }
}
