//! `KEY=VALUE` with units: sizes and durations are converted to the numbers of the protocol.

use stafett_model::quantity;

/// Parses a setting.
pub(super) fn read(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("expected KEY=VALUE, such as retention.ms=7d")?;
    let number = match unit(key) {
        Some("ms") => quantity::milliseconds(value),
        Some("bytes") => quantity::size(value),
        _ => None,
    };
    // Other values go to the broker unchanged; its error says what it expected.
    let value = number.map_or_else(|| value.to_owned(), |number| number.to_string());
    Ok((key.to_owned(), value))
}

/// Returns the unit of a setting: the last part of its name.
fn unit(key: &str) -> Option<&str> {
    key.rsplit_once('.').map(|(_, unit)| unit)
}

/// Formats a value with its unit, if the key has one.
pub(super) fn show(key: &str, value: &str) -> String {
    let Ok(number) = value.parse::<u64>() else {
        return value.to_owned();
    };
    let unit = match unit(key) {
        Some("ms") => quantity::write_milliseconds(number),
        Some("bytes") => quantity::write_size(number),
        _ => return value.to_owned(),
    };
    if unit.trim_end_matches(char::is_alphabetic) == value {
        unit
    } else {
        format!("{value} ({unit})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> String {
        let (key, value) = read(text).unwrap();
        format!("{key}={value}")
    }

    #[test]
    fn quantities_become_numbers_and_the_rest_stays() {
        assert_eq!(both("retention.ms=7d"), "retention.ms=604800000");
        assert_eq!(both("max.message.bytes=2MiB"), "max.message.bytes=2097152");
        assert_eq!(both("retention.ms=-1"), "retention.ms=-1");
        assert_eq!(
            both("cleanup.policy=compact,delete"),
            "cleanup.policy=compact,delete"
        );
        assert_eq!(both("a=b=c"), "a=b=c");
        assert!(read("retention.ms").is_err() && read("=1").is_err());
        assert_eq!(show("retention.ms", "604800000"), "604800000 (7d)");
        assert_eq!(show("retention.ms", "5"), "5ms");
        assert_eq!(show("min.insync.replicas", "1"), "1");
    }
}
