//! `Fetch`: returns batches as soon as there are enough of them or the client's wait time is over.
//!
//! A fetch runs when its turn comes, so a connection has the records of only one answer in memory at a time.
//! Memory is reserved before records are read; if it is short, a fetch reads less instead of waiting.

use std::time::Duration;

use smallvec::SmallVec;
use stafett_access::Rate;
use stafett_kafka_wire::messages::{self, FetchResponse};
use stafett_kafka_wire::{ApiKey, Decoder, Encoded, ErrorCode, Records};
use stafett_net::Permit;
use stafett_topics::{AbortedTransaction, LogSlice, ReadError, Visibility, Watch};
use tokio::time::Instant;

use crate::call::{Call, Close, EncodedResponse, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::epoch_search::wire;
use crate::fetch_partition::{PartitionReplies, PartitionReply};
use crate::fetch_request::{FetchRequest, IDS_FROM, SESSIONS_FROM};
use crate::fetch_sessions::{CheckedOutState, EPOCH_FIRST, EPOCH_NONE, NO_SESSION};
use crate::fetch_state::{FetchState, ReadRound};
use crate::offsets_topic::REFRESH;
use crate::operation::{OnDone, Operation, Step};
use crate::request_reader::TopicKey;
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::response_writer::Writer;

const READ_COMMITTED: i8 = 1;
/// No preferred read replica.
const NO_OTHER_REPLICA: i32 = -1;
/// Bytes to read if memory is short, reserved if possible.
const SHORT_BYTES: usize = 1 << 20;
/// Bytes to read without a reservation.
const LEAST_BYTES: usize = 64 << 10;

pub(super) fn fetch(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let fetch = Fetch {
        call,
        request: FetchRequest::read(call, body)?,
        source: Source::Unopened,
        memory: None,
        bytes_min: 0,
        bytes_max: 0,
        deadline: None,
        may_wait: false,
    };
    let operation = Operation::Turn(Box::new(fetch));
    Ok(PendingResponse::awaiting(operation, Pipelining::Free))
}

/// A fetch in progress. Reads until there are enough bytes, an error, or no time left:
///
/// ```text
/// Unopened ──▶ refresh of `__consumer_offsets`, if it is read ──▶ read ──▶ response
///                         ▲                                        │
///                         └──────────── growth of the logs ◀───────┘
/// ```
struct Fetch {
    call: Call,
    request: FetchRequest,
    source: Source,
    /// Memory of the records that are read.
    memory: Option<Permit>,
    bytes_min: usize,
    bytes_max: usize,
    /// End of the client's wait time; `None` if it does not wait.
    deadline: Option<Instant>,
    /// True if the read in progress may be followed by another.
    may_wait: bool,
}

/// Partitions that a fetch reads.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each fetch"
)]
enum Source {
    Unopened,
    Request(FetchState),
    Session(CheckedOutState),
}

impl Source {
    fn state(&mut self) -> Result<&mut FetchState, Close> {
        let state = match self {
            Self::Unopened => None,
            Self::Request(state) => Some(state),
            Self::Session(session) => session.state(),
        };
        state.ok_or(Close::OutcomeUnknown)
    }
}

impl Fetch {
    fn begin(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let shared = &*context.shared;
        self.source = match self.open(shared) {
            Ok(source) => source,
            Err(code) => {
                let error_code = shared.metrics.error(self.call.api, code);
                let response = FetchResponse {
                    error_code,
                    ..FetchResponse::default()
                };
                let answered = self.call.answer::<messages::FetchRequest>(&response);
                return answered.map(Step::Respond);
            }
        };
        let bytes_max = usize::try_from(self.request.max_bytes).unwrap_or(0);
        self.bytes_max = bytes_max.min(shared.settings.fetch_bytes_max);
        self.bytes_min = usize::try_from(self.request.min_bytes)
            .unwrap_or(0)
            .min(self.bytes_max);
        let wait = Duration::from_millis(u64::try_from(self.request.max_wait_ms).unwrap_or(0));
        self.deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
        self.next_round(context)
    }

