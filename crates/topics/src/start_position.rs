//! Start position of a reader in a partition.

use stafett_journal::{Bounds, Journal, ReadError, TimeQuery};
use stafett_model::{LogId, Offset, offset_for_timestamp};

/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Start position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartPosition {
    /// The oldest message that is kept.
    First,
    /// The newest existing message.
    Last,
    /// Messages from now on.
    #[default]
    Next,
    /// An offset; the nearest existing one if it is out of range.
    Offset(u64),
    /// The first message with this timestamp or a later one, in ms since 1970; messages from now on if there
    /// is none.
    Time(i64),
}

impl StartPosition {
    /// Returns the offset, as far as it is known without a look-up.
    pub fn offset(self, bounds: Bounds) -> u64 {
        let (start, end) = (bounds.start.0, bounds.end.0);
        match self {
            Self::First => start,
            Self::Last => end.saturating_sub(1).max(start),
            Self::Next | Self::Time(_) => end,
            Self::Offset(offset) => offset.clamp(start, end),
        }
    }
}

/// Returns the first offset with this timestamp or a later one; `None` if all messages are earlier, or cannot
/// be decoded. An error if the log cannot be read.
pub async fn offset_at_time(
    journal: &dyn Journal,
    log: LogId,
    time_ms: i64,
) -> Result<Option<u64>, ReadError> {
    let Some(bounds) = journal.bounds(log) else {
        return Ok(None);
    };
    let query = TimeQuery::AtOrAfter(time_ms);
    let found = journal.find_time(log, query).finish().await;
    let found = found.unwrap_or_else(|why| {
        Err(ReadError::Io {
            log,
            reason: why.to_string().into(),
        })
    })?;
    let record = found.map(|batch| offset_for_timestamp(&batch, time_ms, bounds.start, BATCH_BYTES_MAX));
    let record = record.and_then(|record| record.ok().flatten());
    Ok(record.map(|(Offset(offset), _)| offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_is_not_there_is_the_nearest_one() {
        let bounds = |start, end| Bounds {
            start: Offset(start),
            end: Offset(end),
            stable: Offset(end),
            bytes: 0,
        };
        let of = |start: StartPosition| start.offset(bounds(10, 20));
        assert_eq!(
            (
                of(StartPosition::First),
                of(StartPosition::Last),
                of(StartPosition::Next)
            ),
            (10, 19, 20)
        );
        let offsets = [0, 10, 15, 20, 99].map(|offset| of(StartPosition::Offset(offset)));
        assert_eq!(offsets, [10, 10, 15, 20, 20]);
        assert_eq!(StartPosition::Last.offset(bounds(7, 7)), 7, "of an empty log");
    }
}
