//! Space of the disk, which is full for some time.

use super::World;
use crate::full::UsedUp;

/// Milliseconds until the journal notices free space.
const SPACE_MS: i64 = 2_000;

impl World {
    /// Leaves the disk almost no space for some time.
    pub fn begin_full(&mut self, for_ms: u32, used_up: UsedUp) {
        if !self.may_refuse {
            self.full_from_ms = self.steady_ms;
        }
        self.may_refuse = true;
        self.settlements_wait |= used_up == UsedUp::Settlements;
        self.disk.set_capacity_bytes(self.disk.used_bytes() + 4096);
        self.full_until_ms = Some(self.steady_ms + i64::from(for_ms));
    }

    /// Ends a full disk.
    pub fn end_full(&mut self) {
        if self.full_until_ms.is_some() {
            self.full_until_ms = Some(self.steady_ms);
            self.look_at_space();
        }
    }

    /// Frees space when the time has come.
    pub(super) fn look_at_space(&mut self) {
        if self.full_until_ms.is_some_and(|until| until <= self.steady_ms) {
            self.disk.set_capacity_bytes(1 << 50);
            self.full_until_ms = None;
            self.spacious_from_ms = self.steady_ms + SPACE_MS;
        }
        self.amqp.set_full(self.may_refuse);
        let has_failed = self.has_failed();
        if self.may_refuse || has_failed {
            // On a disk that has failed, settlements wait until the journal notices.
            let from_ms = if self.may_refuse {
                self.full_from_ms
            } else {
                self.steady_ms
            };
            let all = self.settlements_wait || has_failed;
            self.amqp.wait_since(from_ms, self.steady_ms, all);
        }
        if self.full_until_ms.is_none() && self.spacious_from_ms <= self.steady_ms {
            self.may_refuse = false;
            self.settlements_wait = false;
        }
    }
}