    /// Finds the partitions of the request: its own, or those of its session with its changes.
    fn open(&self, shared: &KafkaContext) -> Result<Source, ErrorCode> {
        let request = &self.request;
        if request.session_epoch != EPOCH_NONE && request.session_epoch != EPOCH_FIRST {
            let uses_ids = self.call.version >= IDS_FROM;
            let sessions = &shared.fetch_sessions;
            let mut session = sessions.take(request.session_id, request.session_epoch, uses_ids)?;
            if let Some(state) = session.state() {
                put(state, shared, request);
                request
                    .forgotten()
                    .for_each(|(key, partition)| state.forget(key, partition));
                state.changed(&shared.broker, shared.deletions());
            }
            return Ok(Source::Session(session));
        }
        if request.session_id != NO_SESSION {
            shared.fetch_sessions.remove(request.session_id);
        }
        let mut state = FetchState::new(shared.deletions());
        state.reserve(request.partitions());
        if request.session_epoch == EPOCH_FIRST {
            state.start_watching(&shared.broker);
            put(&mut state, shared, request);
        } else {
            request
                .asked()
                .for_each(|(key, asked)| state.add(&shared.broker, key, asked));
        }
        Ok(Source::Request(state))
    }

    fn next_round(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let state = self.source.state()?;
        let has_time = self.deadline.is_some_and(|deadline| Instant::now() < deadline);
        self.may_wait = has_time && state.live() > 0 && !context.drain.is_cancelled();
        if state.reads_commits() {
            return Ok(Step::Await(Operation::RefreshOffsetsTopic(self)));
        }
        self.read(context)
    }

    fn read(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let state = self.source.state()?;
        state.notice_growth();
        let (memory, bytes_max) = reserve(context, self.bytes_max);
        self.memory = memory;
        let visibility = if self.request.isolation_level == READ_COMMITTED {
            Visibility::Committed
        } else {
            Visibility::Stored
        };
        let request = state.request(&context.shared.broker, context.caller(), bytes_max, visibility);
        if request.logs.is_empty() {
            return self.on_done(context, Vec::new());
        }
        Ok(Step::Await(Operation::Read(request, self)))
    }

    fn respond(self, context: &RequestContext, round: ReadRound) -> ResponseResult {
        let shared = &*context.shared;
        let Self {
            call,
            request,
            source,
            memory,
            ..
        } = self;
        let isolation = request.isolation_level;
        let written = match source {
            Source::Unopened => return Err(Close::OutcomeUnknown),
            Source::Session(mut session) => {
                let replies = session.state().map(|state| state.replies(round, false));
                finish(call, context, isolation, session, replies.unwrap_or_default())?
            }
            Source::Request(mut state) => {
                let replies = state.replies(round, true);
                if request.session_epoch == EPOCH_FIRST {
                    let uses_ids = call.version >= IDS_FROM;
                    match shared.fetch_sessions.create(Box::new(state), uses_ids) {
                        Ok(session) => finish(call, context, isolation, session, replies)?,
                        Err(state) => write(call, context, isolation, &state, replies, NO_SESSION)?,
                    }
                } else {
                    write(call, context, isolation, &state, replies, NO_SESSION)?
                }
            }
        };
        Ok(EncodedResponse {
            memory,
            ..written.into()
        })
    }
}

/// The turn of the request has come, or `__consumer_offsets` is refreshed.
impl OnDone<()> for Fetch {
    fn on_done(self: Box<Self>, context: &RequestContext, (): ()) -> Result<Step, Close> {
        if matches!(self.source, Source::Unopened) {
            self.begin(context)
        } else {
            self.read(context)
        }
    }
}

