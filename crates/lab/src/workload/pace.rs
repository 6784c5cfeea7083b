//! Intended moments of sending. Times are nanoseconds since the load began.
//!
//! In an open loop the moments are there beforehand, whatever the system does; a client that is late sends
//! due messages at once, with their intended moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::experiment::{Rate, Steps};

const NANOS: f64 = 1e9;
/// This many moments that are only counted are looked at one by one; then every other one, and so on.
const ONE_BY_ONE: u32 = 1 << 16;

/// The moments of one client's messages.
#[derive(Debug)]
pub struct Pace {
    kind: Kind,
    /// Of the next message; a fraction is kept, so that odd rates do not drift.
    next: f64,
    random: SmallRng,
}

#[derive(Debug)]
enum Kind {
    Even(f64),
    Poisson(f64),
    Steps { steps: Steps, share: f64 },
    Steered { rate: Arc<SharedRate>, share: f64 },
}

/// A rate that is changed while clients follow it.
#[derive(Debug, Default)]
pub struct SharedRate {
    rate: AtomicU64,
    changes: AtomicU64,
    /// Number of changes when the second that is under way began.
    before: AtomicU64,
}

impl SharedRate {
    pub fn new(rate: f64) -> Self {
        Self {
            rate: AtomicU64::new(rate.to_bits()),
            ..Self::default()
        }
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    pub fn set(&self, rate: f64) {
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
        // A reader that sees the change sees the rate.
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A second begins.
    pub fn begin_second(&self) {
        self.before
            .store(self.changes.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Returns the number of changes when the second that is under way began.
    pub fn changes_before(&self) -> u64 {
        self.before.load(Ordering::Relaxed)
    }
}

impl Pace {
    /// Creates the moments of client number `client` of `clients`, from `start` on; `None` for a closed loop.
    /// An adaptive rate follows `steered`.
    pub fn new(
        rate: &Rate,
        steered: &Arc<SharedRate>,
        client: u32,
        clients: u32,
        start: u64,
        seed: u64,
    ) -> Option<Self> {
        let share = 1.0 / f64::from(clients.max(1));
        let kind = match rate {
            Rate::Closed => return None,
            Rate::Fixed(rate) => Kind::Even(rate * share),
            Rate::Poisson(rate) => Kind::Poisson(rate * share),
            Rate::Steps(steps) => Kind::Steps {
                steps: steps.clone(),
                share,
            },
            Rate::Adaptive(_) => Kind::Steered {
                rate: Arc::clone(steered),
                share,
            },
        };
        let mut pace = Self {
            kind,
            next: start as f64,
            random: SmallRng::seed_from_u64(seed ^ (u64::from(client) << 32)),
        };
        // Clients take turns rather than all send at the same moment.
        let turn = pace.gap() * f64::from(client) * share;
        pace.next += turn;
        Some(pace)
    }

    /// The moment of the next message.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive and far below 2^53"
    )]
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// Adds the moments up to `now` to `due`, `max` of them at most.
    pub fn due(&mut self, now: u64, max: usize, due: &mut Vec<u64>) {
        while self.next() <= now && due.len() < max {
            due.push(self.next());
            self.next += self.gap();
        }
    }

    /// Passes over the moments before `until`, and tells each, with how many it stands for: of very many
    /// later ones it is more than one.
    pub fn pass_over(&mut self, until: u64, mut tell: impl FnMut(u64, u64)) {
        let (mut each, mut told) = (1_u32, 0_u32);
        while self.next() < until {
            tell(self.next(), each.into());
            self.next += self.gap() * f64::from(each);
            told += 1;
            if told == ONE_BY_ONE {
                (each, told) = (each.saturating_mul(2), 0);
            }
        }
    }

    fn gap(&mut self) -> f64 {
        match &self.kind {
            Kind::Even(rate) => NANOS / rate,
            Kind::Poisson(rate) => {
                let uniform: f64 = 1.0 - self.random.random::<f64>();
                -uniform.ln() * NANOS / rate
            }
            Kind::Steps { steps, share } => NANOS / (steps_at(steps, self.next / NANOS) * share),
            Kind::Steered { rate, share } => NANOS / (rate.get() * share),
        }
    }
}

/// The rate of the step that holds `seconds` after the start.
pub fn steps_at(steps: &Steps, seconds: f64) -> f64 {
    let step = (seconds / steps.every.0.as_secs_f64()).floor();
    (steps.first + steps.add * step).min(steps.up_to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Span;

    fn moments(rate: &Rate, client: u32, clients: u32, until: u64) -> Vec<u64> {
        let steered = Arc::new(SharedRate::new(1.0));
        let mut pace = Pace::new(rate, &steered, client, clients, 0, 1).unwrap();
        let mut due = Vec::new();
        pace.due(until, usize::MAX, &mut due);
        due
    }

    #[test]
    fn even_moments_do_not_drift_and_clients_take_turns() {
        let all = moments(&Rate::Fixed(3.0), 0, 1, 999_999_999_999);
        assert_eq!(all.len(), 3000);
        assert_eq!(all[2999], 999_666_666_666);
        assert_eq!(
            moments(&Rate::Fixed(100.0), 1, 2, 40_000_000),
            [10_000_000, 30_000_000]
        );
    }

    #[test]
    fn moments_that_are_passed_over_are_all_told_of() {
        let rate = Arc::new(SharedRate::new(1.0));
        for (of, count) in [(100.0, 1000), (1e6, 10_000_000)] {
            let mut pace = Pace::new(&Rate::Fixed(of), &rate, 0, 1, 0, 1).unwrap();
            let (mut told, mut all, mut last) = (0_u32, 0, 0);
            pace.pass_over(10_000_000_000, |moment, each| {
                assert!(moment >= last);
                last = moment;
                told += 1;
                all += each;
            });
            assert!(all.abs_diff(count) <= count / 100, "{all}");
            assert!(told < 1_000_000, "{told}");
            let mut due = Vec::new();
            pace.due(9_999_999_999, usize::MAX, &mut due);
            assert!(due.is_empty());
        }
    }

    #[test]
    fn poisson_moments_have_their_rate_and_its_variance() {
        let all = moments(&Rate::Poisson(1000.0), 0, 1, 100_000_000_000);
        let count = all.len() as f64;
        assert!((count / 100_000.0 - 1.0).abs() < 0.02, "{count}");
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e6)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{variance} {mean}");
    }

    #[test]
    fn a_change_within_a_second_counts_from_the_next_one_on() {
        let rate = SharedRate::new(1.0);
        rate.set(2.0);
        assert_eq!(
            (rate.get().to_bits(), rate.changes_before()),
            (2.0_f64.to_bits(), 0)
        );
        rate.begin_second();
        assert_eq!(rate.changes_before(), 1);
    }

    #[test]
    fn steps_rise_up_to_their_bound() {
        let steps = Steps {
            first: 10.0,
            add: 10.0,
            every: Span::seconds(1),
            up_to: 30.0,
        };
        let all = moments(&Rate::Steps(steps), 0, 1, 3_999_999_000);
        let of_second = |second: u64| {
            let inside = all.iter().filter(|at| **at / 1_000_000_000 == second);
            inside.count()
        };
        assert_eq!(
            (of_second(0), of_second(1), of_second(2), of_second(3)),
            (10, 20, 30, 30)
        );
    }
}
