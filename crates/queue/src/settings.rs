//! Settings of a queue: its guarantees and limits.

use bytestring::ByteString;
use stafett_model::Durability;

use crate::state::LaneOrder;

/// Settings of a queue; by default it has no limits.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Longest time that a message may wait.
    pub ttl_ms: Option<u64>,
    /// Time after which an unused queue is deleted.
    pub expires_ms: Option<u64>,
    /// Most messages that may wait, not counting those in flight.
    pub length_max: Option<u64>,
    /// Most bytes of bodies that may wait, not counting those in flight.
    pub bytes_max: Option<u64>,
    pub overflow: Overflow,
    pub dead_letter: Option<DeadLetter>,
    /// Highest priority; higher ones are lowered to it.
    pub priority_max: u8,
    /// Two priorities, normal and high: while both have messages, one of three deliveries is a normal one.
    pub two_priorities: bool,
    /// Number of times a message may be returned.
    pub delivery_limit: Option<u32>,
    /// True if the declaration does not say the delivery limit: a policy may raise it.
    pub has_default_delivery_limit: bool,
    pub single_active_consumer: bool,
    /// True if the active consumer is replaced by one of a higher priority, once it has settled its messages.
    pub active_yields: bool,
    /// True if transient messages survive a restart like all others.
    pub keeps_transient: bool,
    /// `None` for the broker's default.
    pub durability: Option<Durability>,
    /// Number of settled messages that stay readable for log readers.
    pub retain: u64,
}

/// Policy for messages beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overflow {
    /// The oldest message is dropped, or dead-lettered if the queue has a dead-letter target.
    #[default]
    DropHead,
    /// The new message is refused.
    RejectPublish,
    /// The new message is refused and dead-lettered.
    RejectPublishDeadLetter,
}

/// Dead-letter target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub exchange: ByteString,
    /// `None` for the message's own.
    pub routing_key: Option<ByteString>,
}

/// With two priorities: the lowest value that is high.
const HIGH_PRIORITY: u8 = 5;

impl QueueSettings {
    /// Returns the lane of a priority.
    pub fn lane(&self, priority: u8) -> u8 {
        if self.two_priorities {
            u8::from(priority >= HIGH_PRIORITY)
        } else {
            priority.min(self.priority_max)
        }
    }

    /// Returns true if messages are spread over several lanes.
    pub fn has_priorities(&self) -> bool {
        self.two_priorities || self.priority_max > 0
    }

    /// Returns the order between the lanes.
    pub fn lane_order(&self) -> LaneOrder {
        if self.two_priorities {
            LaneOrder::HighTwice
        } else {
            LaneOrder::HighestFirst
        }
    }

    pub fn has_limits(&self) -> bool {
        self.length_max.is_some() || self.bytes_max.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_has_its_lane_or_one_of_two() {
        let levels = QueueSettings {
            priority_max: 9,
            ..QueueSettings::default()
        };
        let two = QueueSettings {
            two_priorities: true,
            ..QueueSettings::default()
        };
        let lanes = |settings: &QueueSettings| [0, 4, 5, 9, 255].map(|priority| settings.lane(priority));
        assert_eq!(lanes(&QueueSettings::default()), [0; 5]);
        assert_eq!(lanes(&levels), [0, 4, 5, 9, 9]);
        assert_eq!(lanes(&two), [0, 0, 1, 1, 1]);
        assert_eq!(two.lane_order(), LaneOrder::HighTwice);
        assert!(
            levels.has_priorities() && two.has_priorities() && !QueueSettings::default().has_priorities()
        );
    }
}
