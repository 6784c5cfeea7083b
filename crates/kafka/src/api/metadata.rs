//! `Metadata`: topics and their partitions. Creates missing topics if allowed.
//!
//! Answers may be far larger than their requests: an answer is built when its turn comes, contains each topic
//! once, and only a few large ones are in memory at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stafett_access::Action;
use stafett_kafka_wire::messages::MetadataRequest;
use stafett_kafka_wire::messages::metadata::{MetadataRequestTopic, MetadataResponseBroker};
use stafett_kafka_wire::{ApiKey, Decoder, ErrorCode, Str, Uuid};
use stafett_model::TopicName;
use stafett_topics::{CreateError, NewTopic, Topic, TopicId, TopicSettings, is_internal};

use crate::call::{Call, Close, ResponseResult};
use crate::cells::{Leaders, NO_LEADER};
use crate::context::RequestContext;
use crate::error;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::response_writer::Writer;

/// Operations on a cluster without access control, as bits of the numbers of Kafka's `AclOperation`: create,
/// alter, describe, cluster action, describe and alter configs, idempotent write.
pub(super) const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// Operations on a topic: read, write, create, delete, alter, describe, describe and alter configs.
pub(super) const TOPIC_OPERATIONS: i32 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// Operations that were not requested.
const NOT_ASKED: i32 = i32::MIN;

/// Bytes from which on an answer counts as large.
const LARGE_BYTES: usize = 1 << 20;
/// Estimated bytes of a partition.
const PARTITION_BYTES: usize = 40;
/// Estimated bytes of a topic without its name.
const TOPIC_BYTES: usize = 48;

/// Entry of a topic.
enum TopicEntry {
    Known(Arc<Topic>),
    Failed { name: Option<Str>, id: Uuid, code: i16 },
}

pub(super) fn metadata(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: MetadataRequest = call.read(body)?;
    let missing = missing_names(context, call.version, &request);
    if missing.is_empty() {
        return Ok(PendingResponse::in_turn(move |context| {
            answer(context, call, &request, &CreateFailures::default())
        }));
    }
    let new = missing.iter().map(|name| NewTopic {
        name: name.as_str().into(),
        partitions: None,
        settings: context.shared.created(TopicSettings::default()),
    });
    let operation = Operation::CreateTopics(
        new.collect(),
        then(move |context, created| on_created(context, call, request, missing, created)),
    );
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

/// Returns the names of topics to create, each once.
fn missing_names(context: &RequestContext, version: i16, request: &MetadataRequest) -> Vec<Str> {
    let shared = &*context.shared;
    let may_create = shared.settings.auto_create_topics && request.allow_auto_topic_creation;
    let named = request
        .topics
        .iter()
        .flatten()
        .filter(|topic| may_create && (version >= 12 || topic.topic_id.is_zero()));
    let missing: HashSet<Str> = named
        .filter_map(|topic| topic.name.as_ref().filter(|_| topic.topic_id.is_zero()))
        .filter(|name| !is_internal(name) && TopicName::check(name).is_ok())
        .filter(|name| shared.broker.topics().named(name).is_none())
        .filter(|name| context.may_topic(Action::Describe, name) && context.check_creation(name).is_ok())
        .cloned()
        .collect();
    missing.into_iter().collect()
}

/// Topics that could not be created, with the reason.
type CreateFailures = HashMap<Str, ErrorCode>;

fn on_created(
    context: &RequestContext,
    call: Call,
    request: MetadataRequest,
    names: Vec<Str>,
    created: Vec<Result<Arc<Topic>, CreateError>>,
) -> Result<Step, Close> {
    let mut failures = CreateFailures::new();
    let mut changing = Vec::new();
    for (name, result) in names.into_iter().zip(created) {
        match result {
            Ok(_) | Err(CreateError::Exists) => {}
            Err(CreateError::Changing) => changing.push(name),
            Err(other) => {
                let (code, _) = error::create(&name, &other)?;
                failures.insert(name, code);
            }
        }
    }
    if changing.is_empty() {
        return answer(context, call, &request, &failures);
    }
    // Other requests are creating them, which takes one sync. Without this wait librdkafka would ask again
    // only minutes later.
    let names = changing.clone();
    let settled = move |context: &RequestContext, ()| {
        let topics = context.shared.broker.topics();
        let missing = changing.into_iter().filter(|name| topics.named(name).is_none());
        failures.extend(missing.map(|name| (name, ErrorCode::LeaderNotAvailable)));
        answer(context, call, &request, &failures)
    };
    Ok(Step::Await(Operation::AwaitNames(names, then(settled))))
}

fn answer(
    context: &RequestContext,
    call: Call,
    request: &MetadataRequest,
    failures: &CreateFailures,
) -> Result<Step, Close> {
    let entries = entries(context, call.version, request, failures);
    let bytes: usize = entries.iter().map(bytes_of).sum();
    let brokers = context.brokers().into_iter();
    let brokers = brokers.map(|(node_id, host, port)| MetadataResponseBroker {
        node_id,
        host,
        port,
        rack: None,
    });
    let head = ClusterHead {
        brokers: brokers.collect(),
        controller: context.controller().map_or(-1, |(id, ..)| id),
        leaders: Leaders::new(&context.shared),
        cluster_id: context.shared.cluster_id.clone(),
        topic_operations: if request.include_topic_authorized_operations {
            TOPIC_OPERATIONS
        } else {
            NOT_ASKED
        },
        cluster_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            NOT_ASKED
        },
    };
    let write = move || head.write(call, &entries, bytes);
    if bytes < LARGE_BYTES {
        return write().map(Step::Respond);
    }
    // Writing a large answer takes long, and many connections share this thread.
    Ok(Step::Await(Operation::WriteBlocking {
        is_large: true,
        write: Box::new(write),
    }))
}

