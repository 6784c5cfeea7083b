//! Settings of the front end.

use std::time::Duration;

use stafett_http::Origins;
use stafett_live_topics::{OutboxBound, Overflow};
use stafett_ws::connection::Limits;

use crate::command::Bounds;

#[derive(Debug, Clone)]
pub struct LiveFrontSettings {
    /// Maximum bytes of one message from a client: a command or a list of commands.
    pub message_bytes_max: usize,
    /// Maximum bytes of a topic's name or of a pattern.
    pub topic_bytes_max: usize,
    /// Default bound of a connection's outbox, in bytes.
    pub outbox_bytes: usize,
    /// Largest outbox bound that a client may request.
    pub outbox_bytes_max: usize,
    /// A connection that receives nothing for this long, not even a pong, is closed.
    pub idle_timeout: Duration,
    /// Time that a client may go without reading any of the bytes sent to it.
    pub write_timeout: Duration,
    /// Sites whose web pages may use live topics.
    pub origins: Origins,
}

impl LiveFrontSettings {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            topic_bytes_max: self.topic_bytes_max,
            outbox_bytes_max: self.outbox_bytes_max,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            message_bytes_max: self.message_bytes_max,
            idle: self.idle_timeout,
            write: self.write_timeout,
        }
    }

    pub(crate) fn bound(&self) -> OutboxBound {
        OutboxBound {
            bytes: self.outbox_bytes,
            overflow: Overflow::default(),
        }
    }
}

impl Default for LiveFrontSettings {
    fn default() -> Self {
        Self {
            message_bytes_max: 1 << 20,
            topic_bytes_max: 1024,
            outbox_bytes: 1 << 20,
            outbox_bytes_max: 64 << 20,
            idle_timeout: Duration::from_mins(1),
            write_timeout: Duration::from_mins(1),
            origins: Origins::default(),
        }
    }
}
