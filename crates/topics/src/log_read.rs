//! Read of one log from an offset on. The only place that interprets the result of such a read.

use stafett_journal::{Journal, LogSlice, ReadError, ReadFrom, ReadRequest, ReadTicket, Visibility};
use stafett_model::{LogId, Offset};

/// A read of one log that is complete, or running on a blocking thread.
#[derive(Debug)]
pub struct LogTicket {
    from: Offset,
    ticket: ReadTicket,
}

/// Result of reading one log from an offset on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRead {
    /// Batches from the offset on; the first one may begin before it.
    Batches(LogSlice),
    /// The log continues behind a range without messages.
    Skip(Skipped),
    End(ReadEnd),
}

/// Range of a log without messages that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// At or behind the wanted offset; there is nothing between the two.
    pub from: Offset,
    /// Behind the wanted offset.
    pub to: Offset,
    pub why: SkipReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// The range never had messages, or lost them before they were durable.
    Gap,
    /// The range is no longer kept.
    Expired,
    /// The range is damaged on disk.
    Damaged,
}

/// Reason why a read found neither batches nor a range to skip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadEnd {
    #[error("there is nothing more for now")]
    AtEnd,
    #[error("the log does not exist")]
    NoSuchLog,
    #[error(transparent)]
    Failed(ReadError),
    #[error("the journal has stopped")]
    Stopped,
}

/// Reads the committed batches of one log, the first one whole.
#[inline]
pub fn read_log(journal: &dyn Journal, log: LogId, from: Offset, bytes_max: usize) -> LogTicket {
    read_log_at(journal, log, from, bytes_max, Visibility::Committed)
}

/// Reads the batches of one log that have this visibility, the first one whole.
#[inline]
pub fn read_log_at(
    journal: &dyn Journal,
    log: LogId,
    from: Offset,
    bytes_max: usize,
    visibility: Visibility,
) -> LogTicket {
    let logs = vec![ReadFrom {
        log,
        offset: from,
        bytes_max,
        visibility,
    }];
    let request = ReadRequest {
        logs,
        bytes_max,
        first_batch_whole: true,
    };
    LogTicket {
        from,
        ticket: journal.read(request),
    }
}

impl LogTicket {
    /// Returns the result if it is there, else the ticket.
    #[inline]
    pub fn now(self) -> Result<LogRead, Self> {
        match self.ticket {
            ReadTicket::Ready(mut result) => Ok(LogRead::of(self.from, result.pop())),
            ReadTicket::Pending(_) => Err(self),
        }
    }

    pub async fn finish(self) -> LogRead {
        let result = self.ticket.finish().await.ok();
        LogRead::of(self.from, result.and_then(|mut result| result.pop()))
    }
}

impl LogRead {
    /// Interprets the result of a read of one log. `None` if the journal has stopped. In a read of several
    /// logs only the first one has its first batch whole: for the others a gap may also be a batch that does
    /// not fit.
    #[inline]
    pub fn of(from: Offset, result: Option<Result<LogSlice, ReadError>>) -> Self {
        let skip = |at: Offset, to, why| Self::Skip(Skipped { from: at, to, why });
        match result {
            Some(Ok(run)) if run.next > from => Self::Batches(run),
            // After a start that lost messages the log continues behind a gap, and nothing may be there yet.
            Some(Ok(LogSlice { bounds, .. })) => match bounds {
                Some(bounds) if bounds.stable > from => skip(from, bounds.stable, SkipReason::Gap),
                _ => Self::End(ReadEnd::AtEnd),
            },
            Some(Err(ReadError::OutOfRange { start, .. })) if start > from => {
                skip(from, start, SkipReason::Expired)
            }
            // The offset is behind the end.
            Some(Err(ReadError::OutOfRange { .. })) => Self::End(ReadEnd::AtEnd),
            Some(Err(ReadError::Damaged { from: first, to, .. })) if to > from => {
                skip(first.max(from), to, SkipReason::Damaged)
            }
            Some(Err(ReadError::NoSuchLog(_))) => Self::End(ReadEnd::NoSuchLog),
            Some(Err(error @ (ReadError::Damaged { .. } | ReadError::Io { .. }))) => {
                Self::End(ReadEnd::Failed(error))
            }
            None => Self::End(ReadEnd::Stopped),
        }
    }
}

#[cfg(test)]
mod tests {
    use stafett_journal::Bounds;

    use super::*;

    const LOG: LogId = LogId(1);
    const FROM: Offset = Offset(5);

    fn run(next: u64, end: u64) -> LogSlice {
        let (start, end) = (Offset(2), Offset(end));
        let bounds = Some(Bounds {
            start,
            end,
            stable: end,
            bytes: 0,
        });
        LogSlice {
            next: Offset(next),
            bounds,
            ..LogSlice::default()
        }
    }

    fn out_of_range(start: u64, end: u64) -> ReadError {
        ReadError::OutOfRange {
            log: LOG,
            wanted: FROM,
            start: Offset(start),
            end: Offset(end),
        }
    }

    fn damaged(from: u64, to: u64) -> ReadError {
        ReadError::Damaged {
            log: LOG,
            from: Offset(from),
            to: Offset(to),
        }
    }

    fn skip(from: u64, to: u64, why: SkipReason) -> LogRead {
        let (from, to) = (Offset(from), Offset(to));
        LogRead::Skip(Skipped { from, to, why })
    }

    #[test]
    fn each_result_has_one_meaning() {
        let failed = ReadError::Io {
            log: LOG,
            reason: "no".into(),
        };
        let end = LogRead::End;
        let meanings = [
            (Ok(run(5, 5)), end(ReadEnd::AtEnd)),
            (Ok(run(6, 9)), LogRead::Batches(run(6, 9))),
            (Ok(run(5, 9)), skip(5, 9, SkipReason::Gap)),
            (Err(out_of_range(7, 9)), skip(5, 7, SkipReason::Expired)),
            (Err(out_of_range(2, 4)), end(ReadEnd::AtEnd)),
            (Err(damaged(3, 8)), skip(5, 8, SkipReason::Damaged)),
            (Err(damaged(6, 8)), skip(6, 8, SkipReason::Damaged)),
            (Err(damaged(3, 5)), end(ReadEnd::Failed(damaged(3, 5)))),
            (Err(ReadError::NoSuchLog(LOG)), end(ReadEnd::NoSuchLog)),
            (Err(failed.clone()), end(ReadEnd::Failed(failed))),
        ];
        for (result, meaning) in meanings {
            assert_eq!(LogRead::of(FROM, Some(result.clone())), meaning, "{result:?}");
        }
        assert_eq!(LogRead::of(FROM, None), end(ReadEnd::Stopped));
    }
}
