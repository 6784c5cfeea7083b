//! Sizes, durations and rates as texts: plain numbers, or numbers with a unit.

const SIZES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Parses bytes: `1048576`, `1024KiB`, `1MiB`.
pub fn size(text: &str) -> Option<u64> {
    with_unit(text, SIZES)
}

/// Parses milliseconds: `60000`, `60s`, `1m`.
pub fn milliseconds(text: &str) -> Option<u64> {
    with_unit(text, TIMES)
}

/// Parses a count per time, in milliseconds: `100/m`.
pub fn rate(text: &str) -> Option<(u64, u64)> {
    let (count, unit) = text.split_once('/')?;
    let (_, period) = TIMES.iter().find(|(name, _)| *name == unit.trim())?;
    Some((count.trim().parse().ok()?, *period))
}

/// Formats bytes in the largest unit without a remainder.
pub fn write_size(bytes: u64) -> String {
    write(bytes, SIZES)
}

/// Formats milliseconds in the largest unit without a remainder.
pub fn write_milliseconds(millis: u64) -> String {
    write(millis, TIMES)
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let unit = unit.trim_start();
    let factor = if unit.is_empty() {
        1
    } else {
        units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1
    };
    number.checked_mul(factor)
}

fn write(number: u64, units: &[(&str, u64)]) -> String {
    let unit = units
        .iter()
        .find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor));
    unit.map_or_else(
        || number.to_string(),
        |(name, factor)| format!("{}{name}", number / factor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_with_and_without_units() {
        assert_eq!(size("1048588"), Some(1_048_588));
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("64 mib"), Some(64 << 20));
        assert_eq!(milliseconds("7d"), Some(604_800_000));
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("10m"), Some(600_000));
        for nonsense in [
            "",
            "MiB",
            "-1",
            "1.5MiB",
            "64MB",
            "64Mi",
            "1 2",
            "20000000TiB",
            "9d9",
        ] {
            assert_eq!(size(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn rates_are_a_count_and_a_unit_of_time() {
        assert_eq!(rate("100/m"), Some((100, 60_000)));
        for nonsense in ["", "100", "/m", "1/fortnight"] {
            assert_eq!(rate(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for number in [0, 1, 1000, 1024, 1_048_588, 64 << 20, 604_800_000, u64::MAX] {
            assert_eq!(size(&write_size(number)), Some(number));
            assert_eq!(milliseconds(&write_milliseconds(number)), Some(number));
        }
        assert_eq!(write_size(64 << 20), "64MiB");
        assert_eq!(write_milliseconds(604_800_000), "7d");
    }
}
