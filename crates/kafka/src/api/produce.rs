//! `Produce`: appends batches. Each is checked once, and its bytes are passed on as received; requests that
//! were read together are appended in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_access::{Action, Rate};
use stafett_kafka_wire::{DecodeError, Decoder, ErrorCode, Str};
use stafett_model::{Codec, LogId, ProducerId};
use stafett_store::wall_ms;
use stafett_topics::{Admitted, Append, Precondition, Topic, cell_of, is_internal};
use stafett_transactions::{Instance, Place, TransactionError};

use crate::call::{Call, ResponseResult};
use crate::cell_transactions::{Joining, NotPart};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, then};
use crate::produce_results::{BatchRefusal, IDS_FROM, PartitionResult, ProduceResults, Staging};
use crate::request_reader::{Reader, TopicKey};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::{Outcomes, TransactionOperation};

/// First version that may use zstd.
const ZSTD_FROM: i16 = 7;
/// First version whose batches begin their transaction, or add their partition to it (KIP-890).
const ADDS_FROM: i16 = 12;
/// Version whose clients abort a transaction that the partition was not added to, and go on.
const ABORTABLE_IN: i16 = 11;
/// Minimum bytes of a topic in a request.
const TOPIC_BYTES_MIN: usize = 3;
/// Minimum bytes of a partition in a request.
const PARTITION_BYTES_MIN: usize = 5;

pub(super) fn stage(
    context: &RequestContext,
    call: Call,
    body: Decoder,
    frame_bytes: usize,
    staging: &mut Staging,
) -> HandlerResult {
    let before = staging.appends.len();
    if staging.refuses {
        return refuse(context, call, body);
    }
    let read = read(context, call, body, frame_bytes, &mut staging.appends);
    let (mut answer, transaction) = read.inspect_err(|_| staging.appends.truncate(before))?;
    answer.throttle_ms = context.charge(Rate::Produced, frame_bytes);
    let is_empty = staging.appends.len() == before;
    if let Some(transaction) = transaction.filter(|_| !is_empty) {
        let appends = staging.appends.split_off(before);
        return append_in(context, transaction, answer, appends, staging);
    }
    if is_empty {
        return Ok(PendingResponse::Ready(
            answer.finish(&context.shared, &mut std::iter::empty()),
        ));
    }
    staging.answers += 1;
    Ok(PendingResponse::Produce(answer))
}

/// Refuses all batches of a request that waited too long, if it has to be executed by itself.
fn refuse(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    context.has_refused.store(true, Ordering::Relaxed);
    let refused = BatchRefusal::too_long();
    let mut answer = read_each(
        call,
        body,
        |_| (),
        |&(), _, index, _| PartitionResult::failed(&context.shared, call, index, refused.clone()),
    )?;
    if let Some(shedding) = &context.shedding {
        shedding.count("produce", 1);
    }
    Ok(PendingResponse::Ready(
        answer.finish(&context.shared, &mut std::iter::empty()),
    ))
}

/// Transaction that the batches of a request belong to.
struct Transaction {
    id: Str,
    instance: Instance,
    /// Log and place of each batch.
    parts: Vec<(LogId, Place)>,
}

