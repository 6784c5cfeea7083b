//! Finds the highest rate that holds: raised step by step until the latency bound breaks, then halved in ever finer
//! steps between what held and what did not.

use crate::experiment::Adaptive;

/// Steps between what holds and what does not end when they are this close.
const CLOSE_ENOUGH: f64 = 1.05;

/// The search. Each rate is tried for a while; what was seen decides the next one.
#[derive(Debug, Clone)]
pub struct Search {
    settings: Adaptive,
    rate: f64,
    held: Option<f64>,
    broke: Option<f64>,
}

/// What was seen while a rate was tried.
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
            held: None,
            broke: None,
        }
    }

    /// The rate to try now.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The highest rate that held.
    pub fn sustainable(&self) -> Option<f64> {
        self.held
    }

    /// Takes what was seen, and chooses the next rate. Once the bounds are close, it stays at what held.
    pub fn step(&mut self, trial: Trial) {
        let bound = u64::try_from(self.settings.p99.0.as_micros()).unwrap_or(u64::MAX);
        let holds = trial.p99_us.is_some_and(|p99| p99 <= bound) && trial.share > 0.95;
        if holds {
            self.held = Some(self.held.map_or(self.rate, |held| held.max(self.rate)));
        } else {
            self.broke = Some(self.broke.map_or(self.rate, |broke| broke.min(self.rate)));
            // A machine has its moments: what held before and does not now did not hold.
            if self.held.is_some_and(|held| held >= self.rate) {
                self.held = Some(self.rate / self.settings.raise);
            }
        }
        self.rate = match (self.held, self.broke) {
            (_, None) => self.rate * self.settings.raise,
            (None, Some(broke)) => broke / 2.0,
            (Some(held), Some(broke)) if broke / held <= CLOSE_ENOUGH => held,
            (Some(held), Some(broke)) => (held * broke).sqrt(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Span;

    fn search(first: f64) -> Search {
        Search::new(&Adaptive {
            first,
            p99: Span::millis(20),
            every: Span::seconds(1),
            raise: 2.0,
        })
    }

    fn run(mut search: Search, capacity: f64) -> f64 {
        for _ in 0..20 {
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
    fn what_does_not_come_through_does_not_hold() {
        let mut search = search(1000.0);
        search.step(Trial {
            p99_us: None,
            share: 0.0,
        });
        assert_eq!(search.sustainable(), None);
        assert!(search.rate() < 1000.0);
    }
}
