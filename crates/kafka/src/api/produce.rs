//! `Produce`: appends batches. Each is checked once, and its bytes are passed on as received; requests that
//! were read together are appended in one call.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_kafka_wire::{DecodeError, Decoder, ErrorCode, Str};
use stafett_model::Codec;
use stafett_store::wall_ms;
use stafett_topics::{AdmitError, Admitted, Append, Outcome, PlacedBatch, Refusal, Topic, is_internal};

use crate::context::KafkaContext;
use crate::error;
use crate::request_reader::{Reader, TopicKey};
use crate::response_queue::{EncodedResponse, PendingResponse, ResponseResult};
use crate::response_writer::Writer;
use crate::session::{Call, Close, Context, Staging};

/// First version that names topics by id.
const IDS_FROM: i16 = 13;
/// First version that may use zstd.
const ZSTD_FROM: i16 = 7;
/// First version whose errors have messages.
const MESSAGES_FROM: i16 = 8;
/// Minimum bytes of a topic in a request.
const TOPIC_BYTES_MIN: usize = 3;
/// Minimum bytes of a partition in a request.
const PARTITION_BYTES_MIN: usize = 5;
/// No offset or time.
const NONE: i64 = -1;

/// An answer whose batches are staged; only their outcomes are missing.
pub(crate) struct ProduceAnswer {
    call: Call,
    /// False if the producer wants no answer (acks 0). An error then ends the connection, the only way to
    /// report it.
    is_wanted: bool,
    /// Topics, each with its number of partitions.
    topics: SmallVec<[(TopicKey, usize); 1]>,
    /// Results per partition, in the order of the request.
    results: SmallVec<[PartitionResult; 1]>,
}

/// Result for one partition of a request.
struct PartitionResult {
    index: i32,
    code: ErrorCode,
    base_offset: i64,
    append_time: i64,
    log_start: i64,
    /// Records and bytes of a batch without an outcome yet.
    staged: Option<(u32, usize)>,
    message: Option<Str>,
    /// Errors of single records, by index.
    records: Vec<(i32, Str)>,
}

/// Reason why a batch is rejected.
#[derive(Debug, Clone)]
struct BatchRefusal {
    code: ErrorCode,
    message: Str,
    /// Errors of single records, by index.
    records: Vec<(i32, Str)>,
}

pub(super) fn stage(
    context: &Context,
    call: Call,
    body: Decoder,
    frame_bytes: usize,
    staging: &mut Staging,
) -> Result<PendingResponse, Close> {
    let before = staging.appends.len();
    let read = read(context, call, body, frame_bytes, &mut staging.appends);
    let mut answer = read.inspect_err(|_| staging.appends.truncate(before))?;
    if staging.appends.len() == before {
        return Ok(PendingResponse::Ready(
            answer.finish(&context.shared, &mut std::iter::empty()),
        ));
    }
    staging.answers += 1;
    Ok(PendingResponse::Produce(answer))
}

/// Reads a request, checks its batches, and adds the valid ones to `appends`.
fn read(
    context: &Context,
    call: Call,
    body: Decoder,
    frame_bytes: usize,
    appends: &mut Vec<Append>,
) -> Result<ProduceAnswer, DecodeError> {
    let shared = &*context.shared;
    let mut r = Reader::new(call, body);
    let _transactional_id = r.opt_string()?;
    let acks = r.d.i16()?;
    // The timeout concerns replicas only.
    let _timeout_ms = r.d.i32()?;
    let mut answer = ProduceAnswer {
        call,
        is_wanted: acks != 0,
        topics: SmallVec::new(),
        results: SmallVec::new(),
    };
    // All bodies pin the same frame, so only the first append is charged for it.
    let mut pinned_bytes = frame_bytes;
    for _ in 0..r.count(TOPIC_BYTES_MIN)? {
        let key = r.topic(IDS_FROM)?;
        let topic = find_topic(shared, &key);
        let partitions = r.count(PARTITION_BYTES_MIN)?;
        for _ in 0..partitions {
            let index = r.d.i32()?;
            let records = r.opt_bytes()?;
            r.tags()?;
            let admitted = match &topic {
                _ if !(-1..=1).contains(&acks) => Err(BatchRefusal::new(
                    ErrorCode::InvalidRequiredAcks,
                    "acks is one of -1, 0 and 1",
                )),
                Ok(topic) => check(shared, call.version, topic, index, records),
                Err(refused) => Err(refused.clone()),
            };
            answer.results.push(match admitted {
                Ok(admitted) => {
                    let result = PartitionResult::staged(index, &admitted);
                    let pinned_bytes = std::mem::take(&mut pinned_bytes);
                    appends.push(Append {
                        pinned_bytes,
                        ..Append::batch(admitted.log, admitted.body)
                    });
                    result
                }
                Err(refused) => PartitionResult::failed(shared, call, index, refused),
            });
        }
        r.tags()?;
        answer.topics.push((key, partitions));
    }
    r.tags()?;
    Ok(answer)
}

