//! Refusals of produce requests that waited too long.
//!
//! Refusing a request has to cost a small part of serving it, or refusals alone take the whole processor. So
//! requests that were read together are refused together: their answers are one entry of the queue. Most
//! requests of a producer differ from the one before only in their correlation ids and their records. They
//! are not read, and get a copy of the answer before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use stafett_kafka_wire::{ApiKey, Encoded, ErrorCode};
use stafett_net::{Frame, Permit};
use tokio::time::Instant;

use super::produce::read_each;
use crate::call::{Call, EncodedResponse};
use crate::context::RequestContext;
use crate::gate;
use crate::produce_results::{BatchRefusal, PartitionResult};
use crate::response_queue::QueuedResponse;
use crate::session;

/// Place of the correlation id in a request and, behind the length, in an answer.
const CORRELATION: Range<usize> = 4..8;
/// Bytes of answers from which on the next requests have an entry of their own.
const ANSWERS_BYTES: usize = 64 << 10;
/// Bytes of a length as a varint.
const VARINT_BYTES_MAX: usize = 5;

/// Takes the produce requests at the front of `frames`, and returns the answers that refuse them, as one
/// entry of the queue. `None` if the first frame is another request, or has to be executed by itself: it
/// cannot be read, is not allowed, or wants no answer.
pub(crate) fn refuse(
    context: &RequestContext,
    frames: &mut VecDeque<Frame>,
    begun: Instant,
) -> Option<QueuedResponse> {
    // Each request has its own line in the performance log.
    if context.trace.is_some() {
        return None;
    }
    // Each request is charged for itself.
    let may_repeat = !context.shared.broker.access().directory().has_quotas();
    let mut refused = Refused::default();
    while refused.answers.len() < ANSWERS_BYTES
        && (may_repeat || context.muted_until().is_none())
        && let Some(frame) = frames.front()
    {
        let request = &frame.payload;
        let is_answered = may_repeat && refused.repeat(request) || refused.answer(context, request);
        if !is_answered {
            break;
        }
        let Some(Frame { permit, .. }) = frames.pop_front() else {
            break;
        };
        match &mut refused.permit {
            Some(permits) => permits.merge(permit),
            none => *none = Some(permit),
        }
    }
    let Refused {
        answers,
        permit: Some(permit),
        requests,
        partitions,
        ..
    } = refused
    else {
        return None;
    };
    context.has_refused.store(true, Ordering::Relaxed);
    if let Some(shedding) = &context.shedding {
        shedding.count("produce", requests);
    }
    let since = Instant::now();
    let metrics = &context.shared.metrics;
    metrics.on_requests(ApiKey::Produce, requests, since - begun);
    metrics.errors(ApiKey::Produce, ErrorCode::RequestTimedOut, partitions);
    let response: EncodedResponse = Encoded::of(answers.freeze()).into();
    Some(QueuedResponse {
        response: response.into(),
        api: Some(ApiKey::Produce),
        since,
        permit,
        traced: None,
    })
}

/// Requests that are refused together.
#[derive(Default)]
struct Refused {
    answers: BytesMut,
    /// Memory of the requests.
    permit: Option<Permit>,
    requests: u64,
    partitions: u64,
    /// The last request that was read, if it has one batch.
    last: Option<Sample>,
}

/// A request with one batch, and its answer.
struct Sample {
    request: Bytes,
    is_flexible: bool,
    /// Place of the length of the records.
    length_at: usize,
    /// Place of the end of the records.
    end: usize,
    answer: Bytes,
}

impl Refused {
    /// Answers a request like the last one. Returns false if it is different.
    fn repeat(&mut self, request: &[u8]) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.is_like(request)) else {
            return false;
        };
        let at = self.answers.len();
        self.answers.extend_from_slice(&last.answer);
        let answer = self
            .answers
            .get_mut(at..)
            .and_then(|answer| answer.get_mut(CORRELATION));
        if let (Some(given), Some(own)) = (request.get(CORRELATION), answer) {
            own.copy_from_slice(given);
        }
        self.requests += 1;
        self.partitions += 1;
        true
    }

    /// Reads a request and answers it. Returns false if it has to be executed by itself.
    fn answer(&mut self, context: &RequestContext, request: &Bytes) -> bool {
        if request.first_chunk() != Some(&ApiKey::Produce.code().to_be_bytes()) {
            return false;
        }
        let Ok((call, client, body)) = session::open(request.clone()) else {
            return false;
        };
        if !matches!(gate::check(context, call, &body), Ok(None)) {
            return false;
        }
        let mut batches = Vec::new();
        let refused = BatchRefusal::too_long();
        let read = read_each(
            call,
            body,
            |_| (),
            |&(), _, index, records| {
                batches.push(records);
                PartitionResult::refused(index, refused.clone())
            },
        );
        let Some(mut results) = read.ok().filter(|results| results.is_wanted) else {
            return false;
        };
        let Ok(EncodedResponse {
            encoded: Some(answer),
            ..
        }) = results.finish(&context.shared, &mut std::iter::empty())
        else {
            return false;
        };
        session::note(context, client.as_deref());
        let answer = answer.into_bytes();
        self.answers.extend_from_slice(&answer);
        self.requests += 1;
        self.partitions += batches.len() as u64;
        self.last = match batches.as_slice() {
            [Some(records)] => Sample::new(request, records, call, answer),
            _ => None,
        };
        true
    }
}

