//! Date of a batch in frames and sidecars: its latest timestamp, or, if it has none, the time of its append.
//!
//! ```text
//!  0 and more     the latest timestamp, ms since 1970
//! -1 and less     no valid timestamp (Kafka's own has none, or is before 1970): -2 minus the time of the
//!                 append, ms since 1970; old versions stored the batch's value, such as -1
//! ```
//!
//! Without a timestamp, retention uses the time of the append, and a search by time does not find the batch.

/// No batch was appended before 2020: an earlier time is not an append time.
const APPENDED_MIN: i64 = 1_577_836_800_000;

/// Returns the date of a batch with this latest timestamp that is appended now.
pub(crate) fn of_batch(max_timestamp: i64, now: impl FnOnce() -> i64) -> i64 {
    if max_timestamp >= 0 {
        max_timestamp
    } else {
        -2 - now().max(0)
    }
}

/// Returns the date of a batch that has lost records: by this latest timestamp, or as before.
pub(crate) fn of_batch_again(max_timestamp: i64, before: i64) -> i64 {
    if max_timestamp >= 0 { max_timestamp } else { before }
}

/// Returns the date of a batch that has lost all of its records: a search by time does not find it, and
/// retention counts as before, as far as the date can be one of an append.
pub(crate) fn of_nothing(before: i64) -> i64 {
    if before >= 0 {
        -2_i64.saturating_sub(before)
    } else {
        before
    }
}

/// Returns the latest timestamp: -1 if there is none.
pub(crate) fn timestamp(date: i64) -> i64 {
    date.max(-1)
}

/// Returns the append time of a batch without a timestamp; `None` if its date does not contain it.
pub(crate) fn appended(date: i64) -> Option<i64> {
    let appended = date.saturating_add(2).saturating_neg();
    (date < 0 && appended >= APPENDED_MIN).then_some(appended)
}

/// Returns the time from which retention counts. `otherwise` is the append time to use if the date has none;
/// if neither is valid, `i64::MAX`, so that the batch never expires by age.
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
