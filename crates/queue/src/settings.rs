//! What a queue promises, and what it does at its limits.

use bytestring::ByteString;
use stafett_model::Durability;

use crate::state::LaneOrder;

/// The settings of a queue; nothing set is a queue without limits.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
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
    /// There are two priorities, normal and high, and of three messages one is normal while there are both.
    pub two_priorities: bool,
    /// How often a message may come back.
    pub delivery_limit: Option<u32>,
    pub single_active_consumer: bool,
    /// The active consumer gives way to one of a higher priority, once it has settled what it has.
    pub active_yields: bool,
    /// Messages that may be lost with a run of the program are kept like all others.
    pub keeps_transient: bool,
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

/// Where there are two priorities: the lowest that is a high one.
const HIGH_PRIORITY: u8 = 5;

impl QueueSettings {
    /// The lane of a message.
    pub fn lane(&self, priority: u8) -> u8 {
        if self.two_priorities {
            u8::from(priority >= HIGH_PRIORITY)
        } else {
            priority.min(self.priority_max)
        }
    }

    /// Whether messages have different lanes.
    pub fn has_priorities(&self) -> bool {
        self.two_priorities || self.priority_max > 0
    }

    /// Which lane is next.
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
