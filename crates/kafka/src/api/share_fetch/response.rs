//! Records that were taken for a share group, and the response with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_access::Rate;
use stafett_kafka_wire::messages::share_fetch::{PartitionData, ShareFetchableTopicResponse};
use stafett_kafka_wire::messages::{ShareFetchRequest, ShareFetchResponse};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_shares::Acquire;
use stafett_topics::{LogRead, LogSlice, ReadEnd, ReadError, SkipReason, Skipped, Topic, TopicId};

use super::{RECORD_LIMIT, ShareFetch};
use crate::call::{Close, EncodedResponse};
use crate::context::RequestContext;
use crate::error;
use crate::operation::Step;
use crate::share_partition::{Failure, SharePartition};

/// Returns the error of a partition that does not exist.
pub(super) fn missing_partition(topic: Option<&Topic>, index: i32) -> Option<Failure> {
    let (code, why) = match topic {
        None => (
            ErrorCode::UnknownTopicId,
            "This server does not host this topic ID.",
        ),
        Some(topic) if u32::try_from(index).is_ok_and(|index| index < topic.partitions()) => return None,
        Some(_) => (
            ErrorCode::UnknownTopicOrPartition,
            "This server does not host this topic-partition.",
        ),
    };
    Some((code, why.to_owned()))
}

impl ShareFetch {
    /// Takes records out of a read. Returns true if there is anything for the client, or an error.
    pub(super) fn take(&mut self, read: Vec<Result<LogSlice, ReadError>>) -> bool {
        let Some((member, settings)) = &self.member else {
            return true;
        };
        let count = |number: i32| u64::try_from(number).unwrap_or(0);
        let mut wanted = Acquire {
            member: Arc::clone(&member.id),
            records_max: count(self.request.max_records),
            is_exact: self.request.share_acquire_mode == RECORD_LIMIT,
            range_records: count(self.request.batch_size).max(1),
        };
        let mut has_any = false;
        for (turn, ((at, from), read)) in self.reading.iter().zip(read).enumerate() {
            let Some(partition) = self.partitions.get_mut(*at) else {
                continue;
            };
            let Some(place) = &partition.place else { continue };
            let index = u32::try_from(partition.id.1).unwrap_or(u32::MAX);
            match LogRead::of(from.offset, Some(read)) {
                LogRead::Batches(slice) if wanted.records_max > 0 => {
                    let acquired = place.acquire(index, from.offset, slice, &settings.rules, &wanted);
                    wanted.records_max = wanted.records_max.saturating_sub(acquired.records());
                    has_any |= acquired.records() > 0;
                    partition.acquired = acquired;
                }
                // Behind the first log, a gap may be a batch that did not fit.
                LogRead::Skip(Skipped {
                    why: SkipReason::Gap, ..
                }) if turn > 0 => {}
                LogRead::Skip(Skipped { from, to, why }) => {
                    place.skip(index, from..to, why == SkipReason::Damaged);
                }
                LogRead::End(ReadEnd::Failed(why)) => {
                    partition.error = Some((error::read(&why), why.to_string()));
                    has_any = true;
                }
                LogRead::End(ReadEnd::AtEnd) => partition.ended_at = Some(from.offset),
                LogRead::Batches(_) | LogRead::End(_) => {}
            }
        }
        has_any
    }

    pub(super) fn refuse(&self, context: &RequestContext, code: ErrorCode, why: &str) -> Result<Step, Close> {
        let response = ShareFetchResponse {
            error_code: context.shared.metrics.error(self.call.api, code),
            error_message: Some(Str::copy_from(why)),
            ..ShareFetchResponse::default()
        };
        let answered = self.call.answer::<ShareFetchRequest>(&response);
        answered.map(Step::Respond)
    }

    pub(super) fn respond(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let metrics = &context.shared.metrics;
        let mut topics: BTreeMap<TopicId, Vec<PartitionData>> = BTreeMap::new();
        let mut put = |topic, data| topics.entry(topic).or_default().push(data);
        let api = self.call.api;
        let mut count_error = |code| metrics.error(api, code);
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        let lock_ms = self
            .member
            .as_ref()
            .map_or(0, |(_, settings)| settings.rules.lock_ms);
        let mut found = 0;
        for partition in std::mem::take(&mut self.partitions) {
            let settled = acknowledged.remove(&partition.id);
            if settled.is_none() && partition.error.is_none() && partition.acquired.ranges.is_empty() {
                continue;
            }
            metrics.fetched_records.inc_by(partition.acquired.records());
            let bytes = partition.acquired.bytes();
            found += bytes;
            metrics.fetched_bytes.inc_by(bytes as u64);
            put(
                partition.id.0,
                partition.into_data(settled.flatten(), &mut count_error),
            );
        }
        for (id, settled) in acknowledged {
            put(id.0, SharePartition::new(id).into_data(settled, &mut count_error));
        }
        let responses = topics
            .into_iter()
            .map(|(topic, partitions)| ShareFetchableTopicResponse {
                topic_id: topic.0.into(),
                partitions,
            });
        let response = ShareFetchResponse {
            throttle_time_ms: context.charge(Rate::Fetched, found),
            acquisition_lock_timeout_ms: i32::try_from(lock_ms).unwrap_or(i32::MAX),
            responses: responses.collect(),
            ..ShareFetchResponse::default()
        };
        let answered = self.call.answer::<ShareFetchRequest>(&response)?;
        Ok(Step::Respond(EncodedResponse {
            memory: self.memory,
            ..answered
        }))
    }
}
