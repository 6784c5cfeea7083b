//! Settings of compaction.

use std::time::Duration;

/// Settings of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Bytes of the offset map of a pass: 24 per slot, of which four in five are used.
    pub map_bytes: usize,
    /// Interval of looking for logs that are due, while there is nothing to do.
    pub every: Duration,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            map_bytes: 64 << 20,
            every: Duration::from_secs(15),
        }
    }
}
