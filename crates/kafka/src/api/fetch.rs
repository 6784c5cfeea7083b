//! `Fetch`: returns batches as soon as there are enough of them or the client's wait time is over.
//!
//! A fetch runs when its turn comes, so a connection has the records of only one answer in memory at a time.
//! Memory is reserved before records are read; if it is short, a fetch reads less instead of waiting.

use std::time::Duration;

use smallvec::SmallVec;
use stafett_kafka_wire::messages::{self, FetchResponse};
use stafett_kafka_wire::{ApiKey, Decoder, Encoded, ErrorCode, Records};
use stafett_net::Permit;
use stafett_topics::LogSlice;
use tokio::time::{Instant, sleep_until};

use crate::context::KafkaContext;
use crate::fetch_request::{FetchRequest, IDS_FROM, SESSIONS_FROM};
use crate::fetch_sessions::{CheckedOutState, EPOCH_FIRST, EPOCH_NONE, NO_SESSION};
use crate::fetch_state::{FetchState, PartitionReplies, PartitionReply, ReadRound};
use crate::offsets_topic::REFRESH;
use crate::request_reader::TopicKey;
use crate::response_queue::{EncodedResponse, PendingResponse, ResponseResult};
use crate::response_writer::Writer;
use crate::session::{Call, Close, Context};

const READ_COMMITTED: i8 = 1;
/// No preferred read replica.
const NO_OTHER_REPLICA: i32 = -1;
/// Bytes to read if memory is short, reserved if possible.
const SHORT_BYTES: usize = 1 << 20;
/// Bytes to read without a reservation.
const LEAST_BYTES: usize = 64 << 10;

pub(super) fn fetch(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request = FetchRequest::read(call, body)?;
    let context = context.clone();
    Ok(PendingResponse::Task(Box::pin(async move {
        run(&context, call, request).await
    })))
}

async fn run(context: &Context, call: Call, request: FetchRequest) -> ResponseResult {
    let shared = &*context.shared;
    let uses_ids = call.version >= IDS_FROM;
    if request.session_epoch != EPOCH_NONE && request.session_epoch != EPOCH_FIRST {
        let taken = shared
            .fetch_sessions
            .take(request.session_id, request.session_epoch, uses_ids);
        return match taken {
            Ok(taken) => go_on(context, call, &request, taken).await,
            Err(code) => {
                let error_code = shared.metrics.error(call.api, code);
                let response = FetchResponse {
                    error_code,
                    ..FetchResponse::default()
                };
                call.answer::<messages::FetchRequest>(&response)
            }
        };
    }
    if request.session_id != NO_SESSION {
        shared.fetch_sessions.remove(request.session_id);
    }
    let mut state = FetchState::new(shared);
    state.reserve(request.partitions());
    let wants_session = request.session_epoch == EPOCH_FIRST;
    if wants_session {
        state.start_watching(&shared.broker);
        put(&mut state, shared, &request);
    } else {
        request
            .asked()
            .for_each(|(key, asked)| state.add(shared, key, asked));
    }
    let (round, memory) = collect(context, &request, &mut state).await;
    let replies = state.replies(round, true);
    let isolation = request.isolation_level;
    if !wants_session {
        let written = write(call, shared, isolation, &state, replies, NO_SESSION)?;
        return Ok(EncodedResponse {
            memory,
            ..written.into()
        });
    }
    match shared.fetch_sessions.create(Box::new(state), uses_ids) {
        Ok(taken) => finish(call, shared, isolation, taken, replies, memory),
        Err(state) => {
            let written = write(call, shared, isolation, &state, replies, NO_SESSION)?;
            Ok(EncodedResponse {
                memory,
                ..written.into()
            })
        }
    }
}

/// Answers a request of an existing session.
async fn go_on(
    context: &Context,
    call: Call,
    request: &FetchRequest,
    mut taken: CheckedOutState<'_>,
) -> ResponseResult {
    let shared = &*context.shared;
    let Some(state) = taken.state() else {
        return Err(Close::OutcomeUnknown);
    };
    put(state, shared, request);
    request
        .forgotten()
        .for_each(|(key, partition)| state.forget(key, partition));
    state.changed(shared);
    let (round, memory) = collect(context, request, state).await;
    let replies = state.replies(round, false);
    finish(call, shared, request.isolation_level, taken, replies, memory)
}

/// Writes the answer of a session. Keeps the session for its next request, unless the client has forgotten
/// all its partitions.
fn finish(
    call: Call,
    shared: &KafkaContext,
    isolation: i8,
    mut taken: CheckedOutState<'_>,
    replies: PartitionReplies,
    memory: Option<Permit>,
) -> ResponseResult {
    let id = taken.id;
    let Some(state) = taken.state() else {
        return Err(Close::OutcomeUnknown);
    };
    let is_kept = state.live() > 0;
    let session = if is_kept { id } else { NO_SESSION };
    let written = write(call, shared, isolation, state, replies, session)?;
    if is_kept {
        taken.put_back();
    }
    Ok(EncodedResponse {
        memory,
        ..written.into()
    })
}

