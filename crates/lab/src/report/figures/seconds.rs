//! Samples laid onto whole seconds.
//!
//! Samples end when they are taken: about once a second, and once more when the load ends. A second's value
//! is the mean of the samples that lie in it, each by its share of it; only values of different sources in
//! the same second are added up.

use std::collections::BTreeMap;

/// Values by the second at whose end they are.
pub(super) type Seconds = BTreeMap<u32, f64>;

/// A second of which less was seen is the end of a sample that was a little late, and no second of its own.
const SEEN_MIN: f64 = 0.1;
/// No sample is longer; a longer one is malformed.
const SAMPLE_MAX_S: f64 = 3600.0;

/// One source's samples.
#[derive(Debug, Default)]
pub(super) struct Laid {
    /// The value times its seconds, and those seconds.
    seconds: BTreeMap<u32, (f64, f64)>,
}

impl Laid {
    /// Adds a sample that ends at `at_s`, with this value through its `length_s`.
    pub(super) fn add(&mut self, at_s: f64, length_s: f64, value: f64) {
        if !(at_s.is_finite() && length_s.is_finite() && value.is_finite()) {
            return;
        }
        let to = at_s.clamp(0.0, f64::from(u32::MAX));
        let mut from = (to - length(length_s).min(SAMPLE_MAX_S)).max(0.0);
        while from < to {
            let end = (from.floor() + 1.0).min(to);
            let (weighed, seen) = self.seconds.entry(whole(end.ceil())).or_default();
            *weighed += value * (end - from);
            *seen += end - from;
            from = end;
        }
    }

    /// The mean of each second.
    pub(super) fn means(self) -> Seconds {
        let is_enough = |seen: f64| seen >= SEEN_MIN;
        // A load that was over at once is seen all the same.
        let any = self.seconds.values().any(|(_, seen)| is_enough(*seen));
        let kept = self
            .seconds
            .into_iter()
            .filter(|(_, (_, seen))| !any || is_enough(*seen));
        kept.map(|(at, (weighed, seen))| (at, weighed / seen)).collect()
    }

    /// Returns the sum of each second.
    pub(super) fn sums(self) -> Seconds {
        let sums = self.seconds.into_iter();
        sums.map(|(at, (weighed, _))| (at, weighed)).collect()
    }
}

/// Adds the values of another source in the same seconds.
pub(super) fn add_up(all: &mut Seconds, one: Seconds) {
    for (at, value) in one {
        *all.entry(at).or_default() += value;
    }
}

/// Returns a divisor; a sample of no length is taken for a second's.
pub(super) fn length(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds } else { 1.0 }
}

/// Converts a whole number.
pub(super) fn whole(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts to integers saturate"
    )]
    let number = number as u32;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(samples: &[(f64, f64, f64)]) -> Vec<(u32, f64)> {
        let mut laid = Laid::default();
        for (at, length, value) in samples {
            laid.add(*at, *length, *value);
        }
        let rounded = |(at, value): (u32, f64)| (at, (value * 1e3).round() / 1e3);
        laid.means().into_iter().map(rounded).collect()
    }

    #[test]
    fn two_samples_in_one_second_are_not_added() {
        // The last sample of a load ends where the load does.
        let found = means(&[(80.0, 1.0, 150.0), (81.0, 1.0, 157.0), (81.26, 0.26, 166.0)]);
        assert_eq!(found, [(80, 150.0), (81, 157.0), (82, 166.0)]);
        let late = means(&[(1.0, 1.0, 150.0), (2.004, 1.004, 157.0)]);
        assert_eq!(late, [(1, 150.0), (2, 157.0)]);
        // Both are in the second that ends at 2, and each counts for as long as it was.
        let found = means(&[(1.2, 1.2, 100.0), (1.6, 0.4, 200.0), (2.0, 0.4, 300.0)]);
        assert_eq!(found, [(1, 100.0), (2, 220.0)]);
    }

    #[test]
    fn samples_that_are_late_lie_in_the_seconds_that_they_are_of() {
        let found = means(&[(1.5, 1.5, 10.0), (2.5, 1.0, 20.0), (3.5, 1.0, 40.0)]);
        assert_eq!(found, [(1, 10.0), (2, 15.0), (3, 30.0), (4, 40.0)]);
    }

    #[test]
    fn a_load_that_was_over_at_once_is_seen() {
        assert_eq!(means(&[(0.2, 0.2, 7.0)]), [(1, 7.0)]);
        assert_eq!(means(&[(1.0, 0.0, 7.0)]), [(1, 7.0)]);
    }

    #[test]
    fn malformed_samples_take_neither_time_nor_memory() {
        assert_eq!(means(&[(f64::NAN, 1.0, 1.0), (1.0, f64::INFINITY, 1.0)]), []);
        assert!(means(&[(1e300, 1e300, 1.0)]).len() <= 3601);
    }

    #[test]
    fn what_came_in_a_second_is_a_sum() {
        let mut laid = Laid::default();
        laid.add(1.5, 1.5, 10.0);
        assert_eq!(laid.sums(), Seconds::from([(1, 10.0), (2, 5.0)]));
    }
}
