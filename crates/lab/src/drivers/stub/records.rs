//! Records of the stub: batches that came once, and are fetched again and again.

use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use stafett_kafka_wire::messages::{FetchRequest, FetchResponse};
use stafett_kafka_wire::{Decoder, Encoded, Records, RequestHeader, Str, frame};
use stafett_model::BatchHeader;

use super::{BATCH_RECORDS, Connection, Ended, FETCH_WAIT_MAX, OFFSET_BYTES, REPEATS_MAX, write};

/// Content of every topic.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) partitions: usize,
    pub(super) records: i64,
    /// Without its base offset.
    pub(super) batch: Bytes,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Partition {
    pub(super) end: i64,
    /// The largest batch, without its base offset, and how many records it has.
    largest: Option<(Bytes, i64)>,
}

impl Filled {
    /// Batches from the one that holds an offset on.
    fn records(&self, offset: i64, bytes_max: usize) -> Records {
        let mut records = Records::new();
        let mut base = offset - offset.rem_euclid(BATCH_RECORDS);
        let whole = OFFSET_BYTES + self.batch.len();
        while base + BATCH_RECORDS <= self.records
            && (records.is_empty() || records.len() + whole <= bytes_max)
        {
            records.push(Bytes::copy_from_slice(&base.to_be_bytes()));
            records.push(self.batch.clone());
            base += BATCH_RECORDS;
        }
        records
    }
}

impl Partition {
    /// Takes records; returns the offset of the first.
    pub(super) fn take(&mut self, records: Option<Bytes>) -> i64 {
        let base_offset = self.end;
        let Some((header, bytes)) = records.and_then(|bytes| Some((BatchHeader::parse(&bytes).ok()?, bytes)))
        else {
            return base_offset;
        };
        let count = i64::from(header.record_count.max(1));
        self.end += count;
        // One is enough, and the memory of a request is not held for ever. The first is often small.
        let body = bytes.get(OFFSET_BYTES..).unwrap_or_default();
        if self
            .largest
            .as_ref()
            .is_none_or(|(known, _)| known.len() < body.len())
        {
            self.largest = Some((Bytes::copy_from_slice(body), count));
        }
        base_offset
    }
}

impl Connection {
    pub(super) async fn fetch(&self, header: &RequestHeader, body: Decoder) -> Result<Encoded, Ended> {
        let request: FetchRequest = frame::read_request(body, header.version)?;
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(FETCH_WAIT_MAX);
        let (responses, found) = self.fetched(&request)?;
        if !found {
            tokio::time::sleep(wait).await;
        }
        let response = FetchResponse {
            responses,
            ..FetchResponse::default()
        };
        write::<FetchRequest>(header, &response)
    }

    /// Returns the rows of a fetch, and true if they have records.
    fn fetched(&self, request: &FetchRequest) -> Result<(Vec<FetchableTopicResponse>, bool), Ended> {
        let mut left = usize::try_from(request.max_bytes)?;
        let end = self.filled.as_ref().map_or(i64::MAX, |filled| filled.records);
        let mut found = false;
        let mut responses = Vec::new();
        for topic in &request.topics {
            let mut rows = Vec::new();
            for asked in &topic.partitions {
                let bytes_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0).min(left);
                let records = self.records(&topic.topic, asked.partition, asked.fetch_offset, bytes_max);
                left = left.saturating_sub(records.len());
                found |= !records.is_empty();
                rows.push(PartitionData {
                    partition_index: asked.partition,
                    high_watermark: end,
                    last_stable_offset: end,
                    log_start_offset: 0,
                    aborted_transactions: None,
                    records: Some(records),
                    ..PartitionData::default()
                });
            }
            responses.push(FetchableTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions: rows,
            });
        }
        Ok((responses, found))
    }

    /// The largest batch of a partition, under offsets from the asked one on.
    pub(super) fn records(&self, topic: &Str, partition: i32, offset: i64, bytes_max: usize) -> Records {
        if let Some(filled) = &self.filled {
            return filled.records(offset, bytes_max);
        }
        let mut records = Records::new();
        let topics = self.topics();
        let place = usize::try_from(partition).unwrap_or(usize::MAX);
        let partition = topics.get(topic).and_then(|topic| topic.partitions.get(place));
        let Some((batch, count)) = partition.and_then(|partition| partition.largest.clone()) else {
            return records;
        };
        drop(topics);
        let whole = OFFSET_BYTES + batch.len();
        let mut base = offset;
        for _ in 0..REPEATS_MAX {
            let is_full = !records.is_empty() && records.len() + whole > bytes_max;
            if is_full || base > i64::MAX - count {
                break;
            }
            records.push(Bytes::copy_from_slice(&base.to_be_bytes()));
            records.push(batch.clone());
            base += count;
        }
        records
    }
}
