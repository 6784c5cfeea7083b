//! Two systems against each other: the ratio of their means, with an interval.
//!
//! Fieller's interval in the form of T. Kalibera and R. Jones, *Rigorous benchmarking in reasonable time*
//! (ISMM 2013): it holds every ratio that the two means' own intervals allow together. Where the base could
//! be zero there is no bounded interval, and none is given.

use serde::{Deserialize, Serialize};

use super::{CONFIDENCE, Estimate, Interval};

/// Ratio of a system to the base.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub value: f64,
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Returns true if the two differ beyond chance. `None` without an interval.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|interval| !interval.contains(1.0))
    }
}

/// `system / base`. `None` if the base is zero.
pub fn ratio(system: &Estimate, base: &Estimate) -> Option<Ratio> {
    let value = system.value / base.value;
    value.is_finite().then(|| Ratio {
        value,
        interval: fieller(system, base),
    })
}

fn fieller(system: &Estimate, base: &Estimate) -> Option<Interval> {
    let (above, below) = (system.interval?.half_width(), base.interval?.half_width());
    let square = base.value.powi(2) - below.powi(2);
    if square <= 0.0 {
        return None;
    }
    let product = system.value * base.value;
    let under = product.powi(2) - square * (system.value.powi(2) - above.powi(2));
    let reach = under.max(0.0).sqrt();
    let ends = [(product - reach) / square, (product + reach) / square];
    let [low, high] = ends;
    (low.is_finite() && high.is_finite()).then_some(Interval {
        low,
        high,
        confidence: CONFIDENCE,
    })
}

#[cfg(test)]
mod tests {
    use super::super::mean;
    use super::ratio;

    const FAST: [f64; 5] = [1012.0, 998.0, 1041.0, 1003.0, 1020.0];
    const SLOW: [f64; 5] = [401.0, 388.0, 420.0, 395.0, 409.0];

    /// `tests/reference/statistics.py` finds the interval's ends as roots of the pivot.
    #[test]
    fn interval_of_a_ratio_is_that_of_the_second_implementation() {
        let expected: serde_json::Value =
            serde_json::from_str(include_str!("../tests/reference/expected.json")).unwrap();
        let expected = &expected["ratio"];
        let ratio = ratio(&mean(&FAST).unwrap(), &mean(&SLOW).unwrap()).unwrap();
        let interval = ratio.interval.unwrap();
        for (found, expected) in [
            (ratio.value, &expected["value"]),
            (interval.low, &expected["interval"][0]),
            (interval.high, &expected["interval"][1]),
        ] {
            assert!(
                (found - expected.as_f64().unwrap()).abs() < 1e-9,
                "{found} {expected}"
            );
        }
        assert_eq!(ratio.differs(), Some(true));
    }

    #[test]
    fn a_system_does_not_differ_from_itself() {
        let estimate = mean(&FAST).unwrap();
        assert_eq!(ratio(&estimate, &estimate).unwrap().differs(), Some(false));
    }

    #[test]
    fn a_base_that_could_be_zero_leaves_the_ratio_without_interval() {
        let base = mean(&[0.1, 3.0, -2.5]).unwrap();
        let found = ratio(&mean(&FAST).unwrap(), &base).unwrap();
        assert_eq!(found.interval, None);
        assert_eq!(found.differs(), None);
    }

    #[test]
    fn a_base_of_zero_has_no_ratio() {
        assert_eq!(ratio(&mean(&FAST).unwrap(), &mean(&[0.0, 0.0]).unwrap()), None);
    }
}
