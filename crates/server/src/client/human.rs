//! Formats numbers, sizes and times for people.

use jiff::Timestamp;

/// Formats a count with separated thousands: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size with about three digits: `512 B`, `1.5 KiB`, `20.0 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // Values that would be rounded to 1024.0 get the next unit.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Formats a time in UTC: `2026-11-21T14:00:00.123Z`.
pub(crate) fn time(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds)
        .map_or_else(|_| milliseconds.to_string(), |time| format!("{time:.3}"))
}

/// Formats partitions as ranges: `0-3,5`.
pub(crate) fn runs(sorted: &[i32]) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let run = |(first, last): &(i32, i32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 20, 3 << 40].map(size),
            [
                "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 MiB", "3.0 TiB"
            ]
        );
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_763_733_600_123), "2025-11-21T14:00:00.123Z");
        assert_eq!(runs(&[0, 1, 2, 3, 5, 7, 8]), "0-3,5,7-8");
        assert_eq!(runs(&[]), "");
    }
}
