//! `Produce`: batches in. Each is checked once and passed on as the bytes that came in; whatever requests were read
//! together is appended in one call.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_broker::{Append, Outcome, Placed, Refusal, Topic, TopicId};
use stafett_kafka_wire::messages::produce::{
    PartitionProduceResponse, TopicProduceData, TopicProduceResponse,
};
use stafett_kafka_wire::messages::{ProduceRequest, ProduceResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::{BatchError, BatchHeader, Codec, LogId, ProduceLimits, sole_batch, with_append_time};

use crate::answers::{Answered, Kind, Reply};
use crate::error;
use crate::kafka::{Shared, now_ms};
use crate::session::{Call, Close, Context, Staging};

/// From this version on, topics are named by their ids.
const IDS_FROM: i16 = 13;
/// From this version on, clients know zstd.
const ZSTD_FROM: i16 = 7;
/// An offset or a time that there is none of.
const NONE: i64 = -1;

/// An answer whose batches are staged; it is complete but for what became of them.
pub(crate) struct ProduceAnswer {
    call: Call,
    /// False if the producer wants no answer; then an error ends the connection, as there is no other way to tell.
    is_wanted: bool,
    has_failed: bool,
    response: ProduceResponse,
    staged: SmallVec<[Staged; 2]>,
}

/// Where in the answer a staged batch belongs.
struct Staged {
    topic: u32,
    partition: u32,
    records: u32,
    bytes: usize,
}

/// Why a batch is not taken.
type Refused = (ErrorCode, Str);

/// A batch that is fit to be appended.
struct Checked {
    log: LogId,
    body: Bytes,
    header: BatchHeader,
    /// `NONE` where the records keep their own time.
    append_time: i64,
}

pub(super) fn stage(
    context: &Context,
    call: Call,
    body: Decoder,
    frame_bytes: usize,
    staging: &mut Staging,
) -> Result<Kind, Close> {
    let request: ProduceRequest = call.read(body)?;
    let mut answer = ProduceAnswer {
        call,
        is_wanted: request.acks != 0,
        has_failed: false,
        response: ProduceResponse::default(),
        staged: SmallVec::new(),
    };
    answer.response.responses.reserve_exact(request.topic_data.len());
    let mut pinned_bytes = frame_bytes;
    for topic in request.topic_data {
        answer.stage_topic(&context.shared, request.acks, topic, &mut pinned_bytes, staging);
    }
    if answer.staged.is_empty() {
        return Ok(Kind::Ready(answer.finish(&context.shared, &mut VecDeque::new())));
    }
    staging.answers += 1;
    Ok(Kind::Produce(Box::new(answer)))
}

impl ProduceAnswer {
    fn stage_topic(
        &mut self,
        shared: &Shared,
        acks: i16,
        data: TopicProduceData,
        pinned_bytes: &mut usize,
        staging: &mut Staging,
    ) {
        let topic = find_topic(shared, self.call.version, &data);
        let topic_index = index(self.response.responses.len());
        let mut answers = Vec::with_capacity(data.partition_data.len());
        for partition in data.partition_data {
            let checked = match &topic {
                _ if !(-1..=1).contains(&acks) => Err((
                    ErrorCode::InvalidRequiredAcks,
                    "acks is one of -1, 0 and 1".into(),
                )),
                Ok(topic) => check(
                    shared,
                    self.call.version,
                    topic,
                    partition.index,
                    partition.records,
                ),
                Err(refused) => Err(refused.clone()),
            };
            let mut answer = PartitionProduceResponse {
                index: partition.index,
                ..Default::default()
            };
            match checked {
                Ok(Checked {
                    log,
                    body,
                    header,
                    append_time,
                }) => {
                    answer.log_append_time_ms = append_time;
                    self.staged.push(Staged {
                        topic: topic_index,
                        partition: index(answers.len()),
                        records: header.record_count.cast_unsigned(),
                        bytes: body.len(),
                    });
                    let append = Append {
                        pinned_bytes: std::mem::take(pinned_bytes),
                        ..Append::batch(log, body)
                    };
                    staging.appends.push(append);
                }
                Err((code, message)) => self.fail(shared, &mut answer, code, message),
            }
            answers.push(answer);
        }
        self.response.responses.push(TopicProduceResponse {
            name: data.name,
            topic_id: data.topic_id,
            partition_responses: answers,
        });
    }

    /// Completes the answer with the outcomes of its batches, which are the first of `outcomes`.
    pub(crate) fn finish(&mut self, shared: &Shared, outcomes: &mut VecDeque<Outcome>) -> Answered {
        let (mut batches, mut records, mut bytes) = (0, 0, 0);
        let mut response = std::mem::take(&mut self.response);
        let mut is_unknown = false;
        for staged in std::mem::take(&mut self.staged) {
            let outcome = outcomes.pop_front().unwrap_or(Outcome::Unknown);
            let topic = usize::try_from(staged.topic)
                .ok()
                .and_then(|at| response.responses.get_mut(at));
            let Some(answer) = topic.and_then(|topic| {
                usize::try_from(staged.partition)
                    .ok()
                    .and_then(|at| topic.partition_responses.get_mut(at))
            }) else {
                continue;
            };
            match outcome {
                Outcome::Committed(placed) => {
                    batches += 1;
                    records += u64::from(staged.records);
                    bytes += staged.bytes as u64;
                    self.commit(shared, answer, placed.first());
                }
                Outcome::Refused(refusal) => self.refuse(shared, answer, &refusal),
                Outcome::Unknown => is_unknown = true,
            }
        }
        shared.metrics.produced_batches.inc_by(batches);
        shared.metrics.produced_records.inc_by(records);
        shared.metrics.produced_bytes.inc_by(bytes);
        if is_unknown {
            return Err(Close::OutcomeUnknown);
        }
        match (self.is_wanted, self.has_failed) {
            (true, _) => self.call.answer::<ProduceRequest>(&response),
            (false, false) => Ok(Reply::default()),
            (false, true) => Err(Close::SilentFailure),
        }
    }

    fn commit(&self, shared: &Shared, answer: &mut PartitionProduceResponse, placed: Option<&Placed>) {
        let Some(placed) = placed else { return };
        answer.base_offset = wire_offset(placed.base.0);
        if self.call.version >= 5 && self.is_wanted {
            let bounds = shared.broker.bounds(placed.log);
            answer.log_start_offset = bounds.map_or(NONE, |bounds| wire_offset(bounds.start.0));
        }
    }

    fn refuse(&mut self, shared: &Shared, answer: &mut PartitionProduceResponse, refusal: &Refusal) {
        let code = error::refusal(refusal);
        let by_id = self.call.version >= IDS_FROM && code == ErrorCode::UnknownTopicOrPartition;
        let code = if by_id { ErrorCode::UnknownTopicId } else { code };
        self.fail(shared, answer, code, refusal.to_string().into());
    }

    fn fail(
        &mut self,
        shared: &Shared,
        answer: &mut PartitionProduceResponse,
        code: ErrorCode,
        message: Str,
    ) {
        self.has_failed = true;
        answer.error_code = shared.metrics.error(self.call.api, code);
        answer.base_offset = NONE;
        answer.log_append_time_ms = NONE;
        answer.error_message = (self.call.version >= 8).then_some(message);
    }
}

fn find_topic(shared: &Shared, version: i16, data: &TopicProduceData) -> Result<Arc<Topic>, Refused> {
    let topics = shared.broker.topics();
    if version >= IDS_FROM {
        let unknown = || (ErrorCode::UnknownTopicId, "no topic has this id".into());
        topics.with_id(TopicId(data.topic_id.into())).ok_or_else(unknown)
    } else {
        let unknown = || {
            (
                ErrorCode::UnknownTopicOrPartition,
                "there is no such topic".into(),
            )
        };
        topics.named(&data.name).ok_or_else(unknown)
    }
}

/// Whether a batch may be appended to a partition, and as what.
fn check(
    shared: &Shared,
    version: i16,
    topic: &Topic,
    partition: i32,
    records: Option<Bytes>,
) -> Result<Checked, Refused> {
    let log = u32::try_from(partition)
        .ok()
        .and_then(|partition| topic.log(partition));
    let unknown = || {
        (
            ErrorCode::UnknownTopicOrPartition,
            "the topic has no such partition".into(),
        )
    };
    let log = log.ok_or_else(unknown)?;
    let records = records.filter(|records| !records.is_empty());
    let records = records.ok_or_else(|| (ErrorCode::InvalidRecord, "there is no batch".into()))?;
    let limits = ProduceLimits {
        batch_bytes_max: usize::try_from(shared.broker.message_bytes_max(topic)).unwrap_or(usize::MAX),
        ..ProduceLimits::default()
    };
    let (body, header) = sole_batch(&records, &limits).map_err(bad_batch)?;
    if header.is_transactional() {
        return Err((ErrorCode::InvalidTxnState, "transactions are not served".into()));
    }
    if version < ZSTD_FROM && header.codec() == Ok(Codec::Zstd) {
        let message = "zstd is for produce requests of version 7 and up".into();
        return Err((ErrorCode::UnsupportedCompressionType, message));
    }
    if !shared.broker.is_append_time(topic) {
        return Ok(Checked {
            log,
            body,
            header,
            append_time: NONE,
        });
    }
    let append_time = now_ms();
    let body = with_append_time(&body, append_time).map_err(bad_batch)?.join();
    Ok(Checked {
        log,
        body,
        header,
        append_time,
    })
}

fn bad_batch(batch: BatchError) -> Refused {
    (error::batch(&batch), batch.to_string().into())
}

fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn wire_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
