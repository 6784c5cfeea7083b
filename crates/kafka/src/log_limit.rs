//! Log lines that clients can cause as often as they like: one per second.

use std::sync::atomic::{AtomicI64, Ordering};

use stafett_store::wall_ms;

/// Second of the last line.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(AtomicI64);

impl LogLimit {
    /// Returns true if there was no line in this second.
    pub(crate) fn allows(&self) -> bool {
        self.allows_at(wall_ms() / 1000)
    }

    fn allows_at(&self, second: i64) -> bool {
        self.0.swap(second, Ordering::Relaxed) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_line_per_second() {
        let limit = LogLimit::default();
        let allowed = [7, 7, 7, 8, 8, 7].map(|second| limit.allows_at(second));
        assert_eq!(allowed, [true, false, false, true, false, true]);
    }
}
