//! Results of a produce request whose batches are staged, and its response.

use smallvec::SmallVec;
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_topics::{AdmitError, Admitted, Append, Outcome, PlacedBatch, Refusal, Ticket, TopicCatalog};

use crate::call::{Call, Close, EncodedResponse, ResponseResult};
use crate::context::KafkaContext;
use crate::error;
use crate::request_reader::TopicKey;
use crate::response_writer::Writer;

/// First version that names topics by id.
pub(crate) const IDS_FROM: i16 = 13;
/// First version whose errors have messages.
const MESSAGES_FROM: i16 = 8;
/// No offset or time.
const NONE: i64 = -1;

/// Batches of produce requests that are executed together.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    pub appends: Vec<Append>,
    /// Number of answers that wait for them.
    pub answers: usize,
    /// Tickets of batches that are appended, each with the number of answers that wait for it.
    pub appended: Vec<(Ticket, usize)>,
    /// True if requests waited too long: nothing of them is stored.
    pub refuses: bool,
}

impl Staging {
    /// Appends the batches that are not appended yet.
    pub(crate) fn append(&mut self, catalog: &TopicCatalog) {
        if self.answers > 0 {
            let ticket = catalog.append(std::mem::take(&mut self.appends));
            self.appended.push((ticket, std::mem::take(&mut self.answers)));
        }
    }
}

/// An answer whose batches are staged; only their outcomes are missing.
pub(crate) struct ProduceResults {
    pub call: Call,
    /// False if the producer wants no answer (acks 0). An error then ends the connection, the only way to
    /// report it.
    pub is_wanted: bool,
    /// Topics, each with its number of partitions.
    pub topics: SmallVec<[(TopicKey, usize); 1]>,
    /// Time that the client has to wait before its next request.
    pub throttle_ms: i32,
    /// Results per partition, in the order of the request.
    pub results: SmallVec<[PartitionResult; 1]>,
}

/// Result for one partition of a request.
pub(crate) struct PartitionResult {
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
pub(crate) struct BatchRefusal {
    code: ErrorCode,
    message: Str,
    /// Errors of single records, by index.
    records: Vec<(i32, Str)>,
}

impl ProduceResults {
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

    /// Refuses all batches that are not stored yet.
    pub(crate) fn refuse_staged(&mut self, shared: &KafkaContext, refused: &BatchRefusal) {
        for result in &mut self.results {
            if result.staged.is_some() {
                *result = PartitionResult::failed(shared, self.call, result.index, refused.clone());
            }
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
        w.e.i32(self.throttle_ms);
        w.tags();
        Ok(w.finish()?.into())
    }
}

impl PartitionResult {
    pub(crate) fn staged(index: i32, admitted: &Admitted) -> Self {
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

    /// Counts an error, and returns the result of its batch.
    pub(crate) fn failed(shared: &KafkaContext, call: Call, index: i32, refused: BatchRefusal) -> Self {
        shared.metrics.error(call.api, refused.code);
        Self::refused(index, refused)
    }

    pub(crate) fn refused(index: i32, refused: BatchRefusal) -> Self {
        let BatchRefusal {
            code,
            message,
            records,
        } = refused;
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

impl From<AdmitError> for BatchRefusal {
    fn from(error: AdmitError) -> Self {
        let mut refused = Self::new(error::admission(&error), error.to_string());
        if let AdmitError::WithoutKey {
            topic,
            partition,
            records,
        } = error
        {
            let message: Str = format!(
                "Compacted topic cannot accept message without key in topic partition {topic}-{partition}."
            )
            .into();
            let named = |index| (i32::try_from(index).unwrap_or(i32::MAX), message.clone());
            refused.records = records.into_iter().map(named).collect();
            refused.message = message;
        } else if let AdmitError::Times { records, allowed } = error {
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
    /// Returns that of requests that waited too long.
    pub(crate) fn too_long() -> Self {
        const MESSAGE: Str = Str::from_static("requests wait too long");
        Self::new(ErrorCode::RequestTimedOut, MESSAGE)
    }

    pub(crate) fn new(code: ErrorCode, message: impl Into<Str>) -> Self {
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