impl ProduceAnswer {
    /// Completes the answer with the outcomes of its batches, which are the next of `outcomes`.
    pub(crate) fn finish(
        &mut self,
        shared: &KafkaContext,
        outcomes: &mut impl Iterator<Item = Outcome>,
    ) -> ResponseResult {
        let (mut batches, mut records, mut bytes) = (0, 0, 0);
        let mut is_unknown = false;
        for result in &mut self.results {
            let Some(staged) = result.staged else { continue };
            match outcomes.next() {
                Some(Outcome::Committed(placed)) => {
                    batches += 1;
                    records += u64::from(staged.0);
                    bytes += staged.1 as u64;
                    result.commit(shared, self.call, placed.first());
                }
                Some(Outcome::Refused(refusal)) => result.refuse(shared, self.call, &refusal),
                Some(Outcome::Unknown) | None => is_unknown = true,
            }
        }
        shared.metrics.produced_batches.inc_by(batches);
        shared.metrics.produced_records.inc_by(records);
        shared.metrics.produced_bytes.inc_by(bytes);
        let has_failed = self.results.iter().any(|result| !result.code.is_none());
        match (self.is_wanted, has_failed) {
            _ if is_unknown => Err(Close::OutcomeUnknown),
            (true, _) => self.write(),
            (false, false) => Ok(EncodedResponse::default()),
            (false, true) => Err(Close::SilentFailure),
        }
    }

    fn write(&self) -> ResponseResult {
        let mut w = Writer::new(self.call);
        w.count(self.topics.len());
        let mut results = self.results.iter();
        for (key, partitions) in &self.topics {
            w.topic(key, IDS_FROM);
            w.count(*partitions);
            for result in results.by_ref().take(*partitions) {
                result.write(&mut w);
            }
            w.tags();
        }
        // Throttle time.
        w.e.i32(0);
        w.tags();
        Ok(w.finish()?.into())
    }
}

impl PartitionResult {
    fn staged(index: i32, admitted: &Admitted) -> Self {
        Self {
            index,
            code: ErrorCode::None,
            base_offset: NONE,
            append_time: admitted.append_time.unwrap_or(NONE),
            log_start: NONE,
            staged: Some((admitted.header.record_count.cast_unsigned(), admitted.body.len())),
            message: None,
            records: Vec::new(),
        }
    }

    fn failed(shared: &KafkaContext, call: Call, index: i32, refused: BatchRefusal) -> Self {
        let BatchRefusal {
            code,
            message,
            records,
        } = refused;
        shared.metrics.error(call.api, code);
        Self {
            index,
            code,
            base_offset: NONE,
            append_time: NONE,
            log_start: NONE,
            staged: None,
            message: Some(message),
            records,
        }
    }

    fn commit(&mut self, shared: &KafkaContext, call: Call, placed: Option<&PlacedBatch>) {
        let Some(placed) = placed else { return };
        self.base_offset = wire_offset(placed.base.0);
        if call.version >= 5 {
            let bounds = shared.broker.catalog().bounds(placed.log);
            self.log_start = bounds.map_or(NONE, |bounds| wire_offset(bounds.start.0));
        }
    }

    fn refuse(&mut self, shared: &KafkaContext, call: Call, refusal: &Refusal) {
        let code = error::refusal(refusal);
        let names_id = code == ErrorCode::UnknownTopicOrPartition && call.version >= IDS_FROM;
        let code = if names_id { ErrorCode::UnknownTopicId } else { code };
        let refused = BatchRefusal::new(code, refusal.to_string());
        *self = Self::failed(shared, call, self.index, refused);
    }

    fn write(&self, w: &mut Writer) {
        w.e.i32(self.index);
        w.e.i16(self.code.code());
        w.e.i64(self.base_offset);
        w.e.i64(self.append_time);
        if w.version >= 5 {
            w.e.i64(self.log_start);
        }
        if w.version >= MESSAGES_FROM {
            w.count(self.records.len());
            for (index, message) in &self.records {
                w.e.i32(*index);
                w.opt_string(Some(message));
                w.tags();
            }
            w.opt_string(self.message.as_ref());
        }
        w.tags();
    }
}

fn find_topic(shared: &KafkaContext, key: &TopicKey) -> Result<Arc<Topic>, BatchRefusal> {
    let unknown = || {
        let message = if key.by_id {
            "no topic has this id"
        } else {
            "there is no such topic"
        };
        BatchRefusal::new(key.unknown(), message)
    };
    let topic = key.find(shared).ok_or_else(unknown)?;
    if is_internal(&topic.name) {
        let message = "the broker alone writes into this topic";
        return Err(BatchRefusal::new(ErrorCode::InvalidTopicException, message));
    }
    Ok(topic)
}

/// Checks a batch and converts it to its stored form.
fn check(
    shared: &KafkaContext,
    version: i16,
    topic: &Topic,
    partition: i32,
    records: Option<Bytes>,
) -> Result<Admitted, BatchRefusal> {
    let admitted = shared
        .broker
        .catalog()
        .admit(topic, partition, records, wall_ms())?;
    if version < ZSTD_FROM && admitted.arrived_as == Codec::Zstd {
        let message = "zstd is for produce requests of version 7 and up";
        return Err(BatchRefusal::new(ErrorCode::UnsupportedCompressionType, message));
    }
    Ok(admitted)
}

impl From<AdmitError> for BatchRefusal {
    fn from(error: AdmitError) -> Self {
        let mut refused = Self::new(error::admission(&error), error.to_string());
        if let AdmitError::Times { records, allowed } = error {
            let (earliest, latest) = allowed.into_inner();
            let message = |(index, time)| {
                let message = format!(
                    "Timestamp {time} of message with offset {index} is out of range. The timestamp should be \
                     within [{earliest}, {latest}]"
                );
                (index, message.into())
            };
            refused.records = records.into_iter().map(message).collect();
        }
        refused
    }
}

impl BatchRefusal {
    fn new(code: ErrorCode, message: impl Into<Str>) -> Self {
        Self {
            code,
            message: message.into(),
            records: Vec::new(),
        }
    }
}

fn wire_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
