//! Reader of one log, record by record as they are stored, at a visibility.
//!
//! [`crate::Tail`] reads messages; this reads records, which may lack a value. Offsets that never had a
//! record, or whose record was compacted, are passed over.

use stafett_journal::Visibility;
use stafett_model::{LogId, Offset, Records, StoredRecord};

use crate::batches::Batches;
use crate::catalog::TopicCatalog;
use crate::log_read::{LogRead, ReadEnd, SkipReason, Skipped};

/// Bytes of the first read; each further one takes twice as many. Most readers want a number of records, and
/// do not know their size.
const READ_BYTES_MIN: usize = 64 << 10;
/// Bound on the decompressed bytes of one batch.
const BATCH_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct RecordTail {
    log: LogId,
    visibility: Visibility,
    /// Offset of the next item.
    next: Offset,
    /// Bytes of the next read.
    read_bytes: usize,
    read_bytes_max: usize,
    batches: Batches,
    records: Option<Records>,
    /// End of the offsets that were read.
    end: Offset,
    skipped: Option<Skipped>,
    bytes_read: usize,
}

#[derive(Debug)]
pub enum RecordItem {
    Record(StoredRecord),
    /// A range that is expired or damaged.
    Skipped(Skipped),
}

impl RecordTail {
    pub fn new(log: LogId, from: Offset, read_bytes_max: usize, visibility: Visibility) -> Self {
        Self {
            log,
            visibility,
            next: from,
            read_bytes: read_bytes_max.min(READ_BYTES_MIN),
            read_bytes_max,
            batches: Batches::default(),
            records: None,
            end: from,
            skipped: None,
            bytes_read: 0,
        }
    }

    /// Returns the offset of the next item.
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// Returns the bytes that were read from the log.
    pub fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// Returns the next item of the last read. `None` if the log has to be read.
    pub fn item(&mut self) -> Option<RecordItem> {
        if let Some(skipped) = self.skipped.take() {
            self.next = skipped.to;
            return Some(RecordItem::Skipped(skipped));
        }
        loop {
            match self.records.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) if record.offset >= self.next => {
                    self.next = Offset(record.offset.0 + 1);
                    return Some(RecordItem::Record(record));
                }
                Some(Ok(_)) => {}
                // A malformed record ends its batch.
                Some(Err(_)) | None => {
                    self.records = self.batches.next_records(BATCH_BYTES_MAX);
                    let Some(records) = &mut self.records else {
                        self.next = self.next.max(self.end);
                        return None;
                    };
                    if records.seek(self.next).is_err() {
                        self.records = None;
                    }
                }
            }
        }
    }

    /// Reads from the next offset on. The result may have no item.
    pub async fn read(&mut self, catalog: &TopicCatalog) -> Result<(), ReadEnd> {
        let ticket = catalog.read_log(self.log, self.next, self.read_bytes, self.visibility);
        self.read_bytes = self.read_bytes_max.min(self.read_bytes * 2);
        match ticket.finish().await {
            LogRead::Batches(run) => {
                self.bytes_read += run.bytes;
                self.end = run.next;
                self.batches = Batches::of(run);
            }
            LogRead::Skip(skipped) if skipped.why == SkipReason::Gap => self.next = skipped.to,
            LogRead::Skip(skipped) => self.skipped = Some(skipped),
            LogRead::End(end) => return Err(end),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use stafett_journal::{Append, Journal, MemoryJournal};
    use stafett_model::{BatchBuilder, Codec, Record};

    use super::*;
    use crate::catalog::NewTopic;
    use crate::settings::TopicDefaults;
    use crate::topic::TopicSettings;

    fn batch(codec: Codec, values: &[Option<&str>]) -> Bytes {
        let mut batch = BatchBuilder::new(codec);
        for value in values {
            let value = value.map(str::as_bytes);
            let record = Record {
                value,
                ..Record::default()
            };
            batch.push(&record).unwrap();
        }
        batch.finish().unwrap()
    }

    async fn items(catalog: &TopicCatalog, log: LogId, from: u64) -> (Vec<String>, ReadEnd) {
        let mut tail = RecordTail::new(log, Offset(from), 1, Visibility::Committed);
        let mut found = Vec::new();
        loop {
            while let Some(item) = tail.item() {
                found.push(match item {
                    RecordItem::Record(record) => {
                        let value = record
                            .value
                            .as_deref()
                            .map(|value| std::str::from_utf8(value).unwrap());
                        format!("{} {value:?}", record.offset)
                    }
                    RecordItem::Skipped(skipped) => {
                        format!("{}..{} {:?}", skipped.from, skipped.to, skipped.why)
                    }
                });
            }
            if let Err(end) = tail.read(catalog).await {
                return (found, end);
            }
        }
    }

    #[tokio::test]
    async fn records_come_as_they_were_stored_and_expired_ones_are_named() {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
        let catalog = Arc::new(TopicCatalog::load(journal, TopicDefaults::default()).unwrap());
        let new = NewTopic {
            name: "t".into(),
            partitions: Some(1),
            settings: TopicSettings::default(),
        };
        let topic = catalog.create(vec![new]).await.remove(0).unwrap();
        let log = topic.log(0).unwrap();
        for batch in [
            batch(Codec::None, &[Some("a"), None]),
            batch(Codec::Lz4, &[Some(""), Some("d")]),
        ] {
            catalog.append(vec![Append::batch(log, batch)]).await;
        }
        let (found, end) = items(&catalog, log, 1).await;
        assert_eq!(found, ["1 None", "2 Some(\"\")", "3 Some(\"d\")"]);
        assert_eq!(end, ReadEnd::AtEnd);
        catalog.truncate(&[(log, Offset(3))]).await;
        let (found, _) = items(&catalog, log, 0).await;
        assert_eq!(found, ["0..3 Expired", "3 Some(\"d\")"]);
        catalog.delete(topic.id, |_| {}).await.unwrap();
        assert_eq!(items(&catalog, log, 0).await, (vec![], ReadEnd::NoSuchLog));
    }
}