/// Appends the batches of a transaction, behind those of earlier requests.
fn append_in(
    context: &RequestContext,
    transaction: Transaction,
    mut answer: ProduceResults,
    appends: Vec<Append>,
    staging: &mut Staging,
) -> HandlerResult {
    let shared = &*context.shared;
    staging.append(shared.broker.catalog());
    let Transaction { id, instance, parts } = transaction;
    let adds = answer.call.version >= ADDS_FROM;
    let logs: Vec<LogId> = parts.iter().map(|(log, _)| *log).collect();
    if shared.is_further_cell() {
        let remote = shared.broker.remote_transactions();
        let appends = match remote.append_known(&id, instance, &logs, appends) {
            Ok(ticket) => {
                staging.appended.push((ticket, 1));
                return Ok(PendingResponse::Produce(answer));
            }
            Err(appends) => appends,
        };
        let joining = Joining {
            id: id.to_string(),
            by: instance,
            adds,
            parts,
            appends,
        };
        let joined = then(move |context: &RequestContext, joined| on_joined(context, answer, joined));
        let operation = TransactionOperation::Append(Box::new(joining), joined);
        return Ok(PendingResponse::awaiting(
            Operation::Transaction(operation),
            Pipelining::Barrier,
        ));
    }
    let appended = shared
        .broker
        .transactions()
        .append(&id, instance, adds, &logs, appends);
    Ok(match appended {
        Ok(ticket) => {
            staging.appended.push((ticket, 1));
            PendingResponse::Produce(answer)
        }
        Err(why) => {
            let code = if why == TransactionError::Busy && !adds {
                // It may have been the first of its producer, which sends it again: those behind it have to
                // wait for it.
                context.has_refused.store(true, Ordering::Relaxed);
                // Earlier clients try this again, and do not know the other.
                ErrorCode::NotEnoughReplicas
            } else if answer.call.version == ABORTABLE_IN {
                error::abortable_transaction(&why)?
            } else {
                error::transaction(&why, false)?
            };
            answer.refuse_staged(shared, &BatchRefusal::new(code, why.to_string()));
            PendingResponse::Ready(answer.finish(shared, &mut std::iter::empty()))
        }
    })
}

fn on_joined(
    context: &RequestContext,
    mut answer: ProduceResults,
    joined: Result<Outcomes, NotPart>,
) -> ResponseResult {
    let shared = &context.shared;
    match joined {
        Ok(outcomes) => answer.finish(shared, &mut outcomes.into_iter()),
        Err(NotPart(code)) => {
            // It may have been the first of its producer: those behind it are to be refused, too.
            context.has_refused.store(true, Ordering::Relaxed);
            let message = "the coordinator of the transaction does not take it";
            answer.refuse_staged(shared, &BatchRefusal::new(code, message));
            answer.finish(shared, &mut std::iter::empty())
        }
    }
}

/// Reads a request, checks its batches, and adds the valid ones to `appends`. Returns the transaction of a
/// request with transactional batches.
fn read(
    context: &RequestContext,
    call: Call,
    body: Decoder,
    frame_bytes: usize,
    appends: &mut Vec<Append>,
) -> Result<(ProduceResults, Option<Transaction>), DecodeError> {
    let shared = &*context.shared;
    let has_refused = context.has_refused.load(Ordering::Relaxed);
    let mut transaction = None;
    // All bodies pin the same frame, so only the first append is charged for it.
    let mut pinned_bytes = frame_bytes;
    let stage = |topic: &Result<Arc<Topic>, BatchRefusal>, head: &Head, index, records| {
        let admitted = match topic {
            _ if !(-1..=1).contains(&head.acks) => Err(BatchRefusal::new(
                ErrorCode::InvalidRequiredAcks,
                "acks is one of -1, 0 and 1",
            )),
            Ok(topic) => check(shared, call.version, topic, index, records).and_then(|admitted| {
                join(
                    context,
                    &mut transaction,
                    head.id.as_ref(),
                    &admitted,
                    (topic, index),
                )
                .map(|()| admitted)
            }),
            Err(refused) => Err(refused.clone()),
        };
        match admitted {
            Ok(admitted) => {
                let result = PartitionResult::staged(index, &admitted);
                let pinned_bytes = std::mem::take(&mut pinned_bytes);
                appends.push(Append {
                    pinned_bytes,
                    require: known_before(call.version, has_refused, &admitted)
                        .into_iter()
                        .collect(),
                    ..Append::batch(admitted.log, admitted.body)
                });
                result
            }
            Err(refused) => PartitionResult::failed(shared, call, index, refused),
        }
    };
    let answer = read_each(call, body, |key| find_topic(context, key), stage)?;
    Ok((answer, transaction))
}

/// Parts of a request before its topics.
pub(super) struct Head {
    /// Transactional id.
    id: Option<Str>,
    acks: i16,
}

