//! Search for the record at a time.

use stafett_kafka_wire::ErrorCode;
use stafett_model::{BatchHeader, LogId, Offset, max_timestamp_record, offset_for_timestamp};
use stafett_topics::{TimeQuery, TopicCatalog};

use crate::error;

/// Maximum decompressed bytes of a batch that is searched for a time.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Offset, timestamp and leader epoch; `None` if there is no such record.
pub(crate) type FoundOffset = Result<Option<(i64, i64, i32)>, ErrorCode>;

#[derive(Debug)]
pub(crate) struct TimeSearch {
    pub log: LogId,
    pub query: TimeQuery,
    /// Start of the log.
    pub start: Offset,
    /// End of the offsets that the reader may see: a record that is found behind it counts as none, as in
    /// Kafka, also if an earlier one has the latest time.
    pub end: Offset,
}

impl TimeSearch {
    pub(crate) async fn find(self, catalog: &TopicCatalog) -> FoundOffset {
        let found = catalog.find_time(self.log, self.query).finish().await;
        let found = found.map_err(|_| ErrorCode::KafkaStorageError)?;
        let Some(batch) = found.map_err(|error| error::read(&error))? else {
            return Ok(None);
        };
        let record = match self.query {
            TimeQuery::Latest => max_timestamp_record(&batch, BATCH_BYTES_MAX),
            TimeQuery::AtOrAfter(time) => offset_for_timestamp(&batch, time, self.start, BATCH_BYTES_MAX),
        };
        // Batches were checked on append, except the content of compressed records.
        let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
        let record = record.filter(|(offset, _)| *offset < self.end);
        let epoch = BatchHeader::parse(&batch).map_or(-1, |header| header.leader_epoch);
        Ok(record.map(|(offset, timestamp)| (wire(offset), timestamp, epoch)))
    }
}

pub(crate) fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
