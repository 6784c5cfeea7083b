//! Consumers of a client: their filters, and the order of their first deliveries.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::amqp::copies::{Copies, Made};
use crate::world::Finding;

/// A consumer, and the first deliveries that it received.
#[derive(Debug, Clone)]
pub(super) struct Consumer {
    pub(super) from: Made,
    /// Ended consumers of its queue when it began; `None` if the last one ended too recently.
    ends: Option<u32>,
    began_ms: i64,
    /// The last message of each publisher and priority.
    last: BTreeMap<(u64, u8), usize>,
    filter: Option<&'static PriorityFilter>,
}

/// A filter of a consumer, and the priorities for which it is true.
#[derive(Debug)]
pub(super) struct PriorityFilter {
    pub(super) source: &'static str,
    priorities: RangeInclusive<u8>,
}

/// Filters of consumers, which begin with one of these in turn.
pub(super) static FILTERS: [Option<PriorityFilter>; 4] = [
    None,
    Some(PriorityFilter {
        source: "priority >= 2",
        priorities: 2..=u8::MAX,
    }),
    None,
    Some(PriorityFilter {
        source: "priority < 2 || routing_key == 'none'",
        priorities: 0..=1,
    }),
];

impl Consumer {
    pub(super) fn new(
        copies: &Copies,
        queue: u8,
        filter: Option<&'static PriorityFilter>,
        now_ms: i64,
    ) -> Self {
        Self {
            filter,
            from: copies.now(queue),
            ends: copies.ends_before(queue, now_ms),
            began_ms: now_ms,
            last: BTreeMap::new(),
        }
    }

    /// Checks a delivery against the filter.
    pub(super) fn check_filter(&self, number: usize, priority: Option<u8>) -> Result<(), Finding> {
        let priority = priority.unwrap_or(0);
        match self.filter {
            Some(filter) if !filter.priorities.contains(&priority) => Err(Finding(format!(
                "message {number} of priority {priority} comes to a consumer with the filter {:?}",
                filter.source
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the order of a publisher's first deliveries. Skipped if another consumer may have returned
    /// messages.
    pub(super) fn on_first(&mut self, copies: &Copies, number: usize) -> Result<(), Finding> {
        let queue = self.from.queue;
        let is_alone = copies.is_now(self.from) && self.ends == Some(copies.ends(queue));
        let Some(stream) = copies.stream(number, queue).filter(|_| is_alone) else {
            return Ok(());
        };
        match self.last.insert(stream, number) {
            Some(before) if before > number && !copies.was_full_since(self.began_ms) => {
                Err(Finding(format!(
                    "message {number} was published before {before} and comes behind it from queue {queue}"
                )))
            }
            Some(_) | None => Ok(()),
        }
    }
}
