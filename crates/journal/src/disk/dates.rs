//! The date of a batch as frames and sidecars keep it: its latest timestamp, or, if it has none, when it was
//! appended.
//!
//! ```text
//!  0 and more     the latest timestamp, ms since 1970
//! -1 and less     no record has a time that counts (Kafka's own has none, or is before 1970): -2 less the ms since 1970
//!                 at which the batch was appended; earlier programs stored what the batch says, such as -1
//! ```
//!
//! Where it has none, retention goes by when the batch was appended, and a search by time does not find it.

/// No batch was appended before 2020: what says so says nothing.
const APPENDED_MIN: i64 = 1_577_836_800_000;

/// The date of a batch with this latest timestamp that is appended now.
pub(crate) fn of_batch(max_timestamp: i64, now: impl FnOnce() -> i64) -> i64 {
    if max_timestamp >= 0 {
        max_timestamp
    } else {
        -2 - now().max(0)
    }
}

/// The latest timestamp: -1 if there is none.
pub(crate) fn timestamp(date: i64) -> i64 {
    date.max(-1)
}

/// When a batch without a time was appended, if its date says so.
pub(crate) fn appended(date: i64) -> Option<i64> {
    let appended = date.saturating_add(2).saturating_neg();
    (date < 0 && appended >= APPENDED_MIN).then_some(appended)
}

/// From when retention counts. `otherwise` says when a batch without a time was appended if its date does
/// not; nothing is older than a moment that cannot be.
pub(crate) fn kept_from(date: i64, otherwise: i64) -> i64 {
    if date >= 0 {
        return date;
    }
    let otherwise = (otherwise >= APPENDED_MIN).then_some(otherwise);
    appended(date).or(otherwise).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_780_000_000_000;

    #[test]
    fn what_has_no_time_counts_from_when_it_was_appended() {
        for timestamp_of_batch in [-1, -2, -86_400_000, i64::MIN] {
            let date = of_batch(timestamp_of_batch, || NOW);
            assert_eq!((timestamp(date), kept_from(date, 0)), (-1, NOW));
        }
        for timestamp_of_batch in [0, 5, NOW, i64::MAX] {
            let date = of_batch(timestamp_of_batch, || NOW);
            assert_eq!(
                (timestamp(date), kept_from(date, NOW)),
                (timestamp_of_batch, timestamp_of_batch)
            );
        }
    }

    #[test]
    fn a_moment_that_cannot_be_makes_nothing_old() {
        for date in [-1, -86_400_000, of_batch(-1, || 0), of_batch(-1, || -5)] {
            assert_eq!(kept_from(date, NOW), NOW);
            assert_eq!(kept_from(date, 12), i64::MAX);
        }
    }
}
