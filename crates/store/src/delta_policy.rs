//! Policy of a value that is stored as a snapshot followed by deltas.

/// Sizes of a value's stored snapshot and of the deltas behind it. A new snapshot is due once the deltas have
/// more than `FACTOR` times its bytes, and more than `BYTES_MIN`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeltaPolicy<const BYTES_MIN: usize, const FACTOR: usize> {
    snapshot_bytes: usize,
    delta_bytes: usize,
}

impl<const BYTES_MIN: usize, const FACTOR: usize> DeltaPolicy<BYTES_MIN, FACTOR> {
    /// Returns true if a snapshot was stored.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot_bytes > 0
    }

    /// Returns true if a new snapshot is to be stored.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.delta_bytes > BYTES_MIN.max(FACTOR * self.snapshot_bytes)
    }

    #[inline]
    pub fn on_delta(&mut self, bytes: usize) {
        self.delta_bytes += bytes;
    }

    /// Takes back a delta that was refused.
    pub fn on_delta_refused(&mut self, bytes: usize) {
        self.delta_bytes = self.delta_bytes.saturating_sub(bytes);
    }

    /// Counts a snapshot, which replaces all deltas.
    pub fn on_snapshot(&mut self, bytes: usize) {
        (self.snapshot_bytes, self.delta_bytes) = (bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_due_once_deltas_outgrow_it() {
        let mut policy = DeltaPolicy::<10, 2>::default();
        policy.on_delta(10);
        assert!(!policy.is_due() && !policy.has_snapshot());
        policy.on_delta(1);
        assert!(policy.is_due());
        policy.on_snapshot(8);
        policy.on_delta(17);
        assert!(policy.is_due());
        policy.on_delta_refused(1);
        assert!(!policy.is_due(), "16 bytes are twice the snapshot");
    }
}
