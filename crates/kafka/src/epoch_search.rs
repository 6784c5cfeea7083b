//! Search for the end of a leader epoch: by halves, reading one batch per step. No log has to remember its
//! epochs.

use stafett_kafka_wire::ErrorCode;
use stafett_model::{LogId, Offset};
use stafett_topics::{Batches, Bounds, LogRead, ReadEnd, SkipReason, TopicCatalog, Visibility};

use crate::error;

/// The last epoch that is not newer than the requested one, and its end offset.
pub(crate) type FoundEnd = Result<(i32, i64), ErrorCode>;

#[derive(Debug)]
pub(crate) struct EpochSearch {
    pub log: LogId,
    pub bounds: Bounds,
    pub wanted: i32,
}

/// A batch: its epoch, its first offset, and the offset behind its last record.
struct BatchBounds {
    epoch: i32,
    base: u64,
    next: u64,
}

impl EpochSearch {
    pub(crate) async fn find(self, catalog: &TopicCatalog) -> FoundEnd {
        let Self { log, bounds, wanted } = self;
        let (mut low, mut high) = (bounds.start.0, bounds.end.0);
        // Epoch of the last batch that is not newer than `wanted`, and offset of the first newer batch.
        let (mut older, mut newer) = (None, bounds.end.0);
        while low < high {
            let middle = low + (high - low) / 2;
            match batch_at(catalog, log, middle).await? {
                Some(found) if found.epoch <= wanted => {
                    older = Some(found.epoch);
                    low = found.next.max(middle + 1);
                }
                Some(found) => {
                    newer = found.base.max(bounds.start.0);
                    high = middle.min(newer);
                }
                None => high = middle,
            }
        }
        Ok((older.unwrap_or(wanted), wire(newer)))
    }
}

/// Reads the batch that holds an offset, or the next one. `None` at the end of the log.
async fn batch_at(catalog: &TopicCatalog, log: LogId, offset: u64) -> Result<Option<BatchBounds>, ErrorCode> {
    let read = catalog.read_log(log, Offset(offset), 1, Visibility::Stored);
    let run = match read.finish().await {
        LogRead::Batches(run) => run,
        LogRead::Skip(skipped) => match skipped.why {
            SkipReason::Gap => return Ok(None),
            SkipReason::Expired => return Err(ErrorCode::OffsetOutOfRange),
            SkipReason::Damaged => return Err(ErrorCode::CorruptMessage),
        },
        LogRead::End(ReadEnd::AtEnd) => return Ok(None),
        LogRead::End(ReadEnd::NoSuchLog) => return Err(ErrorCode::UnknownTopicOrPartition),
        LogRead::End(ReadEnd::Failed(why)) => return Err(error::read(&why)),
        LogRead::End(ReadEnd::Stopped) => return Err(ErrorCode::KafkaStorageError),
    };
    let header = Batches::of(run).header().ok_or(ErrorCode::CorruptMessage)?;
    let base = u64::try_from(header.base_offset).map_err(|_| ErrorCode::CorruptMessage)?;
    Ok(Some(BatchBounds {
        epoch: header.leader_epoch,
        base,
        next: base + header.span(),
    }))
}

pub(crate) fn wire(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
