//! Time limits for transfers: a grace period for any size, and a minimum rate for large ones.

use std::time::Duration;

/// A grace period and a minimum rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time that even the smallest transfer may take.
    pub grace: Duration,
    /// Minimum rate beyond the grace period; at least 1.
    pub bytes_per_second_min: u32,
}

impl Pace {
    /// Returns the time that a transfer of `bytes` may take in all.
    #[must_use]
    pub fn allowance(&self, bytes: usize) -> Duration {
        let rate = u64::from(self.bytes_per_second_min.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.grace
            .saturating_add(Duration::from_millis(bytes.saturating_mul(1000) / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_transfers_get_the_time_that_the_least_rate_needs() {
        let pace = Pace {
            grace: Duration::from_secs(30),
            bytes_per_second_min: 1000,
        };
        assert_eq!(pace.allowance(0), Duration::from_secs(30));
        assert_eq!(pace.allowance(5000), Duration::from_secs(35));
        assert!(pace.allowance(usize::MAX) >= Duration::from_secs(30));
    }
}
