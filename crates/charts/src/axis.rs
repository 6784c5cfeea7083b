//! Scales and their ticks.
//!
//! An axis places values on a line of its own units (the logarithm of a logarithmic one, the index of a
//! category), on which everything is then drawn linearly.

use crate::numbers;

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub label: String,
    /// In the axis's own units.
    pub range: (f64, f64),
    pub ticks: Vec<Tick>,
    scale: Scale,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub at: f64,
    pub label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithm,
    /// Number of nines: 0.99 is at 2.
    Quantile,
}

/// Percentiles that readers know.
const QUANTILES: [(f64, &str); 7] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
];

impl Axis {
    fn new(scale: Scale, label: &str, range: (f64, f64), ticks: impl Iterator<Item = Tick>) -> Self {
        Self {
            label: label.to_owned(),
            range,
            ticks: ticks.collect(),
            scale,
        }
    }

    /// Logarithmic or linear.
    pub fn scaled(
        is_log: bool,
        label: &str,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        if is_log {
            Self::logarithmic(label, unit, values)
        } else {
            Self::linear(label, unit, values)
        }
    }

    /// From zero, or from below it where there are such values, to a round number.
    pub fn linear(label: &str, unit: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / 4.0);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        Self::of_steps(label, unit, step, (first, last))
    }

    /// From a round number below to one above, with zero or without.
    pub fn around(label: &str, unit: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let high = if high > low { high } else { low + 0.1 };
        let step = round_step((high - low) / 4.0);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        Self::of_steps(label, unit, step, (first, last))
    }

    /// Linear, with a tick at each step from the first to the last.
    fn of_steps(label: &str, unit: &'static str, step: f64, (first, last): (f64, f64)) -> Self {
        let ticks = steps(first, last).map(|index| tick(index * step, numbers::tick(index * step, unit)));
        Self::new(Scale::Linear, label, (first * step, last * step), ticks)
    }

    /// From below the smallest to above the largest value, without zero. Values that have no logarithm are
    /// left out.
    pub fn logarithmic(label: &str, unit: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = extent(values).unwrap_or((1.0, 10.0));
        let (low, high) = (low.log10(), high.log10());
        let decades = high - low;
        let all = |digits: &'static [f64]| {
            steps(low.floor() - 1.0, high.ceil() + 1.0).flat_map(move |decade| {
                digits
                    .iter()
                    .map(move |digit| (decade + digit.log10(), digit * 10f64.powf(decade)))
            })
        };
        let round = || all(&[1.0, 2.0, 5.0]).map(|(at, _)| at);
        let first = round().filter(|at| *at <= low + 1e-9).fold(low.floor(), f64::max);
        let last = round()
            .filter(|at| *at >= high - 1e-9)
            .fold(high.ceil() + 1.0, f64::min);
        let last = if last > first { last } else { first + 1.0 };
        let thin = if decades > 8.0 { 2 } else { 1 };
        // Few decades get 1, 2 and 5; many only their ends.
        let ticks = all(if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] })
            .filter(|(at, _)| *at >= first - 1e-9 && *at <= last + 1e-9)
            .step_by(thin)
            .map(|(at, value)| tick(at, numbers::tick(value, unit)));
        Self::new(Scale::Logarithm, label, (first, last), ticks)
    }

    /// Percentiles, the rare ones as wide as the frequent ones, up to the last one that this many values
    /// have.
    pub fn quantiles(count: u64) -> Self {
        let last = (count.max(10) as f64).log10().min(5.0);
        let ticks = QUANTILES
            .iter()
            .map(|(quantile, name)| tick(nines(*quantile), (*name).to_owned()))
            .filter(|tick| tick.at <= last + 1e-9);
        Self::new(Scale::Quantile, "Percentile", (0.0, last), ticks)
    }

    /// Names, with half a step of space around each.
    pub fn categories(label: &str, names: &[String]) -> Self {
        let ticks = names
            .iter()
            .enumerate()
            .map(|(index, name)| tick(index as f64, name.clone()));
        let range = (-0.5, names.len().max(1) as f64 - 0.5);
        Self::new(Scale::Linear, label, range, ticks)
    }

    /// The same scale with ticks where the values are, as far as they do not crowd each other.
    #[must_use]
    pub fn with_ticks(mut self, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        let gap = (self.range.1 - self.range.0) / 14.0;
        let mut chosen: Vec<Tick> = Vec::new();
        for (value, label) in ticks {
            let at = self.place(value);
            if chosen.last().is_none_or(|last| at - last.at >= gap) {
                chosen.push(tick(at, label));
            }
        }
        self.ticks = chosen;
        self
    }

    /// Ends where the values end, with a little space.
    #[must_use]
    pub fn tight(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        let places = values.into_iter().map(|value| self.place(value));
        if let Some((low, high)) = extent(places) {
            let space = if high > low { (high - low) * 0.03 } else { 0.5 };
            self.range = (low - space, high + space);
            self.ticks
                .retain(|tick| tick.at >= low - space && tick.at <= high + space);
        }
        self
    }

    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithm => value.log10(),
            Scale::Quantile => nines(value),
        }
    }

    /// Returns the place of `at`, in the axis's own units, between `first` and `last`, and beyond them
    /// outside of its range.
    pub(crate) fn along(&self, at: f64, (first, last): (f64, f64)) -> f64 {
        let (low, high) = self.range;
        first + (at - low) / (high - low) * (last - first)
    }

    /// Letters of the longest tick.
    pub fn letters(&self) -> usize {
        self.ticks
            .iter()
            .map(|tick| tick.label.chars().count())
            .max()
            .unwrap_or(0)
    }
}

