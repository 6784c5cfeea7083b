//! Count of the bytes of ready bodies.

use super::{DeliveryId, QueueState};

impl QueueState {
    /// Returns the bytes of ready bodies; after a restart only of messages that came since, until the queue
    /// is empty once.
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
        self.lane_mut(lane).counted_from = offset;
        self.bytes_ready = 0;
        self.is_partial = self.ready() > 0;
    }

    fn is_counted(&self, id: DeliveryId) -> bool {
        !self.is_partial
            || self
                .lane(id.lane)
                .is_none_or(|lane| id.offset >= lane.counted_from)
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
