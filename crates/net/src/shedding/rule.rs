//! The rule that decides about refusals, without a clock of its own.
//!
//! A queue that is long for a moment is a burst, and is served; one that stays long is a load that cannot be
//! handled (the controlled-delay rule, RFC 8289). So waiting times are looked at per interval, of five times
//! the time that a request may wait:
//!
//! ```text
//!           most requests of an interval waited longer
//! serving ──────────────────────────────────────────────▶ shedding: requests that waited longer are refused
//!    ▲                                                        │
//!    └────────────────────────────────────────────────────────┘
//!           no request of an interval waited longer
//! ```
//!
//! - *Most* requests decide, not the one that waited least: connections are served in turn, so that one with
//!   little to do always waits little, whatever the others bring.
//! - While it sheds, a request is refused for its own waiting time. So there is always work, and requests
//!   that have just come are served.

use std::time::Duration;

use tokio::time::Instant;

/// Length of an interval, in waiting times.
const INTERVAL: u32 = 5;

/// State of the rule for one listener.
#[derive(Debug)]
pub struct Rule {
    waiting: Duration,
    interval_end: Option<Instant>,
    /// Requests of the interval that waited longer than `waiting`, and the others.
    longer: u64,
    shorter: u64,
    oldest: Duration,
    /// The longest waiting time of the interval before.
    oldest_before: Duration,
    is_shedding: bool,
}

impl Rule {
    #[must_use]
    pub fn new(waiting: Duration) -> Self {
        Self {
            waiting,
            interval_end: None,
            longer: 0,
            shorter: 0,
            oldest: Duration::ZERO,
            oldest_before: Duration::ZERO,
            is_shedding: false,
        }
    }

    /// Takes the waiting time of a request that could begin now. Returns true if it is refused.
    pub fn refuses(&mut self, now: Instant, waited: Duration) -> bool {
        self.advance(now);
        let is_longer = waited > self.waiting;
        if is_longer {
            self.longer += 1;
        } else {
            self.shorter += 1;
        }
        self.oldest = self.oldest.max(waited);
        self.is_shedding && is_longer
    }

    /// Ends the interval if it is over.
    pub fn advance(&mut self, now: Instant) {
        let interval = self.waiting.saturating_mul(INTERVAL);
        let end = *self.interval_end.get_or_insert_with(|| now + interval);
        if now < end {
            return;
        }
        self.is_shedding = if self.is_shedding {
            self.longer > 0
        } else {
            self.longer > self.shorter
        };
        self.oldest_before = std::mem::take(&mut self.oldest);
        (self.longer, self.shorter) = (0, 0);
        self.interval_end = Some(now + interval);
    }

    /// True while requests that waited too long are refused.
    #[must_use]
    pub fn is_shedding(&self) -> bool {
        self.is_shedding
    }

    /// Returns the longest waiting time of this interval and the one before.
    #[must_use]
    pub fn oldest(&self) -> Duration {
        self.oldest.max(self.oldest_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: Duration = Duration::from_millis(100);

    /// Feeds a script: at each time in ms a request that waited so many ms. Returns the refused ones, as
    /// times.
    fn refused(script: &[(u64, u64)]) -> Vec<u64> {
        let (start, mut rule) = (Instant::now(), Rule::new(WAITING));
        let ms = Duration::from_millis;
        let refused = |(at, waited): &(u64, u64)| rule.refuses(start + ms(*at), ms(*waited)).then_some(*at);
        script.iter().filter_map(refused).collect()
    }

    /// Requests each 10 ms of `from..to`, which waited so long.
    fn steady(from: u64, to: u64, waited: u64) -> Vec<(u64, u64)> {
        (from / 10..to / 10).map(|at| (at * 10, waited)).collect()
    }

    #[test]
    fn a_burst_shorter_than_an_interval_is_served() {
        let mut script = steady(0, 400, 300);
        script.extend(steady(400, 1000, 5));
        assert_eq!(refused(&script), [0; 0], "the first interval had a burst");
        let mut script = steady(0, 240, 300);
        script.extend(steady(240, 500, 5));
        script.extend(steady(500, 1000, 300));
        assert_eq!(
            refused(&script),
            [0; 0],
            "most of the first interval waited little"
        );
    }

    #[test]
    fn a_load_that_stays_is_shed_after_an_interval_and_only_requests_that_waited_too_long_are() {
        let mut script = steady(0, 500, 101);
        script.extend([(500, 400), (510, 100), (520, 101), (530, 0)]);
        assert_eq!(refused(&script), [500, 520]);
    }

    #[test]
    fn shedding_ends_with_an_interval_without_a_long_wait() {
        let mut script = steady(0, 500, 200);
        script.extend([(500, 200), (900, 101)]);
        // From 1000 to 1500 nothing waits too long.
        script.extend(steady(1000, 1500, 100));
        script.extend(steady(1500, 1600, 300));
        assert_eq!(refused(&script), [500, 900], "a burst is served again");
    }

    #[test]
    fn a_connection_with_little_to_do_does_not_hide_that_most_requests_wait() {
        let mut script: Vec<(u64, u64)> = Vec::new();
        for at in 0..100 {
            script.extend([(at * 10, 250), (at * 10, 250), (at * 10, 1)]);
        }
        let refused = refused(&script);
        assert_eq!(refused.len(), 100, "both of each time in the second half");
        assert!(refused.iter().all(|at| *at >= 500));
    }

    #[test]
    fn time_that_stands_still_or_leaps_and_absurd_waits_are_taken() {
        let now = Instant::now();
        for waiting in [Duration::ZERO, Duration::from_millis(1), Duration::from_hours(1)] {
            let mut rule = Rule::new(waiting);
            assert!(!rule.refuses(now, Duration::MAX), "{waiting:?}");
            assert_eq!(rule.oldest(), Duration::MAX);
            let later = now + Duration::from_secs(1_000_000);
            assert!(rule.refuses(later, Duration::MAX), "{waiting:?}");
            assert!(
                !rule.refuses(now, Duration::ZERO),
                "back in time, and did not wait"
            );
        }
    }

    #[test]
    fn the_oldest_wait_is_forgotten_after_two_intervals() {
        let (start, mut rule) = (Instant::now(), Rule::new(WAITING));
        rule.refuses(start, Duration::from_millis(70));
        rule.advance(start + Duration::from_millis(600));
        assert_eq!(rule.oldest(), Duration::from_millis(70));
        rule.advance(start + Duration::from_millis(1200));
        assert_eq!(rule.oldest(), Duration::ZERO);
        assert!(!rule.is_shedding());
    }
}