fn tick(at: f64, label: String) -> Tick {
    Tick { at, label }
}

fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-9).log10()
}

fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// 1, 2 or 5 times a power of ten, at least as large.
fn round_step(wanted: f64) -> f64 {
    let decade = 10f64.powf(wanted.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * decade >= wanted * 0.999);
    factor.unwrap_or(10.0) * decade
}

fn steps(first: f64, last: f64) -> impl Iterator<Item = f64> {
    // A chart has a handful of ticks; the bound is against ranges that are no numbers.
    (0..64)
        .map(move |index| first + f64::from(index))
        .take_while(move |at| *at <= last + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::Axis;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks
            .iter()
            .map(|tick| tick.label.replace('\u{202f}', " "))
            .collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_round() {
        let axis = Axis::linear("", "1/s", [180_000.0, 412_000.0]);
        assert_eq!(labels(&axis), ["0", "200 k", "400 k", "600 k"]);
        let axis = Axis::linear("", "s", [-1.2, 3.0]);
        assert_eq!(labels(&axis), ["\u{2212}2", "0", "2", "4"]);
    }

    #[test]
    fn logarithmic_axes_have_one_two_five_over_few_decades_and_powers_over_many() {
        let axis = Axis::logarithmic("", "µs", [300.0, 4_000.0]);
        assert_eq!(labels(&axis), ["200 µs", "500 µs", "1 ms", "2 ms", "5 ms"]);
        let axis = Axis::logarithmic("", "µs", [90.0, 2_000_000.0]);
        assert_eq!(labels(&axis), ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn percentiles_end_where_the_values_end() {
        assert_eq!(labels(&Axis::quantiles(1_500)), ["0", "50", "90", "99", "99.9"]);
        assert_eq!(labels(&Axis::quantiles(0)), ["0", "50", "90"]);
    }

    #[test]
    fn axes_without_values_or_with_one_still_have_a_range() {
        for axis in [
            Axis::linear("", "s", std::iter::empty()),
            Axis::linear("", "s", [0.0]),
            Axis::linear("", "s", [f64::NAN, 5.0]),
            Axis::logarithmic("", "s", [0.0, -1.0]),
            Axis::logarithmic("", "s", [10.0]),
            Axis::linear("", "s", [5.0]).tight([5.0]),
        ] {
            assert!(
                axis.range.1 > axis.range.0 && axis.range.0.is_finite(),
                "{axis:?}"
            );
        }
    }

    #[test]
    fn ticks_that_would_crowd_are_left_out() {
        let values = [1.0, 2.0, 3.0, 100.0];
        let axis = Axis::linear("", "", values);
        let axis = axis.with_ticks(values.into_iter().map(|value| (value, value.to_string())));
        assert_eq!(labels(&axis), ["1", "100"]);
    }
}
