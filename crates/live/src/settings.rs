//! What can be set on the front end.

use std::time::Duration;

use stafett_live_topics::{OutboxBound, Overflow};

use crate::command::Bounds;

#[derive(Debug, Clone)]
pub struct LiveFrontSettings {
    /// Bytes of one message that a client sends, with a command or a list of them.
    pub message_bytes_max: usize,
    /// Bytes of a topic's name or of a pattern.
    pub topic_bytes_max: usize,
    /// What may wait for one connection, unless a client wants less or more.
    pub outbox_bytes: usize,
    /// The most that a client may want.
    pub outbox_bytes_max: usize,
    /// A connection from which nothing comes for as long, not even an answer to a ping, is closed.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of what is sent to it.
    pub write_timeout: Duration,
    pub origins: Origins,
}

/// Web pages of which sites may use live topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origins {
    /// Pages from this machine, from files, and from where the request itself goes.
    #[default]
    Near,
    /// Those, and pages of these sites.
    Listed(Vec<String>),
    Any,
}

impl LiveFrontSettings {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            topic_bytes_max: self.topic_bytes_max,
            outbox_bytes_max: self.outbox_bytes_max,
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