/// The active partitions are read.
impl OnDone<Vec<Result<LogSlice, ReadError>>> for Fetch {
    fn on_done(
        mut self: Box<Self>,
        context: &RequestContext,
        read: Vec<Result<LogSlice, ReadError>>,
    ) -> Result<Step, Close> {
        let state = self.source.state()?;
        let round = state.on_read(read);
        if round.bytes >= self.bytes_min || round.has_error || !self.may_wait {
            if let Some(memory) = &mut self.memory {
                memory.shrink_to(round.bytes);
            }
            return self.respond(context, round).map(Step::Respond);
        }
        self.memory = None;
        let is_new = state.start_watching(&context.shared.broker);
        match (state.take_watch(), self.deadline) {
            (Some(watch), Some(deadline)) if !is_new => {
                let refreshed = state.reads_commits().then(|| Instant::now() + REFRESH);
                Ok(Step::Await(Operation::AwaitGrowth {
                    watch,
                    bytes: self.bytes_min - round.bytes,
                    until: refreshed.map_or(deadline, |refreshed| refreshed.min(deadline)),
                    then: self,
                }))
            }
            (watch, _) => {
                state.set_watch(watch);
                self.next_round(context)
            }
        }
    }
}

/// The watched logs have grown, or the wait is over.
impl OnDone<Watch> for Fetch {
    fn on_done(mut self: Box<Self>, context: &RequestContext, watch: Watch) -> Result<Step, Close> {
        self.source.state()?.set_watch(Some(watch));
        self.next_round(context)
    }
}

/// Writes the answer of a session. Keeps the session for its next request, unless the client has forgotten
/// all its partitions.
fn finish(
    call: Call,
    context: &RequestContext,
    isolation: i8,
    mut session: CheckedOutState,
    replies: PartitionReplies,
) -> Result<Encoded, Close> {
    let id = session.id;
    let state = session.state().ok_or(Close::OutcomeUnknown)?;
    let is_kept = state.live() > 0;
    let shown = if is_kept { id } else { NO_SESSION };
    let written = write(call, context, isolation, state, replies, shown)?;
    if is_kept {
        session.put_back();
    }
    Ok(written)
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
            state.put(&shared.broker, key, asked);
        }
    }
}

/// Reserves memory for an answer. Returns the permit and the maximum bytes of the answer.
pub(super) fn reserve(context: &RequestContext, bytes_max: usize) -> (Option<Permit>, usize) {
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
    context: &RequestContext,
    isolation: i8,
    state: &FetchState,
    replies: PartitionReplies,
    session: i32,
) -> Result<Encoded, Close> {
    let shared = &*context.shared;
    let topic_of = |reply: &PartitionReply| state.partition(reply).map(|partition| &partition.topic);
    let is_same = |one: &PartitionReply, other: &PartitionReply| topic_of(one) == topic_of(other);
    let mut w = Writer::new(call);
    let found = replies.iter().filter_map(|reply| reply.result.as_ref().ok());
    let found = found.map(|run| run.bytes).sum();
    w.e.i32(context.throttle_ms().max(context.charge(Rate::Fetched, found)));
    if w.version >= SESSIONS_FROM {
        w.e.i16(ErrorCode::None.code());
        w.e.i32(session);
    }
    let lengths: SmallVec<[usize; 4]> = replies.chunk_by(is_same).map(<[_]>::len).collect();
    w.count(lengths.len());
    let (mut records, mut bytes) = (0, 0);
    let traffic = shared.broker.topics().traffic();
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
                let found = partition.records_of(run);
                bytes += run.bytes as u64;
                records += found;
                if let Ok(log) = partition.log {
                    traffic.count_out(log, found, run.bytes as u64);
                }
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
        end,
        stable,
        start,
        result,
        ..
    } = reply;
    let (code, pieces, aborted) = match result {
        Ok(LogSlice { pieces, aborted, .. }) => (ErrorCode::None, pieces, aborted),
        Err(code) => (code, Vec::new(), Vec::new()),
    };
    w.e.i32(number);
    w.e.i16(shared.metrics.error(ApiKey::Fetch, code));
    w.e.i64(end);
    w.e.i64(stable);
    if w.version >= 5 {
        w.e.i64(start);
    }
    if isolation == READ_COMMITTED {
        w.count(aborted.len());
        for AbortedTransaction { producer, first, .. } in aborted {
            w.e.i64(producer.0);
            w.e.i64(wire(first.0));
            w.tags();
        }
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
