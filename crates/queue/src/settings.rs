//! What a queue promises, and what it does at its limits.

use bytestring::ByteString;
use stafett_model::Durability;

/// The settings of a queue; nothing set is a queue without limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// How long a message may wait.
    pub ttl_ms: Option<u64>,
    /// How long the queue may go without being used before it goes.
    pub expires_ms: Option<u64>,
    /// Messages that may wait, not counting those in flight.
    pub length_max: Option<u64>,
    /// Bytes of bodies that may wait, not counting those in flight.
    pub bytes_max: Option<u64>,
    pub overflow: Overflow,
    pub dead_letter: Option<DeadLetter>,
    /// The highest priority; messages of a higher one have this.
    pub priority_max: u8,
    /// How often a message may come back.
    pub delivery_limit: Option<u32>,
    pub single_active_consumer: bool,
    /// `None`: that of the broker.
    pub durability: Option<Durability>,
    /// Settled messages that log readers still see.
    pub retain: u64,
}

/// What happens to messages beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overflow {
    /// The oldest goes; where there is somewhere for dead letters, there.
    #[default]
    DropHead,
    /// The new one is refused.
    RejectPublish,
    /// The new one is refused, and goes where dead letters go.
    RejectPublishDeadLetter,
}

/// Where dead letters are published to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub exchange: ByteString,
    /// `None`: that of the message.
    pub routing_key: Option<ByteString>,
}

impl QueueSettings {
    /// The lane of a message.
    pub fn lane(&self, priority: u8) -> u8 {
        priority.min(self.priority_max)
    }

    pub fn has_limits(&self) -> bool {
        self.length_max.is_some() || self.bytes_max.is_some()
    }
}
