//! What can be set on the front end.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpSettings {
    /// Bytes of the largest frame, as clients are told.
    pub frame_bytes_max: u32,
    /// Channels of one connection, as clients are told.
    pub channels_max: u16,
    /// How often both sides show that they are there, as clients are told. 0: never.
    pub heartbeat: Duration,
    /// Bytes of the largest body.
    pub message_bytes_max: u64,
    /// How long a client may take from connecting to an opened connection.
    pub handshake_timeout: Duration,
    /// Whether a virtual host is there as soon as somebody connects to it.
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