/// Reads a request: looks up each topic, and makes the result of each partition from its batch.
pub(super) fn read_each<T>(
    call: Call,
    body: Decoder,
    mut find: impl FnMut(&TopicKey) -> T,
    mut take: impl FnMut(&T, &Head, i32, Option<Bytes>) -> PartitionResult,
) -> Result<ProduceResults, DecodeError> {
    let mut r = Reader::new(call, body);
    let head = Head {
        id: r.opt_string()?,
        acks: r.d.i16()?,
    };
    // The timeout concerns replicas only.
    let _timeout_ms = r.d.i32()?;
    let mut answer = ProduceResults {
        call,
        is_wanted: head.acks != 0,
        topics: SmallVec::new(),
        throttle_ms: 0,
        results: SmallVec::new(),
    };
    for _ in 0..r.count(TOPIC_BYTES_MIN)? {
        let key = r.topic(IDS_FROM)?;
        let topic = find(&key);
        let partitions = r.count(PARTITION_BYTES_MIN)?;
        for _ in 0..partitions {
            let index = r.d.i32()?;
            let records = r.opt_bytes()?;
            r.tags()?;
            answer.results.push(take(&topic, &head, index, records));
        }
        r.tags()?;
        answer.topics.push((key, partitions));
    }
    r.tags()?;
    Ok(answer)
}

/// Returns the condition for a batch that does not begin with sequence 0, and may follow none of its
/// producer: a batch of a transaction of the second version of the protocol, each of which begins so; and
/// one behind a batch that was refused because requests waited too long, as that may have been the first.
fn known_before(version: i16, has_refused: bool, admitted: &Admitted) -> Option<Precondition> {
    let header = &admitted.header;
    let is_checked = has_refused || version >= ADDS_FROM && header.is_transactional();
    (is_checked && header.base_sequence > 0).then_some(Precondition::HasBatchesOf {
        log: admitted.log,
        producer: ProducerId(header.producer_id),
        first: header.base_sequence,
    })
}

/// Adds a batch to the transaction of its request, if it is transactional.
fn join(
    context: &RequestContext,
    transaction: &mut Option<Transaction>,
    id: Option<&Str>,
    admitted: &Admitted,
    (topic, index): (&Topic, i32),
) -> Result<(), BatchRefusal> {
    let header = &admitted.header;
    if !header.is_transactional() {
        return Ok(());
    }
    let Some(id) = id else {
        let message = "a transactional batch needs the transactional id of its producer";
        return Err(BatchRefusal::new(
            ErrorCode::TransactionalIdAuthorizationFailed,
            message,
        ));
    };
    context
        .check_transaction(Action::Write, id)
        .map_err(|code| BatchRefusal::new(code, "no rule permits to use this transactional id"))?;
    let instance = Instance {
        producer: ProducerId(header.producer_id),
        epoch: header.producer_epoch,
    };
    let joined = transaction.get_or_insert_with(|| Transaction {
        id: id.clone(),
        instance,
        parts: Vec::new(),
    });
    if joined.instance != instance {
        let message = "the batches of a request are of one producer";
        return Err(BatchRefusal::new(ErrorCode::InvalidProducerIdMapping, message));
    }
    let place = (topic.id, u32::try_from(index).unwrap_or_default());
    joined.parts.push((admitted.log, place));
    Ok(())
}

fn find_topic(context: &RequestContext, key: &TopicKey) -> Result<Arc<Topic>, BatchRefusal> {
    let denied = |code| BatchRefusal::new(code, "no rule permits to write into this topic");
    let unknown = || {
        let message = if key.by_id {
            "no topic has this id"
        } else {
            "there is no such topic"
        };
        BatchRefusal::new(key.unknown(), message)
    };
    if !key.by_id {
        context.check_topic(Action::Write, &key.name).map_err(denied)?;
    }
    let topic = key.find(context.shared.broker.topics());
    let topic = topic
        .filter(|topic| context.shared.shows(topic))
        .ok_or_else(unknown)?;
    if key.by_id {
        context.check_topic(Action::Write, &topic.name).map_err(denied)?;
    }
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
    if cell_of(admitted.log).is_some() {
        let message = "another broker leads this partition";
        return Err(BatchRefusal::new(ErrorCode::NotLeaderOrFollower, message));
    }
    if version < ZSTD_FROM && admitted.arrived_as == Codec::Zstd {
        let message = "zstd is for produce requests of version 7 and up";
        return Err(BatchRefusal::new(ErrorCode::UnsupportedCompressionType, message));
    }
    Ok(admitted)
}