/// Adds the requested partitions to a session. Copies texts, because the session outlives the request.
fn put(state: &mut FetchState, shared: &KafkaContext, request: &FetchRequest) {
    let mut last: Option<TopicKey> = None;
    for (key, asked) in request.asked() {
        if last.as_ref() != Some(key) {
            last = Some(TopicKey {
                name: key.name.detach(),
                ..*key
            });
        }
        if let Some(key) = &last {
            state.put(shared, key, asked);
        }
    }
}

/// Reads until there are enough bytes, an error, or no time left.
async fn collect(
    context: &Context,
    request: &FetchRequest,
    state: &mut FetchState,
) -> (ReadRound, Option<Permit>) {
    let shared = &*context.shared;
    let bytes_max = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(shared.settings.fetch_bytes_max);
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = Instant::now() + wait;
    loop {
        let may_wait =
            !wait.is_zero() && state.live() > 0 && !context.drain.is_cancelled() && Instant::now() < deadline;
        if state.reads_commits() {
            shared.offsets_topic.refresh(shared).await;
        }
        state.notice_growth();
        let (mut memory, bytes_max) = reserve(context, bytes_max);
        let round = state.read(shared, bytes_max).await;
        if round.bytes >= bytes_min || round.has_error || !may_wait {
            if let Some(memory) = &mut memory {
                memory.shrink_to(round.bytes);
            }
            return (round, memory);
        }
        drop(memory);
        if !state.start_watching(&shared.broker) {
            let until = if state.reads_commits() {
                deadline.min(Instant::now() + REFRESH)
            } else {
                deadline
            };
            grow(context, state, bytes_min - round.bytes, until).await;
        }
    }
}

/// Waits until the partitions have grown by `bytes`, the deadline has passed, or the connection drains.
async fn grow(context: &Context, state: &FetchState, bytes: usize, deadline: Instant) {
    let Some(watch) = state.watch() else { return };
    let enough = async {
        while usize::try_from(watch.bytes()).unwrap_or(usize::MAX) < bytes {
            watch.grown().await;
        }
    };
    tokio::select! {
        () = enough => {}
        () = sleep_until(deadline) => {}
        () = context.drain.cancelled() => {}
    }
}

/// Reserves memory for an answer. Returns the permit and the maximum bytes of the answer.
fn reserve(context: &Context, bytes_max: usize) -> (Option<Permit>, usize) {
    for bytes in [bytes_max, bytes_max.min(SHORT_BYTES)] {
        if let Some(permit) = context.budget.try_reserve(bytes) {
            return (Some(permit), bytes);
        }
    }
    (None, bytes_max.min(LEAST_BYTES))
}

/// Writes the answer. Adjacent partitions of a topic share one topic entry.
fn write(
    call: Call,
    shared: &KafkaContext,
    isolation: i8,
    state: &FetchState,
    replies: PartitionReplies,
    session: i32,
) -> Result<Encoded, Close> {
    let topic_of = |reply: &PartitionReply| state.partition(reply).map(|partition| &partition.topic);
    let is_same = |one: &PartitionReply, other: &PartitionReply| topic_of(one) == topic_of(other);
    let mut w = Writer::new(call);
    // Throttle time.
    w.e.i32(0);
    if w.version >= SESSIONS_FROM {
        w.e.i16(ErrorCode::None.code());
        w.e.i32(session);
    }
    let lengths: SmallVec<[usize; 4]> = replies.chunk_by(is_same).map(<[_]>::len).collect();
    w.count(lengths.len());
    let (mut records, mut bytes) = (0, 0);
    let mut replies = replies.into_iter();
    for length in lengths {
        for (place, reply) in replies.by_ref().take(length).enumerate() {
            let Some(partition) = state.partition(&reply) else {
                continue;
            };
            if place == 0 {
                w.topic(&partition.topic, IDS_FROM);
                w.count(length);
            }
            if let Ok(run) = &reply.result {
                bytes += run.bytes as u64;
                records += partition.records_of(run);
            }
            write_partition(&mut w, shared, isolation, partition.number, reply);
        }
        w.tags();
    }
    w.tags();
    shared.metrics.fetched_records.inc_by(records);
    shared.metrics.fetched_bytes.inc_by(bytes);
    w.finish()
}

fn write_partition(w: &mut Writer, shared: &KafkaContext, isolation: i8, number: i32, reply: PartitionReply) {
    let PartitionReply {
        end, start, result, ..
    } = reply;
    let (code, pieces) = match result {
        Ok(LogSlice { pieces, .. }) => (ErrorCode::None, pieces),
        Err(code) => (code, Vec::new()),
    };
    w.e.i32(number);
    w.e.i16(shared.metrics.error(ApiKey::Fetch, code));
    w.e.i64(end);
    // There are no transactions: the last stable offset is the end, and none was aborted.
    w.e.i64(end);
    if w.version >= 5 {
        w.e.i64(start);
    }
    if isolation == READ_COMMITTED {
        w.count(0);
    } else {
        w.null_count();
    }
    if w.version >= 11 {
        w.e.i32(NO_OTHER_REPLICA);
    }
    let is_flexible = w.is_flexible();
    w.e.records(&Records::from(pieces), is_flexible);
    w.tags();
}