impl Sample {
    /// Returns `None` if the length of the records is written in more bytes than it needs.
    fn new(request: &Bytes, records: &Bytes, call: Call, answer: Bytes) -> Option<Self> {
        let start = records.as_ptr().addr().checked_sub(request.as_ptr().addr())?;
        let is_flexible = call.api.is_flexible(call.version);
        let width = if is_flexible {
            (usize::BITS - (records.len() + 1).leading_zeros()).div_ceil(7) as usize
        } else {
            size_of::<i32>()
        };
        let sample = Self {
            request: request.clone(),
            is_flexible,
            length_at: start.checked_sub(width)?,
            end: start + records.len(),
            answer,
        };
        sample.is_like(request).then_some(sample)
    }

    /// True if a request is the same but for its correlation id and its records.
    fn is_like(&self, request: &[u8]) -> bool {
        let sample = &*self.request;
        let is_same = |range: Range<usize>| request.get(range.clone()) == sample.get(range);
        is_same(0..CORRELATION.start)
            && is_same(CORRELATION.end..self.length_at)
            && self
                .records_end(request)
                .and_then(|end| request.get(end..))
                .is_some_and(|rest| Some(rest) == sample.get(self.end..))
    }

    /// Returns the place of the end of the records in a request with the same beginning.
    fn records_end(&self, request: &[u8]) -> Option<usize> {
        let at = request.get(self.length_at..)?;
        if !self.is_flexible {
            let length = usize::try_from(i32::from_be_bytes(*at.first_chunk()?)).ok()?;
            return Some(self.length_at + size_of::<i32>() + length);
        }
        let mut length = 0;
        for (index, byte) in at.iter().enumerate().take(VARINT_BYTES_MAX) {
            length |= usize::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                // One more than the length, as zero stands for none.
                return Some(self.length_at + index + length.checked_sub(1)? + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use stafett_kafka_wire::frame;
    use stafett_kafka_wire::messages::ProduceRequest;
    use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};

    use super::*;

    /// Returns a request without its length, and its records in it.
    fn request(version: i16, id: i32, topic: &'static str, records: usize) -> (Bytes, Bytes) {
        const MARK: u8 = 0xa7;
        let request = ProduceRequest {
            acks: -1,
            topic_data: vec![TopicProduceData {
                name: topic.into(),
                partition_data: vec![PartitionProduceData {
                    index: 3,
                    records: Some(vec![MARK; records].into()),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        let frame = frame::write_request(version, id, Some("client".into()), &request).unwrap();
        let payload = frame.into_bytes().slice(4..);
        let start = payload.iter().position(|byte| *byte == MARK).unwrap();
        let records = payload.slice(start..start + records);
        (payload, records)
    }

    fn sample(version: i16, records: usize) -> Sample {
        let (payload, records) = request(version, 7, "orders", records);
        let call = Call {
            api: ApiKey::Produce,
            version,
            correlation_id: 7,
        };
        Sample::new(&payload, &records, call, Bytes::new()).unwrap()
    }

    #[test]
    fn a_request_is_like_another_whatever_its_correlation_id_and_its_records_are() {
        for version in [3, 8, 9, 12] {
            for (one, other) in [(1, 1), (1, 126), (126, 127), (127, 128), (20_000, 1), (1, 20_000)] {
                let (other, _) = request(version, 1 << 30, "orders", other);
                assert!(sample(version, one).is_like(&other), "version {version}: {one}");
            }
        }
    }

    #[test]
    fn a_request_with_another_byte_anywhere_else_is_not() {
        for version in [3, 9] {
            let sample = sample(version, 5);
            let (payload, records) = request(version, 7, "orders", 5);
            let start = records.as_ptr().addr() - payload.as_ptr().addr();
            for at in (0..payload.len()).filter(|at| !CORRELATION.contains(at)) {
                let mut other = payload.to_vec();
                other[at] ^= 1;
                let is_record = (start..start + 5).contains(&at);
                assert_eq!(sample.is_like(&other), is_record, "version {version}: byte {at}");
            }
            assert!(!sample.is_like(&request(version, 7, "others", 5).0));
            for length in 0..payload.len() {
                assert!(!sample.is_like(&payload[..length]), "version {version}: {length}");
            }
            let mut longer = payload.to_vec();
            longer.push(0);
            assert!(!sample.is_like(&longer));
        }
    }
}
