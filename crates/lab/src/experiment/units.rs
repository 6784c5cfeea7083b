//! Durations and sizes as people write them: `"10s"`, `"250ms"`, `"2m"`; `100`, `"64KiB"`, `"1MB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteCount(pub u64);

const TIMES: [(&str, u64); 5] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];
/// No span is longer: a month.
const NANOS_MAX: u64 = 31 * 24 * TIMES[4].1;

impl Span {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

/// A number and the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.trim().parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number, unit))
}

/// Reads a number with one of these units, in the smallest of them.
fn parse(text: &str, units: &[(&str, u64)], max: u64) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, unit) = units.iter().find(|(name, _)| *name == unit)?;
    let product = (number * *unit as f64).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and max"
    )]
    (product <= max as f64).then_some(product as u64)
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &TIMES, NANOS_MAX)
            .map(|nanos| Self(Duration::from_nanos(nanos)))
            .ok_or_else(|| {
                format!("{text:?} is no length of time: expected such as 10s, 250ms, 2m, at most 31 days")
            })
    }
}

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &SIZES, 1 << 50)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no number of bytes: expected such as 100, 64KiB, 1MB"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(NANOS_MAX);
        let mut fitting = TIMES
            .iter()
            .rev()
            .filter(|(_, unit)| nanos >= *unit && nanos.is_multiple_of(*unit));
        match fitting.next() {
            Some((name, unit)) => write!(f, "{}{name}", nanos / unit),
            None => write!(f, "{}us", nanos as f64 / 1e3),
        }
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SIZES.iter().rev().filter(|(name, _)| name.len() != 2);
        let mut fitting = binary.filter(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match fitting.next() {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for ByteCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// A number of bytes as it stands in a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes, such as 100 or \"64KiB\"")]
enum Written {
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => u64::try_from(bytes)
                .map(Self)
                .map_err(|_| D::Error::custom("a number of bytes cannot be negative")),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_read_back_as_written() {
        for text in ["10s", "250ms", "2m", "1h", "90s", "5us", "0us"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{text}");
        }
        assert_eq!("1.5s".parse::<Span>().unwrap(), Span::millis(1500));
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "90s");
        assert_eq!("64KiB".parse::<ByteCount>().unwrap().0, 65_536);
        assert_eq!("1MB".parse::<ByteCount>().unwrap().0, 1_000_000);
        assert_eq!(ByteCount(65_536).to_string(), "64KiB");
    }

    #[test]
    fn nonsense_is_said_to_be() {
        for text in ["", "s", "10", "10 parsecs", "-1s", "nans", "1e300h"] {
            assert!(
                text.parse::<Span>().unwrap_err().contains("no length of time"),
                "{text}"
            );
        }
        for text in ["", "10", "10kib", "-1B", "1e300GiB"] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }
}
