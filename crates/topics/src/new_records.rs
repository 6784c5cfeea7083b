//! Records on their way into a topic, as one append: partition, size, time and key are checked record by
//! record, and all are stored or none.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_journal::Append;
use stafett_model::{BatchBuilder, BatchError, Codec, Record, partition_of};

use crate::admission::AdmitError;
use crate::catalog::TopicCatalog;
use crate::topic::{Topic, is_internal};

/// Bytes of a record beside its key, value and headers, at most.
const RECORD_OVERHEAD: usize = 48;
/// Bytes of a header beside its name and value, at most.
const HEADER_OVERHEAD: usize = 10;

/// A record to store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Partition; without one the key decides.
    pub partition: Option<u32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// Milliseconds since 1970; without one the time of the call.
    pub timestamp: Option<i64>,
}

/// An append of records, and its batches in order: partition and number of records.
#[derive(Debug)]
pub struct RecordsAppend {
    pub append: Append,
    pub batches: Vec<(u32, u32)>,
}

/// Refusal of records because of one of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RecordError {
    /// Place among the records.
    pub index: usize,
    pub why: RecordRefusal,
}

/// Reason why a record is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordRefusal {
    #[error("only the broker writes into this topic")]
    Internal,
    #[error("the topic has no partition {0}")]
    NoSuchPartition(u32),
    #[error("the topic is compacted by key, and the record has none")]
    WithoutKey,
    #[error("the record takes more than {bytes_max} bytes, the limit of a batch in its topic")]
    TooLarge { bytes_max: u32 },
    #[error("the timestamp {time} is not between {min} and {max}")]
    Time { time: i64, min: i64, max: i64 },
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Batches of one partition under construction: each with the places of its records.
#[derive(Default)]
struct Building {
    done: Vec<(BatchBuilder, Vec<usize>)>,
}

impl TopicCatalog {
    /// Checks records against the rules of a topic and builds their append. Records without partition and key
    /// go to the partition `keyless`, modulo their number; `now_ms` is the wall clock.
    pub fn records_append(
        &self,
        topic: &Topic,
        records: &[impl Borrow<NewRecord>],
        keyless: u32,
        now_ms: i64,
    ) -> Result<RecordsAppend, RecordError> {
        let built = self.records_append_or_all(topic, records, keyless, (now_ms, 1));
        built.map_err(|errors| {
            let first = errors.into_iter().next();
            first.unwrap_or(RecordError {
                index: 0,
                why: RecordRefusal::Internal,
            })
        })
    }

    /// As [`Self::records_append`], with up to `errors_max` errors, at least one, if there are some. Without
    /// the records that they name there may be others.
    pub fn records_append_or_all(
        &self,
        topic: &Topic,
        records: &[impl Borrow<NewRecord>],
        keyless: u32,
        (now_ms, errors_max): (i64, usize),
    ) -> Result<RecordsAppend, Vec<RecordError>> {
        let (partitions, rules) = (topic.partitions(), self.rules(topic));
        let bytes_max = usize::try_from(rules.message_bytes_max).unwrap_or(usize::MAX);
        let mut building: BTreeMap<u32, Building> = BTreeMap::new();
        let mut errors = Vec::new();
        for (index, record) in records.iter().map(Borrow::borrow).enumerate() {
            let partition = match (record.partition, &record.key) {
                _ if is_internal(&topic.name) => Err(RecordRefusal::Internal),
                (_, None) if rules.compacts => Err(RecordRefusal::WithoutKey),
                (Some(partition), _) if partition >= partitions => {
                    Err(RecordRefusal::NoSuchPartition(partition))
                }
                (Some(partition), _) => Ok(partition),
                (None, Some(key)) => Ok(partition_of(key, partitions)),
                (None, None) => Ok(keyless % partitions.max(1)),
            };
            let pushed = partition.and_then(|partition| {
                let building = building.entry(partition).or_default();
                let pushed = building.push(index, record, bytes_max, now_ms);
                pushed.map_err(RecordRefusal::from)
            });
            errors.extend(pushed.err().map(|why| RecordError { index, why }));
            if errors.len() >= errors_max {
                return Err(errors);
            }
        }
        let mut append = Append {
            is_divisible: !topic.is_whole(),
            ..Append::default()
        };
        let mut batches = Vec::new();
        for (partition, building) in building {
            for (batch, places) in building.done {
                match self.admit_built(topic, partition, batch, &places, now_ms) {
                    Ok((log, body)) => {
                        let frames = Append::batch(log, body);
                        append.pinned_bytes += frames.pinned_bytes;
                        append.frames.extend(frames.frames);
                        batches.push((partition, u32::try_from(places.len()).unwrap_or(u32::MAX)));
                    }
                    Err(refused) => errors.extend(refused),
                }
                if errors.len() >= errors_max {
                    return Err(errors);
                }
            }
        }
        if errors.is_empty() {
            Ok(RecordsAppend { append, batches })
        } else {
            Err(errors)
        }
    }

