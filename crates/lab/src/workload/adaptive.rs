//! Finds the highest rate that holds: raised step by step until the latency bound breaks, then halved in ever
//! finer steps between the rates that held and those that did not.
//!
//! Pure: the load hands in a role's samples second by second and sees to it that the rate is followed,
//! whether its clients sit here or on many hosts.

use std::time::Duration;

use crate::experiment::Adaptive;
use crate::results::RateSample;

/// Steps between a rate that holds and one that does not end when they are this close.
const CLOSE_ENOUGH: f64 = 1.05;

/// The search. Each rate is tried for a while; its samples decide the next one. When a rate broke the bound,
/// the load is let down until the system has recovered: the backlog must not count against the next rate.
#[derive(Debug, Clone)]
pub struct Search {
    settings: Adaptive,
    rate: f64,
    /// Rates that held, the highest last.
    held: Vec<f64>,
    broke: Option<f64>,
    /// The rate to try when the system has recovered.
    next: Option<f64>,
    /// The rate that broke the bound the last time, and is tried once more: a machine has its moments.
    doubted: Option<f64>,
}

/// Observations while a rate was tried.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    pub p99_us: Option<u64>,
    /// Messages that came through, against those that were due.
    pub share: f64,
}

impl Search {
    pub fn new(settings: &Adaptive) -> Self {
        Self {
            rate: settings.first,
            settings: settings.clone(),
            held: Vec::new(),
            broke: None,
            next: None,
            doubted: None,
        }
    }

    /// The rate to try now.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The highest rate that held, and did not break the bound at another time.
    pub fn sustainable(&self) -> Option<f64> {
        self.held.last().copied()
    }

    /// Takes the observations, and chooses the next rate. Once the bounds are close, it stays at the rate
    /// that held.
    pub fn step(&mut self, trial: Trial) {
        let bound = u64::try_from(self.settings.p99.0.as_micros()).unwrap_or(u64::MAX);
        let holds = trial.p99_us.is_some_and(|p99| p99 <= bound) && trial.share > 0.95;
        if let Some(next) = self.next {
            if holds {
                self.next = None;
                self.rate = next;
            } else {
                self.rate /= 2.0;
            }
            return;
        }
        if !holds && self.doubted.replace(self.rate) != Some(self.rate) {
            self.next = Some(self.rate);
            self.rate /= 4.0;
            return;
        }
        self.doubted = None;
        if holds {
            if self.sustainable().is_none_or(|held| held < self.rate) {
                self.held.push(self.rate);
            }
        } else {
            self.broke = Some(self.broke.map_or(self.rate, |broke| broke.min(self.rate)));
            // A rate that held before and failed twice now did not hold; the rate that is known to hold is
            // below it.
            self.held.retain(|held| *held < self.rate);
        }
        let next = match (self.sustainable(), self.broke) {
            (_, None) => self.rate * self.settings.raise,
            (None, Some(broke)) => broke / 2.0,
            (Some(held), Some(broke)) if broke / held <= CLOSE_ENOUGH => held,
            (Some(held), Some(broke)) => (held * broke).sqrt(),
        };
        if holds {
            self.rate = next;
        } else {
            self.next = Some(next);
            self.rate /= 4.0;
        }
    }
}

/// A search at work on one role.
#[derive(Debug, Clone)]
pub struct Steering {
    search: Search,
    every: Duration,
    /// Number of changes of the rate.
    changes: u64,
    /// Of the trial that is under way.
    tried: Duration,
    acknowledged: u64,
    worst_us: Option<u64>,
}

impl Steering {
    pub fn new(settings: &Adaptive) -> Self {
        Self {
            search: Search::new(settings),
            every: settings.every.0,
            changes: 0,
            tried: Duration::ZERO,
            acknowledged: 0,
            worst_us: None,
        }
    }

    /// Takes a second of the role as a whole; the rate to follow from now on, if it is another one.
    /// `changes`: how many changes all clients had heard of when the second began. One that began before they
    /// heard of the latest says nothing about the rate that is tried.
    pub fn look(&mut self, second: &RateSample, changes: u64) -> Option<f64> {
        if changes != self.changes {
            return None;
        }
        self.worst_us = self.worst_us.max(second.p99_us);
        self.acknowledged = self.acknowledged.saturating_add(second.acknowledged);
        let length = Duration::try_from_secs_f64(second.seconds).unwrap_or_default();
        self.tried = self.tried.saturating_add(length);
        if self.tried < self.every {
            return None;
        }
        let before = self.search.rate();
        let due = before * self.tried.as_secs_f64();
        self.search.step(Trial {
            p99_us: self.worst_us,
            share: self.acknowledged as f64 / due.max(1.0),
        });
        (self.tried, self.acknowledged, self.worst_us) = (Duration::ZERO, 0, None);
        let rate = self.search.rate();
        let is_new = rate.to_bits() != before.to_bits();
        self.changes += u64::from(is_new);
        is_new.then_some(rate)
    }

