//! Sizes, times and rates with units.

const SIZES: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Parses bytes: `1048576` or `1MiB`.
pub(crate) fn size(text: &str) -> Option<u64> {
    with_unit(text, SIZES)
}

/// Parses milliseconds: `60000`, `60s` or `1m`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    with_unit(text, TIMES)
}

/// Parses a count per time, in ms: `100/m`.
pub(crate) fn rate(text: &str) -> Option<(u64, u64)> {
    let (count, unit) = text.split_once('/')?;
    let (_, period) = TIMES.iter().find(|(name, _)| *name == unit.trim())?;
    Some((count.trim().parse().ok()?, *period))
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Some(number);
    }
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_and_nonsense_is_not() {
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(milliseconds("20m"), Some(1_200_000));
        assert_eq!(rate("100/m"), Some((100, 60_000)));
        for nonsense in ["", "m", "1.5s", "-1", "1 parsec"] {
            assert_eq!(milliseconds(nonsense), None, "{nonsense}");
        }
        for nonsense in ["", "100", "/m", "1/fortnight"] {
            assert_eq!(rate(nonsense), None, "{nonsense}");
        }
    }
}