    fn admit_built(
        &self,
        topic: &Topic,
        partition: u32,
        batch: BatchBuilder,
        places: &[usize],
        now_ms: i64,
    ) -> Result<(stafett_model::LogId, Bytes), Vec<RecordError>> {
        let first = places.first().copied().unwrap_or_default();
        let at = |place: usize| places.get(place).copied().unwrap_or(first);
        let refused = |index, why| vec![RecordError { index, why }];
        let batch = batch.finish().map_err(|why| refused(first, why.into()))?;
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let admitted = self.admit(topic, number, Some(batch), now_ms);
        let admitted = admitted.map_err(|why| match why {
            AdmitError::NoSuchPartition | AdmitError::NoBatch => {
                refused(first, RecordRefusal::NoSuchPartition(partition))
            }
            AdmitError::Batch(BatchError::Oversized { .. } | BatchError::TooLarge { .. }) => {
                let bytes_max = self.rules(topic).message_bytes_max;
                refused(first, RecordRefusal::TooLarge { bytes_max })
            }
            AdmitError::Batch(why) => refused(first, why.into()),
            AdmitError::Times { records, allowed } => {
                let (min, max) = allowed.into_inner();
                let refused = records.into_iter().map(|(place, time)| RecordError {
                    index: at(usize::try_from(place).unwrap_or_default()),
                    why: RecordRefusal::Time { time, min, max },
                });
                refused.collect()
            }
            AdmitError::WithoutKey { records, .. } => {
                let refused = records.into_iter().map(|place| RecordError {
                    index: at(place as usize),
                    why: RecordRefusal::WithoutKey,
                });
                refused.collect()
            }
        })?;
        Ok((admitted.log, admitted.body))
    }
}

impl Building {
    fn push(
        &mut self,
        index: usize,
        record: &NewRecord,
        bytes_max: usize,
        now_ms: i64,
    ) -> Result<(), BatchError> {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        let stored = Record {
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
            timestamp: record.timestamp.unwrap_or(now_ms),
        };
        let bytes = record.bytes_at_most();
        let fits = |batch: &BatchBuilder| batch.bytes() + bytes <= bytes_max;
        if let Some((batch, places)) = self.done.last_mut().filter(|(batch, _)| fits(batch)) {
            batch.push(&stored)?;
            places.push(index);
        } else {
            let mut batch = BatchBuilder::with_capacity(Codec::None, bytes);
            batch.push(&stored)?;
            self.done.push((batch, vec![index]));
        }
        Ok(())
    }
}

impl NewRecord {
    /// Returns a bound on the bytes of the record in a batch.
    fn bytes_at_most(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + length(value) + HEADER_OVERHEAD);
        RECORD_OVERHEAD + length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stafett_journal::{Journal, MemoryJournal};

    use super::*;
    use crate::catalog::NewTopic;
    use crate::settings::TopicDefaults;
    use crate::topic::TopicSettings;

    const NOW: i64 = 1_000_000_000_000;