    /// Returns the number of changes of the rate.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The highest rate that held.
    pub fn sustainable(&self) -> Option<f64> {
        self.search.sustainable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Span;

    fn settings(first: f64) -> Adaptive {
        Adaptive {
            first,
            p99: Span::millis(20),
            every: Span::seconds(1),
            raise: 2.0,
        }
    }

    fn search(first: f64) -> Search {
        Search::new(&settings(first))
    }

    fn second(acknowledged: u64, p99_us: u64) -> RateSample {
        RateSample {
            seconds: 0.5,
            acknowledged,
            p99_us: Some(p99_us),
            ..RateSample::default()
        }
    }

    #[test]
    fn a_second_under_another_rate_says_nothing_about_the_one_that_is_tried() {
        let mut steering = Steering::new(&settings(100.0));
        assert_eq!(steering.look(&second(50, 1000), 0), None, "half of the trial");
        assert_eq!(steering.look(&second(50, 1000), 0), Some(200.0));
        // The senders do not have the new rate yet: at the old rate half of the due messages arrive, and slow
        // messages have another cause.
        for _ in 0..5 {
            assert_eq!(steering.look(&second(50, 900_000), 0), None);
        }
        assert_eq!(steering.look(&second(100, 1000), 1), None);
        assert_eq!(steering.look(&second(100, 1000), 1), Some(400.0));
        assert_eq!(steering.sustainable(), Some(200.0));
        assert_eq!(
            steering.look(&second(100, 1000), 9),
            None,
            "nobody told them of nine changes"
        );
    }

    #[test]
    fn what_is_no_time_and_no_count_is_survived() {
        let mut steering = Steering::new(&settings(100.0));
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let nonsense = RateSample {
                seconds,
                ..second(u64::MAX, u64::MAX)
            };
            assert_eq!(steering.look(&nonsense, 0), None);
        }
        assert_eq!(steering.sustainable(), None);
    }

    fn run(mut search: Search, capacity: f64) -> f64 {
        for _ in 0..60 {
            let p99_us = if search.rate() <= capacity { 1000 } else { 500_000 };
            search.step(Trial {
                p99_us: Some(p99_us),
                share: 1.0,
            });
        }
        search.sustainable().unwrap()
    }

    #[test]
    fn the_highest_rate_that_holds_is_found_from_below_and_from_above() {
        for first in [100.0, 1_000_000.0] {
            let found = run(search(first), 33_000.0);
            assert!((31_000.0..=33_000.0).contains(&found), "{found}");
        }
    }

    #[test]
    fn one_bad_moment_does_not_decide() {
        let mut search = search(100.0);
        let trial = |p99_us| Trial {
            p99_us: Some(p99_us),
            share: 1.0,
        };
        search.step(trial(1000));
        assert!((search.rate() - 200.0).abs() < 1e-9);
        search.step(trial(500_000));
        assert!((search.rate() - 50.0).abs() < 1e-9, "it recovers");
        search.step(trial(1000));
        assert!((search.rate() - 200.0).abs() < 1e-9, "once more");
        search.step(trial(1000));
        assert!((search.rate() - 400.0).abs() < 1e-9);
        assert_eq!(search.sustainable(), Some(200.0));
    }

    #[test]
    fn what_is_found_was_tried_and_held_even_where_the_system_becomes_slower() {
        for slower_from in 5..40 {
            let mut search = search(100.0);
            let mut held = Vec::new();
            for trial in 0..1000 {
                let capacity = if trial < slower_from { 33_000.0 } else { 900.0 };
                let holds = search.rate() <= capacity;
                if holds {
                    held.push(search.rate().to_bits());
                }
                search.step(Trial {
                    p99_us: Some(if holds { 1000 } else { 500_000 }),
                    share: 1.0,
                });
                let found = search.sustainable();
                assert!(
                    found.is_none_or(|found| held.contains(&found.to_bits())),
                    "{found:?}"
                );
            }
            let found = search.sustainable().unwrap();
            assert!((600.0..=900.0).contains(&found), "{found} from {slower_from} on");
        }
    }

    #[test]
    fn what_does_not_come_through_does_not_hold() {
        let mut search = search(1000.0);
        for _ in 0..4 {
            search.step(Trial {
                p99_us: None,
                share: 0.0,
            });
        }
        assert_eq!(search.sustainable(), None);
        assert!(search.rate() < 1000.0);
    }
}
