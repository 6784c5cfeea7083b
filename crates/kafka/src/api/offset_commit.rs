//! `OffsetCommit`: staged when it is read, so that commits that were sent together are stored together;
//! answered when it is stored.

use smallvec::SmallVec;
use stafett_groups::{COMMITS_TOGETHER, CommitSender, GroupError, NewCommit};
use stafett_kafka_wire::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use stafett_kafka_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_store::NotStored;
use stafett_topics::{Topic, TopicId};

use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// Maximum partitions per request; each takes a few hundred bytes until it is stored.
const PARTITIONS_MAX: usize = 250_000;
/// First version that names topics by id.
const IDS_FROM: i16 = 10;
/// First version that knows member epochs, and that reports a missing group by its own error.
const EPOCHS_FROM: i16 = 9;

pub(super) fn offset_commit(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetCommitRequest = call.read(body)?;
    let shared = &*context.shared;
    let mut commits = Vec::new();
    let topics: Vec<_> = request
        .topics
        .iter()
        .map(|topic| stage(shared, call.version, topic, &mut commits))
        .collect();
    let by = CommitSender {
        member: &request.member_id,
        instance: request.group_instance_id.as_deref(),
        epoch: request.generation_id_or_member_epoch,
        is_transactional: false,
    };
    let committing = shared.broker.groups().commit(&request.group_id, &by, commits);
    drop(request);
    let committing = match committing {
        Ok(committing) => committing,
        Err(why) => {
            let code = code(&why, call.version)?;
            return Ok(PendingResponse::Ready(answer(shared, call, topics, |_| code)));
        }
    };
    if committing.is_nothing() {
        return Ok(PendingResponse::Ready(answer(shared, call, topics, |_| {
            ErrorCode::None
        })));
    }
    let stored = then(move |context, parts| on_stored(context, call, topics, parts));
    let operation = Operation::AwaitCommits(committing, stored);
    Ok(PendingResponse::awaiting(operation, Pipelining::Free))
}

fn on_stored(
    context: &RequestContext,
    call: Call,
    topics: Vec<OffsetCommitResponseTopic>,
    parts: SmallVec<[Result<(), NotStored>; 1]>,
) -> Result<Step, Close> {
    let codes = parts.into_iter().map(|part| match part {
        Ok(()) => Ok(ErrorCode::None),
        Err(why) => code(&why.into(), call.version),
    });
    let codes = codes.collect::<Result<Vec<_>, Close>>()?;
    let needs_topic = codes.contains(&ErrorCode::None) && context.shared.needs_offsets_topic();
    let respond = move |context: &RequestContext, ()| {
        let code = |commit: usize| codes.get(commit / COMMITS_TOGETHER).copied();
        answer(&context.shared, call, topics, |commit| {
            code(commit).unwrap_or(ErrorCode::UnknownServerError)
        })
    };
    if needs_topic {
        return Ok(Step::Await(Operation::CreateOffsetsTopic(then(respond))));
    }
    respond(context, ()).map(Step::Respond)
}

fn code(error: &GroupError, version: i16) -> Result<ErrorCode, Close> {
    let is_old = version < EPOCHS_FROM;
    if is_old && *error == GroupError::NoSuchGroup {
        return Ok(ErrorCode::IllegalGeneration);
    }
    if is_old && *error == GroupError::StaleEpoch {
        return Ok(ErrorCode::UnsupportedVersion);
    }
    error::group(error)
}

/// Adds the valid commits of a topic to `commits` and returns the preliminary answer.
fn stage(
    shared: &KafkaContext,
    version: i16,
    asked: &OffsetCommitRequestTopic,
    commits: &mut Vec<NewCommit>,
) -> OffsetCommitResponseTopic {
    let topics = shared.broker.topics();
    let (topic, unknown) = if version >= IDS_FROM {
        let topic = topics.with_id(TopicId(asked.topic_id.into()));
        (topic, ErrorCode::UnknownTopicId)
    } else {
        (topics.named(&asked.name), ErrorCode::UnknownTopicOrPartition)
    };
    let text_bytes_max = shared.broker.groups().settings().commit_text_bytes_max;
    let mut partitions = Vec::with_capacity(asked.partitions.len());
    for partition in &asked.partitions {
        let commit = match &topic {
            Some(_) if commits.len() >= PARTITIONS_MAX => Err(ErrorCode::InvalidCommitOffsetSize),
            Some(topic) => commit(topic, partition, text_bytes_max),
            None => Err(unknown),
        };
        let code = commit.map_or_else(
            |code| code,
            |commit| {
                commits.push(commit);
                ErrorCode::None
            },
        );
        partitions.push(OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: code.code(),
        });
    }
    OffsetCommitResponseTopic {
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        partitions,
    }
}

fn commit(
    topic: &Topic,
    asked: &OffsetCommitRequestPartition,
    text_bytes_max: usize,
) -> Result<NewCommit, ErrorCode> {
    let partition = u32::try_from(asked.partition_index)
        .ok()
        .filter(|partition| *partition < topic.partitions())
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let text = asked
        .committed_metadata
        .as_deref()
        .filter(|text| !text.is_empty());
    if text.is_some_and(|text| text.len() > text_bytes_max) {
        return Err(ErrorCode::OffsetMetadataTooLarge);
    }
    Ok(NewCommit {
        topic: topic.id,
        partition,
        offset: asked.committed_offset,
        leader_epoch: asked.committed_leader_epoch,
        text: text.map(Into::into),
    })
}

/// Builds the answer. `code` returns the outcome of the n-th commit; partitions that failed before keep their
/// error.
fn answer(
    shared: &KafkaContext,
    call: Call,
    mut topics: Vec<OffsetCommitResponseTopic>,
    code: impl Fn(usize) -> ErrorCode,
) -> ResponseResult {
    let mut commits = 0;
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == 0 {
            partition.error_code = code(commits).code();
            commits += 1;
        }
        if partition.error_code != 0 {
            let code = ErrorCode::try_from(partition.error_code).unwrap_or(ErrorCode::UnknownServerError);
            shared.metrics.error(call.api, code);
        }
    }
    let response = OffsetCommitResponse {
        throttle_time_ms: 0,
        topics,
    };
    call.answer::<OffsetCommitRequest>(&response)
}
