//! Numbers as people read them.
//!
//! A column of a table has one scale for all its rows, so that they can be compared by eye; an axis has
//! labels that stand for themselves (`250 k`, `1 ms`).

use stafett_statistics::Estimate;

/// Narrow space that does not break a line.
const THIN: char = '\u{202f}';

/// Divisor of a column's numbers, and the name of the unit that they then have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    divisor: f64,
    pub unit: &'static str,
}

const RATES: [(f64, &str); 4] = [(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")];
const BYTE_RATES: [(f64, &str); 4] = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")];
const MICROS: [(f64, &str); 3] = [(1e6, "s"), (1e3, "ms"), (1.0, "µs")];
const MEBIBYTES: [(f64, &str); 2] = [(1024.0, "GiB"), (1.0, "MiB")];
const PLAIN: [(f64, &str); 1] = [(1.0, "")];

fn scales(unit: &str) -> &'static [(f64, &'static str)] {
    match unit {
        "1/s" => &RATES,
        "B/s" => &BYTE_RATES,
        "µs" => &MICROS,
        "MiB" => &MEBIBYTES,
        _ => &PLAIN,
    }
}

impl Scale {
    /// One that leaves the smallest of the values with a digit before its point where it can, and the largest
    /// with at most six.
    pub fn of(unit: &'static str, values: impl Iterator<Item = f64> + Clone) -> Self {
        let largest = values
            .clone()
            .fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let smallest = values
            .filter(|value| *value != 0.0)
            .fold(f64::INFINITY, |least, value| least.min(value.abs()));
        let scales = scales(unit);
        let fitting = scales
            .iter()
            .find(|(divisor, _)| largest >= *divisor && (smallest >= *divisor || largest >= divisor * 1e3));
        match fitting.or_else(|| scales.last()) {
            Some((divisor, name)) if !name.is_empty() => Self {
                divisor: *divisor,
                unit: name,
            },
            _ => Self { divisor: 1.0, unit },
        }
    }

    /// One for a number that stands for itself.
    pub fn alone(unit: &'static str, value: f64) -> Self {
        Self::of(unit, std::iter::once(value))
    }

    pub fn number(&self, value: f64) -> String {
        plain(value / self.divisor, digits(value / self.divisor))
    }

    /// With the name of the unit behind it.
    pub fn with_unit(&self, value: f64) -> String {
        let number = self.number(value);
        match self.unit {
            "" => number,
            rate if rate.starts_with('/') => format!("{number}{rate}"),
            name => format!("{number}{THIN}{name}"),
        }
    }

    /// With one digit more, for readers that check calculations.
    pub fn fine(&self, value: f64) -> String {
        plain(value / self.divisor, 3)
    }

    /// `1.02 ± 0.01`, or the number alone where there is no symmetrical interval.
    pub fn estimate(&self, estimate: &Estimate) -> (String, Option<String>) {
        let value = estimate.value / self.divisor;
        let Some(interval) = estimate.interval else {
            return (plain(value, digits(value)), None);
        };
        let half = interval.half_width() / self.divisor;
        // As many places as make two digits of the uncertainty, but no more than the value itself has use
        // for.
        let places = digits(value)
            .max(if half > 0.0 { digits(half * 10.0).min(3) } else { 0 })
            .min(digits(value) + 1);
        let symmetrical =
            (interval.high + interval.low - 2.0 * estimate.value).abs() <= 1e-9 * estimate.value.abs();
        let reach = if symmetrical {
            format!("±{THIN}{}", plain(half, places))
        } else {
            let (low, high) = (interval.low / self.divisor, interval.high / self.divisor);
            format!("{}{THIN}…{THIN}{}", plain(low, places), plain(high, places))
        };
        (plain(value, places), Some(reach))
    }
}

/// Places behind the point that leave three digits in all.
fn digits(value: f64) -> usize {
    match value.abs() {
        value if value == 0.0 || value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        value if value >= 0.01 => 3,
        _ => 4,
    }
}

