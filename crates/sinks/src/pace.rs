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

/// Poison records in a period. Too many pause the sink. Once an operator has resumed it, as many batches pass
/// as had paused it: else a batch with more poison than a period may have would pause it for ever.
#[derive(Debug)]
pub struct PoisonCount {
    max: u64,
    period_ms: u64,
    times: VecDeque<(u64, u64)>,
    count: u64,
    /// Batches that paused the sink, and batches that may pass since it was resumed.
    refused: u64,
    pardons: u64,
}

/// Answer to a number of poison records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weighed {
    Taken,
    /// They are too many, and an operator has seen that.
    Pardoned,
    /// The sink has to be paused.
    Refused,
}

impl PoisonCount {
    pub fn new((max, period_ms): (u64, u64)) -> Self {
        Self {
            max,
            period_ms,
            times: VecDeque::new(),
            count: 0,
            refused: 0,
            pardons: 0,
        }
    }

    /// Compares records that are to be set aside with those of the period. They do not count yet.
    pub fn weigh(&mut self, count: u64, now_ms: u64) -> Weighed {
        let begin = now_ms.saturating_sub(self.period_ms);
        while let Some((_, old)) = self.times.pop_front_if(|(at, _)| *at < begin) {
            self.count -= old;
        }
        if self.count + count <= self.max {
            Weighed::Taken
        } else if self.pardons > 0 {
            Weighed::Pardoned
        } else {
            self.refused += 1;
            Weighed::Refused
        }
    }

    /// Counts records that were set aside. A pardon is used up, and the period begins anew.
    pub fn add(&mut self, count: u64, weighed: Weighed, now_ms: u64) {
        match weighed {
            Weighed::Taken => {
                self.times.push_back((now_ms, count));
                self.count += count;
            }
            Weighed::Pardoned => {
                self.pardons = self.pardons.saturating_sub(1);
                self.times.clear();
                self.count = 0;
            }
            Weighed::Refused => {}
        }
    }

    /// Notes a batch that paused the sink in another process: an operator has resumed that already, or it is
    /// paused yet.
    pub fn recalled(&mut self, is_paused: bool) {
        if is_paused {
            self.refused += 1;
        } else {
            self.pardons += 1;
        }
    }

    /// Notes that an operator has resumed the sink.
    pub fn resumed(&mut self) {
        self.pardons = std::mem::take(&mut self.refused);
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
        let take = |count: &mut PoisonCount, records, now_ms| {
            let weighed = count.weigh(records, now_ms);
            count.add(records, weighed, now_ms);
            weighed
        };
        assert_eq!(take(&mut count, 2, 0), Weighed::Taken);
        assert_eq!(take(&mut count, 1, 900), Weighed::Refused);
        assert_eq!(
            take(&mut count, 2, 1500),
            Weighed::Taken,
            "the first two are over"
        );
        assert_eq!(take(&mut count, 1, 1600), Weighed::Refused);
    }

    #[test]
    fn poison_that_is_not_set_aside_does_not_count() {
        let mut count = PoisonCount::new((2, 1000));
        for attempt in 0..10 {
            assert_eq!(count.weigh(2, attempt), Weighed::Taken);
        }
        count.add(2, Weighed::Taken, 10);
        assert_eq!(count.weigh(1, 11), Weighed::Refused);
    }

    #[test]
    fn a_batch_that_paused_another_process_passes_once_that_is_resumed() {
        let mut count = PoisonCount::new((2, 1000));
        count.recalled(false);
        assert_eq!(count.weigh(3, 0), Weighed::Pardoned);
        count.add(3, Weighed::Pardoned, 0);
        assert_eq!(count.weigh(3, 1), Weighed::Refused);
        let mut count = PoisonCount::new((2, 1000));
        count.recalled(true);
        assert_eq!(count.weigh(1, 0), Weighed::Taken);
        count.resumed();
        assert_eq!(count.weigh(3, 1), Weighed::Pardoned);
    }

    #[test]
    fn a_batch_that_paused_the_sink_passes_once_it_is_resumed() {
        let mut count = PoisonCount::new((2, 1000));
        count.resumed();
        assert_eq!(
            count.weigh(3, 0),
            Weighed::Refused,
            "that was no resume after poison"
        );
        count.resumed();
        assert_eq!(count.weigh(3, 1), Weighed::Pardoned);
        assert_eq!(count.weigh(3, 2), Weighed::Pardoned, "until it is stored");
        count.add(3, Weighed::Pardoned, 3);
        assert_eq!(count.weigh(2, 4), Weighed::Taken);
        assert_eq!(count.weigh(3, 5), Weighed::Refused);
    }
}
