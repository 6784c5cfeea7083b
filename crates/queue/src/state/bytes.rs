//! Count of the bytes of ready bodies.

use std::ops::Range;

use super::{DeliveryId, QueueState};

impl QueueState {
    /// Returns the bytes of ready bodies; after a restart only of messages that came since, until those
    /// before are counted ([`Self::count_range`]) or the queue is empty once.
    pub fn bytes_ready(&self) -> u64 {
        self.bytes_ready
    }

    /// Returns true if there may be ready messages whose bytes are not counted.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Adds `bytes` of bodies to the count.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes_ready = self.bytes_ready.saturating_add(bytes);
    }

    /// Begins to count anew, the bytes of a lane from `offset` on: bodies before it are unknown. Counting too
    /// many would drop messages that are within the limits.
    pub fn count_bytes_from(&mut self, lane: u32, offset: u64) {
        let lane = self.lane_mut(lane);
        lane.uncounted = lane.head()..offset;
        self.bytes_ready = 0;
        self.is_partial = self.ready() > 0;
    }

    /// Adds the bytes of those of `messages` (offset and bytes, in order) that are ready and not yet counted.
    /// They are all that the lane has within `range`; ranges come in order, from the head of the lane.
    pub fn count_range(&mut self, lane: u32, range: Range<u64>, messages: &[(u64, u32)]) {
        let Some(state) = self.lane(lane) else {
            return;
        };
        if !self.is_partial || range.start > state.uncounted.start {
            return;
        }
        let is_new = |offset| state.uncounted.contains(&offset) && state.ready_from(offset) == Some(offset);
        let new = messages.iter().filter(|message| is_new(message.0));
        let bytes = new.map(|message| u64::from(message.1)).sum();
        let uncounted = &mut self.lane_mut(lane).uncounted;
        uncounted.start = uncounted.start.max(range.end);
        self.add_bytes(bytes);
        let is_partial = self.lanes().any(|(_, lane)| !lane.uncounted.is_empty());
        self.is_partial = is_partial;
    }

    fn is_counted(&self, id: DeliveryId) -> bool {
        !self.is_partial
            || self
                .lane(id.lane)
                .is_none_or(|lane| !lane.uncounted.contains(&id.offset))
    }

    /// Removes `bytes` of bodies from the count: they were added but did not arrive.
    pub fn remove_bytes(&mut self, bytes: u64) {
        self.bytes_ready = self.bytes_ready.saturating_sub(bytes);
    }

    /// Counts all bytes from now on: no message is ready.
    pub(super) fn count_all(&mut self) {
        self.bytes_ready = 0;
        self.is_partial = false;
    }

    /// Adds the bytes of a message that is ready again.
    pub(super) fn put_bytes(&mut self, id: DeliveryId, bytes: u32) {
        if self.is_counted(id) {
            self.add_bytes(bytes.into());
        }
    }

    /// Removes the bytes of a message that is no longer ready.
    pub(super) fn take_bytes(&mut self, id: DeliveryId, bytes: u32) {
        if self.is_counted(id) {
            self.remove_bytes(bytes.into());
        }
        if (self.bytes_ready > 0 || self.is_partial) && self.ready() == 0 {
            self.count_all();
        }
    }
}