fn bytes_of(entry: &TopicEntry) -> usize {
    match entry {
        TopicEntry::Known(topic) => {
            let partitions = usize::try_from(topic.partitions()).unwrap_or(usize::MAX);
            TOPIC_BYTES + topic.name.len() + PARTITION_BYTES.saturating_mul(partitions)
        }
        TopicEntry::Failed { name, .. } => TOPIC_BYTES + name.as_ref().map_or(0, |name| name.len()),
    }
}

/// Returns one entry for each requested topic, without repetitions.
fn entries(
    context: &RequestContext,
    version: i16,
    request: &MetadataRequest,
    failures: &CreateFailures,
) -> Vec<TopicEntry> {
    let shared = &*context.shared;
    let may_see = |topic: &Arc<Topic>| context.may_topic(Action::Describe, &topic.name);
    let asked = match &request.topics {
        Some(topics) if version > 0 || !topics.is_empty() => topics,
        _ => {
            let mut all = shared.broker.topics().all();
            all.retain(|topic| shared.shows(topic) && may_see(topic));
            return all.into_iter().map(TopicEntry::Known).collect();
        }
    };
    let mut seen = HashSet::with_capacity(asked.len());
    // Before version 12 topics have names only.
    let ill_formed = version < 12
        && asked
            .iter()
            .any(|topic| topic.name.is_none() || !topic.topic_id.is_zero());
    asked
        .iter()
        .filter(|topic| seen.insert((topic.topic_id, topic.name.as_ref())))
        .map(|topic| {
            match look_up(context, topic, failures) {
                _ if ill_formed => Err(ErrorCode::InvalidRequest),
                found => found,
            }
            .map_or_else(
                |code| TopicEntry::Failed {
                    name: topic.name.clone().or_else(|| (version < 12).then(Str::default)),
                    id: topic.topic_id,
                    code: shared.metrics.error(ApiKey::Metadata, code),
                },
                TopicEntry::Known,
            )
        })
        .collect()
}

