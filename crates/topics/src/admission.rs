//! Rules for batches on their way into a stored topic: size, record times, codec, append time.

use std::ops::RangeInclusive;

use bytes::Bytes;
use stafett_model::batch::HEADER_BYTES;
use stafett_model::{
    BatchError, BatchHeader, Codec, LogId, ProduceLimits, recompress, records, records_without_key,
    sole_batch, with_append_time,
};

use crate::catalog::TopicCatalog;
use crate::settings::Rules;
use crate::topic::Topic;

/// Records of a batch that are named as out of range, at most.
const RECORDS_NAMED_MAX: usize = 1000;
/// Time of a record without a timestamp.
const NO_TIME: i64 = -1;

/// A batch in its stored form, checked against the rules of its topic.
#[derive(Debug, Clone)]
pub struct Admitted {
    pub log: LogId,
    pub body: Bytes,
    pub header: BatchHeader,
    /// Codec of the batch as it arrived.
    pub arrived_as: Codec,
    /// Time that replaced those of the records, in milliseconds since 1970, if the topic keeps append times.
    pub append_time: Option<i64>,
}

/// Reasons for which a batch is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    #[error("the topic has no such partition")]
    NoSuchPartition,
    #[error("there is no batch")]
    NoBatch,
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("One or more records have been rejected due to invalid timestamp")]
    Times {
        /// Indexes and times of such records, up to 1,000 of them.
        records: Vec<(i32, i64)>,
        allowed: RangeInclusive<i64>,
    },
    #[error("One or more records have been rejected: the topic is compacted by key, and they have none")]
    WithoutKey {
        topic: Box<str>,
        partition: i32,
        /// Indexes of such records, up to 1,000 of them.
        records: Vec<u32>,
    },
}

impl TopicCatalog {
    /// Checks a batch against the rules of a topic and converts it to its stored form. `now_ms` is the wall
    /// clock.
    pub fn admit(
        &self,
        topic: &Topic,
        partition: i32,
        batch: Option<Bytes>,
        now_ms: i64,
    ) -> Result<Admitted, AdmitError> {
        let log = u32::try_from(partition)
            .ok()
            .and_then(|partition| topic.log(partition));
        let log = log.ok_or(AdmitError::NoSuchPartition)?;
        let batch = batch.filter(|batch| !batch.is_empty());
        let batch = batch.ok_or(AdmitError::NoBatch)?;
        let rules = self.rules(topic);
        let limits = ProduceLimits {
            batch_bytes_max: usize::try_from(rules.message_bytes_max).unwrap_or(usize::MAX),
            ..ProduceLimits::default()
        };
        let (body, header) = sole_batch(&batch, &limits)?;
        if rules.compacts {
            let limit = limits.decompressed_bytes_max;
            let records = records_without_key(&body, limit, RECORDS_NAMED_MAX)?;
            if !records.is_empty() {
                return Err(AdmitError::WithoutKey {
                    topic: topic.name.clone(),
                    partition,
                    records,
                });
            }
        }
        if !rules.append_time {
            rules.check_times(&body, &header, now_ms)?;
        }
        let arrived_as = header.codec()?;
        let (body, header) = rules.compress(body, header, &limits)?;
        let admitted = Admitted {
            log,
            body,
            header,
            arrived_as,
            append_time: None,
        };
        if !rules.append_time {
            return Ok(admitted);
        }
        Ok(Admitted {
            body: with_append_time(&admitted.body, now_ms)?.join(),
            append_time: Some(now_ms),
            ..admitted
        })
    }
}

impl Rules {
    /// Bytes of the largest message that fits into a batch of its own.
    pub fn single_message_bytes_max(&self) -> usize {
        let batch = usize::try_from(self.message_bytes_max).unwrap_or(usize::MAX);
        batch.saturating_sub(HEADER_BYTES)
    }

    /// Checks that the records' timestamps are near the clock. Records are read only if the batch's maximum
    /// is too late or if there is a lower bound. Records without a timestamp are valid.
    fn check_times(&self, body: &Bytes, header: &BatchHeader, now_ms: i64) -> Result<(), AdmitError> {
        let latest = now_ms.saturating_add_unsigned(self.later_ms_max);
        let earliest = match self.earlier_ms_max {
            u64::MAX => i64::MIN,
            millis => now_ms.saturating_sub_unsigned(millis),
        };
        if header.max_timestamp <= latest && earliest == i64::MIN {
            return Ok(());
        }
        let allowed = earliest..=latest;
        let mut wrong = Vec::new();
        let read = records(body, ProduceLimits::default().decompressed_bytes_max)?;
        for (index, record) in (0..).zip(read) {
            let time = record?.timestamp;
            if time == NO_TIME || allowed.contains(&time) {
                continue;
            }
            wrong.push((index, time));
            if wrong.len() == RECORDS_NAMED_MAX {
                break;
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(AdmitError::Times {
            records: wrong,
            allowed,
        })
    }

    /// Recompresses the batch if its codec differs from that of its topic.
    fn compress(
        &self,
        body: Bytes,
        header: BatchHeader,
        limits: &ProduceLimits,
    ) -> Result<(Bytes, BatchHeader), BatchError> {
        let Some(codec) = self.codec else {
            return Ok((body, header));
        };
        if header.codec()? == codec {
            return Ok((body, header));
        }
        let body = recompress(&body, codec, limits.decompressed_bytes_max)?;
        if body.len() > limits.batch_bytes_max {
            return Err(BatchError::Oversized {
                bytes: body.len(),
                limit: limits.batch_bytes_max,
            });
        }
        let header = BatchHeader::parse(&body)?;
        Ok((body, header))
    }
}
