//! Notifications of ranges that a client of a log does not get although it should.

use std::sync::Arc;

use stafett_model::Offset;

use crate::clients::ClientName;

/// Reason of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// The log no longer has the range.
    Expired,
    /// The range is damaged on disk.
    Damaged,
    /// The range could not be read.
    Unreadable,
}

/// Range of a log whose messages to its topics a client does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapNotice {
    pub client: ClientName,
    /// The stored topic.
    pub topic: Arc<str>,
    pub partition: u32,
    pub from: Offset,
    /// End of the range, exclusive.
    pub to: Offset,
    pub why: GapReason,
}

impl GapNotice {
    /// Returns true if both have the same client, log and reason.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        self.client == other.client
            && self.topic == other.topic
            && self.partition == other.partition
            && self.why == other.why
    }

    /// Returns true if the ranges touch, so that they can be merged without loss of precision.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    pub(crate) fn widen(&mut self, other: &Self) {
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(from: u64, to: u64) -> GapNotice {
        GapNotice {
            client: ClientName::Number(1),
            topic: "charts".into(),
            partition: 0,
            from: Offset(from),
            to: Offset(to),
            why: GapReason::Damaged,
        }
    }

    #[test]
    fn stretches_that_touch_are_told_as_one() {
        let mut known = missed(5, 10);
        assert!(known.touches(&missed(10, 12)) && known.touches(&missed(2, 5)));
        assert!(!known.touches(&missed(11, 12)));
        let expired = GapNotice {
            why: GapReason::Expired,
            ..missed(6, 7)
        };
        assert!(!known.is_of_same(&expired));
        known.widen(&missed(10, 12));
        assert_eq!(known, missed(5, 12));
    }
}