fn look_up(
    context: &RequestContext,
    asked: &MetadataRequestTopic,
    failures: &CreateFailures,
) -> Result<Arc<Topic>, ErrorCode> {
    let topics = context.shared.broker.topics();
    if !asked.topic_id.is_zero() {
        return topics
            .with_id(TopicId(asked.topic_id.into()))
            .filter(|topic| context.check_topic(Action::Describe, &topic.name).is_ok())
            .ok_or(ErrorCode::UnknownTopicId);
    }
    let name = asked.name.as_deref().unwrap_or_default();
    context.check_topic(Action::Describe, name)?;
    if let Some(topic) = topics.named(name) {
        return Ok(topic);
    }
    TopicName::check(name).map_err(error::name)?;
    Err(failures
        .get(name)
        .copied()
        .unwrap_or(ErrorCode::UnknownTopicOrPartition))
}

/// Parts of an answer that are the same for all topics.
struct ClusterHead {
    brokers: Vec<MetadataResponseBroker>,
    controller: i32,
    leaders: Leaders,
    cluster_id: Str,
    topic_operations: i32,
    cluster_operations: i32,
}

impl ClusterHead {
    fn write(&self, call: Call, entries: &[TopicEntry], bytes: usize) -> ResponseResult {
        let mut w = Writer::with_capacity(call, 256 + bytes);
        self.head(&mut w);
        w.count(entries.len());
        for entry in entries {
            match entry {
                TopicEntry::Known(topic) => self.topic(&mut w, topic),
                TopicEntry::Failed { name, id, code } => failed(&mut w, name.as_ref(), *id, *code),
            }
        }
        if (8..=10).contains(&w.version) {
            w.e.i32(self.cluster_operations);
        }
        if w.version >= 13 {
            w.e.i16(ErrorCode::None.code());
        }
        w.tags();
        Ok(w.finish()?.into())
    }

    fn head(&self, w: &mut Writer) {
        if w.version >= 3 {
            w.e.i32(0);
        }
        w.e.array(&self.brokers, w.version, w.is_flexible());
        if w.version >= 2 {
            w.string(&self.cluster_id);
        }
        if w.version >= 1 {
            w.e.i32(self.controller);
        }
    }

    fn topic(&self, w: &mut Writer, topic: &Topic) {
        let id = Uuid::from(topic.id.0);
        let name = Str::copy_from(&topic.name);
        topic_head(w, ErrorCode::None.code(), Some(&name), id, is_internal(&name));
        let partitions = i32::try_from(topic.partitions()).unwrap_or(i32::MAX);
        w.count(usize::try_from(partitions).unwrap_or(0));
        let leader_epoch = self.leaders.epoch(topic);
        for partition in 0..partitions {
            let leader = self.leaders.of(topic, partition);
            w.e.i16(
                leader
                    .map_or(ErrorCode::LeaderNotAvailable, |_| ErrorCode::None)
                    .code(),
            );
            w.e.i32(partition);
            w.e.i32(leader.unwrap_or(NO_LEADER));
            if w.version >= 7 {
                w.e.i32(leader_epoch);
            }
            // Replicas, then in-sync replicas.
            for _ in 0..2 {
                w.count(leader.iter().len());
                if let Some(leader) = leader {
                    w.e.i32(leader);
                }
            }
            if w.version >= 5 {
                w.count(0);
            }
            w.tags();
        }
        topic_end(w, self.topic_operations);
    }
}

fn failed(w: &mut Writer, name: Option<&Str>, id: Uuid, code: i16) {
    topic_head(w, code, name, id, name.is_some_and(|name| is_internal(name)));
    w.count(0);
    topic_end(w, NOT_ASKED);
}

fn topic_head(w: &mut Writer, code: i16, name: Option<&Str>, id: Uuid, is_internal: bool) {
    w.e.i16(code);
    w.opt_string(name);
    if w.version >= 10 {
        w.e.uuid(id);
    }
    if w.version >= 1 {
        w.e.bool(is_internal);
    }
}

fn topic_end(w: &mut Writer, operations: i32) {
    if w.version >= 8 {
        w.e.i32(operations);
    }
    w.tags();
}
