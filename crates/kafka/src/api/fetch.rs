//! `Fetch`: batches out, as soon as there are enough of them or the client's time is up.
//!
//! A fetch runs when its turn comes, so that a connection has the records of one answer in memory at a time. Memory for
//! them is reserved before they are read; where there is none, a fetch makes do with little instead of waiting for it.

use std::time::Duration;

use stafett_broker::Run;
use stafett_kafka_wire::messages::fetch::{
    FetchTopic, FetchableTopicResponse, ForgottenTopic, PartitionData,
};
use stafett_kafka_wire::messages::{FetchRequest, FetchResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_net::Permit;
use tokio::time::{Instant, sleep_until};

use crate::answers::{Answered, Kind, Reply};
use crate::fetch_sessions::{EPOCH_FIRST, EPOCH_NONE, NO_SESSION, Taken};
use crate::fetch_state::{FetchState, Round, Told, TopicKey};
use crate::kafka::Shared;
use crate::session::{Call, Close, Context};

/// From this version on, topics are named by their ids.
const IDS_FROM: i16 = 13;
const READ_COMMITTED: i8 = 1;
/// What a fetch reads where memory is short, reserved if possible.
const SHORT_BYTES: usize = 1 << 20;
/// What it reads where there is none, without asking.
const LEAST_BYTES: usize = 64 << 10;

pub(super) fn fetch(context: &Context, call: Call, body: Decoder) -> Result<Kind, Close> {
    let request: FetchRequest = call.read(body)?;
    let context = context.clone();
    Ok(Kind::Task(Box::pin(
        async move { run(&context, call, request).await },
    )))
}

async fn run(context: &Context, call: Call, request: FetchRequest) -> Answered {
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
                call.answer::<FetchRequest>(&FetchResponse {
                    error_code,
                    ..FetchResponse::default()
                })
            }
        };
    }
    if request.session_id != NO_SESSION {
        shared.fetch_sessions.remove(request.session_id);
    }
    let mut state = FetchState::new(shared);
    state.reserve(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    let wants_session = request.session_epoch == EPOCH_FIRST;
    if wants_session {
        state.start_watching(&shared.broker);
        put(&mut state, shared, &request.topics);
    } else {
        for topic in &request.topics {
            let key = TopicKey {
                name: topic.topic.clone(),
                id: topic.topic_id,
            };
            for partition in &topic.partitions {
                state.add(shared, &key, partition);
            }
        }
    }
    let (round, memory) = collect(context, &request, &mut state).await;
    let mut response = tell(shared, &request, &mut state, round, true);
    if wants_session {
        response.session_id = shared.fetch_sessions.create(Box::new(state), uses_ids);
    }
    Ok(Reply {
        memory,
        ..call.encode::<FetchRequest>(&response)?.into()
    })
}

/// Answers a request of a session that there is.
async fn go_on(context: &Context, call: Call, request: &FetchRequest, mut taken: Taken<'_>) -> Answered {
    let shared = &*context.shared;
    let Some(state) = taken.state() else {
        return Err(Close::OutcomeUnknown);
    };
    put(state, shared, &request.topics);
    for ForgottenTopic {
        topic,
        topic_id,
        partitions,
    } in &request.forgotten_topics_data
    {
        let key = TopicKey {
            name: topic.clone(),
            id: *topic_id,
        };
        for partition in partitions {
            state.forget(&key, *partition);
        }
    }
    state.changed(shared);
    let (round, memory) = collect(context, request, state).await;
    let is_empty = state.live() == 0;
    let mut response = tell(shared, request, state, round, false);
    if is_empty {
        shared.fetch_sessions.remove(taken.id);
    } else {
        response.session_id = taken.id;
        taken.put_back();
    }
    Ok(Reply {
        memory,
        ..call.encode::<FetchRequest>(&response)?.into()
    })
}

/// Adds what is asked for to a session; texts are copied, since the session outlives the request.
fn put(state: &mut FetchState, shared: &Shared, topics: &[FetchTopic]) {
    for topic in topics {
        let key = TopicKey {
            name: topic.topic.detach(),
            id: topic.topic_id,
        };
        for partition in &topic.partitions {
            state.put(shared, &key, partition);
        }
    }
}

/// Reads until there is enough, something to complain about, or no time left.
async fn collect(
    context: &Context,
    request: &FetchRequest,
    state: &mut FetchState,
) -> (Round, Option<Permit>) {
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
            grow(context, state, bytes_min - round.bytes, deadline).await;
        }
    }
}

/// Waits until the partitions have grown by so much, or for as long as the client does.
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

/// Memory for an answer, and how large it may be.
fn reserve(context: &Context, bytes_max: usize) -> (Option<Permit>, usize) {
    for bytes in [bytes_max, bytes_max.min(SHORT_BYTES)] {
        if let Some(permit) = context.budget.try_reserve(bytes) {
            return (Some(permit), bytes);
        }
    }
    (None, bytes_max.min(LEAST_BYTES))
}

fn tell(
    shared: &Shared,
    request: &FetchRequest,
    state: &mut FetchState,
    round: Round,
    all: bool,
) -> FetchResponse {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    let (mut records, mut bytes) = (0, 0);
    state.tell(round, all, |told| {
        if let Ok(Some(run)) = &told.records {
            bytes += run.bytes as u64;
            let from = u64::try_from(told.partition.fetch_offset()).unwrap_or(0);
            records += run.next.0.saturating_sub(from);
        }
        let TopicKey { name, id } = &told.partition.topic;
        let is_same = |last: &&mut FetchableTopicResponse| last.topic_id == *id && last.topic == *name;
        let (name, id) = (name.clone(), *id);
        let data = partition_data(shared, request, told);
        match topics.last_mut().filter(is_same) {
            Some(last) => last.partitions.push(data),
            None => topics.push(topic_of(name, id, data)),
        }
    });
    shared.metrics.fetched_records.inc_by(records);
    shared.metrics.fetched_bytes.inc_by(bytes);
    FetchResponse {
        responses: topics,
        ..FetchResponse::default()
    }
}

fn topic_of(topic: Str, topic_id: Uuid, first: PartitionData) -> FetchableTopicResponse {
    FetchableTopicResponse {
        topic,
        topic_id,
        partitions: vec![first],
    }
}

fn partition_data(shared: &Shared, request: &FetchRequest, told: Told<'_>) -> PartitionData {
    let Told {
        partition,
        end,
        start,
        records,
    } = told;
    let (code, run) = match records {
        Ok(run) => (ErrorCode::None, run),
        Err(code) => (code, None),
    };
    let pieces = run.map(|Run { pieces, .. }| pieces).unwrap_or_default();
    PartitionData {
        partition_index: partition.number,
        error_code: shared.metrics.error(stafett_kafka_wire::ApiKey::Fetch, code),
        high_watermark: end,
        // No transaction is ever open.
        last_stable_offset: end,
        log_start_offset: start,
        aborted_transactions: (request.isolation_level == READ_COMMITTED).then(Vec::new),
        records: Some(pieces.into_iter().collect()),
        ..PartitionData::default()
    }
}
