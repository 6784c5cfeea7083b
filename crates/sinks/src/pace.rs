//! Limits of a sink, poison by period, and waits between attempts. Pure; the clock is an argument.

use std::collections::VecDeque;

const WAIT_MS_FIRST: u64 = 1000;
const WAIT_MS_MAX: u64 = 60_000;

/// Waits after failures: 1, 2, 4 … 60 s, each up to a quarter longer.
#[derive(Debug, Default)]
pub struct Waits {
    failures: u32,
}

impl Waits {
    /// Returns the wait before the next attempt. `chance` is a random number.
    pub fn next_ms(&mut self, chance: u64) -> u64 {
        let wait = WAIT_MS_FIRST << self.failures.min(6);
        self.failures = self.failures.saturating_add(1);
        let wait = wait.min(WAIT_MS_MAX);
        wait + chance % (wait / 4)
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Limits of an operator: rows and bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    pub rows_per_s: Option<u64>,
    pub bytes_per_s: Option<u64>,
}

/// Time from which the next flush may begin. A flush borrows from the future, so batches stay whole.
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    free_ms: u64,
}

impl Limiter {
    pub fn new(rate: Rate) -> Self {
        Self { rate, free_ms: 0 }
    }

    /// Takes room for a flush. Returns the time to wait before it.
    pub fn take(&mut self, rows: u64, bytes: u64, now_ms: u64) -> u64 {
        let wait = self.free_ms.saturating_sub(now_ms);
        let cost = |amount: u64, limit: Option<u64>| {
            let limit = limit.filter(|limit| *limit > 0);
            limit.map_or(0, |limit| amount.saturating_mul(1000) / limit)
        };
        let cost = cost(rows, self.rate.rows_per_s).max(cost(bytes, self.rate.bytes_per_s));
        self.free_ms = self.free_ms.max(now_ms).saturating_add(cost);
        wait
    }
}

/// Poison records in a period. Too many pause the sink.
#[derive(Debug)]
pub struct PoisonCount {
    max: u64,
    period_ms: u64,
    times: VecDeque<(u64, u64)>,
    count: u64,
}

impl PoisonCount {
    pub fn new((max, period_ms): (u64, u64)) -> Self {
        Self {
            max,
            period_ms,
            times: VecDeque::new(),
            count: 0,
        }
    }

    /// Adds records. Returns true if there are too many.
    pub fn add(&mut self, count: u64, now_ms: u64) -> bool {
        let begin = now_ms.saturating_sub(self.period_ms);
        while let Some((_, old)) = self.times.pop_front_if(|(at, _)| *at < begin) {
            self.count -= old;
        }
        if count > 0 {
            self.times.push_back((now_ms, count));
            self.count += count;
        }
        self.count > self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let mut waits = Waits::default();
        let all: Vec<u64> = (0..9).map(|_| waits.next_ms(0)).collect();
        assert_eq!(
            all,
            [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
        );
        waits.reset();
        assert_eq!(waits.next_ms(249), 1249);
    }

    #[test]
    fn flushes_are_spread_so_that_the_rate_holds() {
        let mut limiter = Limiter::new(Rate {
            rows_per_s: Some(100),
            bytes_per_s: Some(1_000_000),
        });
        assert_eq!(limiter.take(50, 10, 1000), 0);
        assert_eq!(limiter.take(50, 2_000_000, 1000), 500);
        assert_eq!(limiter.take(1, 1, 1600), 1900, "bytes count as well");
        let mut unlimited = Limiter::new(Rate::default());
        assert_eq!((unlimited.take(1 << 40, 1, 0), unlimited.take(1, 1, 0)), (0, 0));
    }

    #[test]
    fn too_much_poison_in_a_period_is_noticed_and_forgotten() {
        let mut count = PoisonCount::new((2, 1000));
        assert!(!count.add(2, 0));
        assert!(count.add(1, 900));
        assert!(!count.add(0, 1500), "the first two are over");
        assert!(count.add(2, 1600));
    }
}
