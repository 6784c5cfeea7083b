//! Times in answers: RFC 3339 in UTC, with milliseconds.

use jiff::Timestamp;

/// Formats a time, given in milliseconds since 1970.
pub(crate) fn rfc3339(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Returns the present time, formatted.
pub(crate) fn now() -> String {
    rfc3339(stafett_store::wall_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_also_if_there_are_none() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_795_363_200_123), "2026-11-22T16:00:00.123Z");
        assert_eq!(rfc3339(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
