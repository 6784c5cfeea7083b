//! Latencies, in buckets that grow by an eighth.

use std::sync::atomic::{AtomicU64, Ordering};

const BUCKETS: usize = 400;

#[derive(Debug)]
pub(crate) struct Latencies(Vec<AtomicU64>);

impl Default for Latencies {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Latencies {
    pub(crate) fn add(&self, ns: u64) {
        let eighths = (ns.max(1) as f64).log2() * 8.0;
        #[expect(clippy::cast_sign_loss, reason = "a logarithm of at least 1")]
        let bucket = (eighths as usize).min(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Returns the milliseconds below which this part of all values lies.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let wanted = self.count() as f64 * part;
        let mut seen = 0.0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count.load(Ordering::Relaxed) as f64;
            if seen >= wanted {
                return 2_f64.powf((bucket + 1) as f64 / 8.0) / 1e6;
            }
        }
        f64::INFINITY
    }

    pub(crate) fn say(&self) -> String {
        let quantile = |part| self.quantile(part);
        format!(
            "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0)
        )
    }
}