/// With narrow spaces between thousands.
pub fn plain(value: f64, places: usize) -> String {
    let text = format!("{:.places$}", value.abs());
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    if value < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        grouped.push('\u{2212}');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(THIN);
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// A number that stands for itself, with three digits at most: `1.02 M/s`, `250 µs`.
pub fn alone(value: f64, unit: &'static str) -> String {
    Scale::alone(unit, value).with_unit(value)
}

/// Returns a label of an axis, with as few digits as a round number needs. The unit of rates is in the axis's
/// own label.
pub fn tick(value: f64, unit: &'static str) -> String {
    let scale = Scale::alone(unit, value);
    let short = trim(value / scale.divisor);
    match scale.unit {
        "" | "/s" | "s" if unit != "µs" => thousands(value),
        "k/s" | "M/s" | "G/s" => format!("{short}{THIN}{}", scale.unit.trim_end_matches("/s")),
        "messages" => thousands(value),
        _ if value == 0.0 => "0".to_owned(),
        name => format!("{short}{THIN}{name}"),
    }
}

fn thousands(value: f64) -> String {
    if value.abs() >= 1e6 {
        format!("{}{THIN}M", trim(value / 1e6))
    } else if value.abs() >= 1e4 {
        format!("{}{THIN}k", trim(value / 1e3))
    } else {
        trim(value)
    }
}

fn trim(value: f64) -> String {
    let text = plain(value, 6);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `12 %`, `0.4 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.05 {
        return format!("<{THIN}0.1{THIN}%");
    }
    let places = usize::from(value.abs() < 9.95 && value != 0.0);
    format!("{}{THIN}%", plain(value, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stafett_statistics::mean;

    fn spaced(text: &str) -> String {
        text.replace(THIN, " ")
    }

    #[test]
    fn columns_have_one_scale() {
        let scale = Scale::of("1/s", [1_234_000.0, 24_000.0].into_iter());
        assert_eq!(scale.unit, "k/s");
        assert_eq!(spaced(&scale.number(1_234_000.0)), "1 234");
        assert_eq!(scale.number(24_000.0), "24.0");
        assert_eq!(Scale::of("µs", [900.0, 310.0].into_iter()).unit, "µs");
        assert_eq!(Scale::of("µs", [9_000.0, 310_000.0].into_iter()).unit, "ms");
        assert_eq!(Scale::of("s", [3.0].into_iter()).unit, "s");
    }

    #[test]
    fn intervals_stand_beside_their_values() {
        let estimate = mean(&[1_000_000.0, 1_020_000.0, 1_010_000.0]).unwrap();
        let (value, reach) = Scale::of("1/s", [estimate.value].into_iter()).estimate(&estimate);
        assert_eq!(
            (value.as_str(), spaced(&reach.unwrap()).as_str()),
            ("1.010", "± 0.025")
        );
        assert_eq!(
            Scale::of("s", [2.0].into_iter()).estimate(&mean(&[2.0]).unwrap()),
            ("2.00".into(), None)
        );
    }

    #[test]
    fn single_numbers_carry_their_unit() {
        assert_eq!(spaced(&alone(1_020_000.0, "1/s")), "1.02 M/s");
        assert_eq!(spaced(&alone(250.0, "µs")), "250 µs");
        assert_eq!(spaced(&alone(0.5, "s")), "0.500 s");
        assert_eq!(spaced(&tick(250_000.0, "1/s")), "250 k");
        assert_eq!(spaced(&tick(10_000.0, "µs")), "10 ms");
        assert_eq!(spaced(&tick(0.0, "µs")), "0");
        assert_eq!(spaced(&percent(0.0432)), "4.3 %");
        assert_eq!(spaced(&percent(0.0001)), "< 0.1 %");
        assert_eq!(plain(-0.0001, 2), "0.00");
        assert_eq!(plain(-2.5, 1), "\u{2212}2.5");
    }
}