    async fn topic(settings: TopicSettings) -> (Arc<TopicCatalog>, Arc<Topic>) {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
        let catalog = Arc::new(TopicCatalog::load(journal, TopicDefaults::default()).unwrap());
        let new = NewTopic {
            name: "t".into(),
            partitions: Some(3),
            settings,
        };
        let topic = catalog.create(vec![new]).await.remove(0).unwrap();
        (catalog, topic)
    }

    fn record(key: Option<&'static str>, bytes: usize) -> NewRecord {
        NewRecord {
            key: key.map(Bytes::from),
            value: Some(vec![7; bytes].into()),
            ..NewRecord::default()
        }
    }

    #[tokio::test]
    async fn all_refused_records_are_told_at_once_where_that_is_asked() {
        let (catalog, topic) = topic(TopicSettings {
            message_bytes_max: Some(600),
            ..TopicSettings::default()
        })
        .await;
        let elsewhere = NewRecord {
            partition: Some(3),
            ..record(None, 1)
        };
        let records = [record(None, 700), record(None, 1), elsewhere, record(None, 900)];
        let refused = |errors_max| {
            let built = catalog.records_append_or_all(&topic, &records, 0, (NOW, errors_max));
            let errors = built.unwrap_err().into_iter();
            let mut places: Vec<usize> = errors.map(|error| error.index).collect();
            places.sort_unstable();
            places
        };
        assert_eq!(refused(100), [0, 2, 3]);
        assert_eq!(refused(1), [2], "its partition is known before a batch is built");
        assert_eq!(
            catalog
                .records_append(&topic, &records, 0, NOW)
                .unwrap_err()
                .index,
            2
        );
    }

    #[tokio::test]
    async fn records_go_by_partition_then_key_then_together_and_batches_stay_small() {
        let (catalog, topic) = topic(TopicSettings {
            message_bytes_max: Some(600),
            ..TopicSettings::default()
        })
        .await;
        let chosen = NewRecord {
            partition: Some(2),
            ..record(Some("21"), 1)
        };
        let records = [record(None, 300), chosen, record(None, 100), record(None, 300)];
        let built = catalog.records_append(&topic, &records, 4, NOW).unwrap();
        assert_eq!(built.batches, [(1, 2), (1, 1), (2, 1)]);
        let outcomes = catalog.append(vec![built.append]).await;
        let places = match &outcomes[..] {
            [stafett_journal::Outcome::Committed(places)] => places.clone(),
            other => panic!("{other:?}"),
        };
        let bases: Vec<u64> = places.iter().map(|place| place.base.0).collect();
        assert_eq!(bases, [0, 2, 0]);
        let key = Bytes::from("a-little-bit-long-string");
        let expected = partition_of(&key, 3);
        let keyed = NewRecord {
            key: Some(key),
            ..NewRecord::default()
        };
        let built = catalog.records_append(&topic, &[keyed], 0, NOW).unwrap();
        assert_eq!(built.batches, [(expected, 1)]);
    }

    #[tokio::test]
    async fn one_bad_record_refuses_all_and_is_named() {
        let (catalog, topic) = topic(TopicSettings {
            message_bytes_max: Some(500),
            cleanup: "compact".parse().ok(),
            ..TopicSettings::default()
        })
        .await;
        let good = record(Some("k"), 1);
        let at = |bad: NewRecord| {
            let records = [good.clone(), bad, good.clone()];
            catalog.records_append(&topic, &records, 0, NOW).unwrap_err()
        };
        let late = NewRecord {
            timestamp: Some(NOW + 3_600_001),
            ..good.clone()
        };
        let elsewhere = NewRecord {
            partition: Some(3),
            ..good.clone()
        };
        for (bad, why) in [
            (record(None, 1), RecordRefusal::WithoutKey),
            (record(Some("k"), 500), RecordRefusal::TooLarge { bytes_max: 500 }),
            (elsewhere, RecordRefusal::NoSuchPartition(3)),
            (
                late,
                RecordRefusal::Time {
                    time: NOW + 3_600_001,
                    min: i64::MIN,
                    max: NOW + 3_600_000,
                },
            ),
        ] {
            assert_eq!(at(bad), RecordError { index: 1, why });
        }
    }
}
