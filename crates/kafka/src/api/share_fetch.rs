//! `ShareFetch`: a member of a share group settles records and takes others (KIP-932).
//!
//! As `Fetch`, it runs when its turn comes, and reserves memory before it reads.

mod response;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_access::Action;
use stafett_kafka_wire::messages::ShareFetchRequest;
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_net::Permit;
use stafett_shares::Place;
use stafett_store::{NotStored, wall_ms};
use stafett_topics::{LogSlice, ReadError, ReadFrom, ReadRequest, SPREAD, Topic, TopicId};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::response::missing_partition;
use super::fetch::reserve;
use crate::call::{Call, Close};
use crate::configs::ShareSettings;
use crate::context::RequestContext;
use crate::error;
use crate::operation::{OnDone, Operation, Step};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::share_operation::ShareOperation;
use crate::share_partition::{Failure, SharePartition};
use crate::share_request::{
    PartitionAcknowledgements, acknowledge, member, settings_of, settled_places, topic_id,
};
use crate::share_sessions::{EPOCH_CLOSE, EPOCH_OPEN, OpenedSession, PartitionId, ShareMember};

/// Mode of a request that takes whole batches.
const BATCH_OPTIMIZED: i8 = 0;
/// Mode of a request that takes no more than the records that it asks for; others take whole batches.
const RECORD_LIMIT: i8 = 1;
/// Most bytes to read of one partition, unless its first batch is larger, and of all.
const PARTITION_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MAX: usize = 4 << 20;

pub(super) fn share_fetch(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ShareFetchRequest = call.read(body)?;
    Ok(PendingResponse::awaiting(
        Operation::Turn(Box::new(ShareFetch {
            call,
            request,
            member: None,
            acknowledged: BTreeMap::new(),
            partitions: Vec::new(),
            reading: Vec::new(),
            memory: None,
            deadline: None,
            waiter: Arc::default(),
        })),
        Pipelining::Free,
    ))
}

/// A request in progress:
///
/// ```text
/// acknowledgements ──▶ stored ──▶ places in new topics ──▶ read ──▶ taken ──▶ response
///                                                          ▲          │
///                                                          └── wait ◀─┘
/// ```
struct ShareFetch {
    call: Call,
    request: ShareFetchRequest,
    /// `None` until its turn has come.
    member: Option<(ShareMember, ShareSettings)>,
    /// Outcomes of acknowledgements.
    acknowledged: BTreeMap<PartitionId, Option<Failure>>,
    /// Partitions of the session, in the order of this fetch.
    partitions: Vec<SharePartition>,
    /// Indexes of the partitions that are being read.
    reading: Vec<(usize, ReadFrom)>,
    /// Memory of the records that are read.
    memory: Option<Permit>,
    /// End of the client's wait time; `None` if it does not wait.
    deadline: Option<Instant>,
    waiter: Arc<Notify>,
}

type Refused = (ErrorCode, &'static str);

impl ShareFetch {
    fn begin(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let (member, closed) = match self.open(context) {
            Ok(opened) => opened,
            Err((code, why)) => return self.refuse(context, code, why),
        };
        let settings = settings_of(&context.shared, &member.group);
        let wait = Duration::from_millis(u64::try_from(self.request.max_wait_ms).unwrap_or(0));
        self.deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
        let all = self.take_acknowledgements();
        let is_renewal = self.request.is_renew_ack;
        let settled = acknowledge(&context.shared, &member, &settings, is_renewal, all);
        let places = settled_places(&settled);
        let settled = settled.into_iter().map(|one| (one.partition, one.error));
        self.acknowledged = settled.collect();
        if let Some(session) = closed {
            context.shared.end_share_session(&session);
        }
        self.member = Some((member, settings));
        if self.acknowledged.is_empty() {
            return self.find_places(context);
        }
        Ok(Step::Await(Operation::Share(ShareOperation::AwaitStored(
            places, self,
        ))))
    }

    /// Checks the request, and opens or continues its session. Returns one that it closes, too.
    fn open(&mut self, context: &RequestContext) -> Result<(ShareMember, Option<OpenedSession>), Refused> {
        let request = &self.request;
        let invalid = |why| (ErrorCode::InvalidRequest, why);
        let member = member(request.group_id.as_ref(), request.member_id.as_ref()).map_err(invalid)?;
        let asks = [
            request.max_bytes,
            request.min_bytes,
            request.max_records,
            request.max_wait_ms,
        ];
        if request.is_renew_ack && asks.iter().any(|ask| *ask != 0) {
            return Err(invalid("A request that renews locks must not ask for records."));
        }
        if ![BATCH_OPTIMIZED, RECORD_LIMIT].contains(&request.share_acquire_mode) {
            return Err(invalid("There is no such mode of acquiring records."));
        }
        let groups = context.shared.broker.groups();
        if !groups.is_share_group(&member.group) {
            return Err((ErrorCode::GroupIdNotFound, "There is no such share group."));
        }
        let epoch = request.share_session_epoch;
        let added: Vec<PartitionId> = request
            .topics
            .iter()
            .flat_map(|topic| {
                let id = topic_id(topic.topic_id);
                topic.partitions.iter().map(move |one| (id, one.partition_index))
            })
            .collect();
        let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
            let id = topic_id(topic.topic_id);
            topic.partitions.iter().map(move |index| (id, *index))
        });
        let forgotten: Vec<PartitionId> = forgotten.collect();
        let sessions = &context.shared.share_sessions;
        let mut closed = None;
        let mut opened = context.opened_sessions.lock();
        let partitions = match epoch {
            EPOCH_OPEN if self.acknowledges() => {
                return Err(invalid(
                    "The first request of a share session acknowledges nothing.",
                ));
            }
            EPOCH_OPEN => sessions.open(&member, &added, &mut opened),
            EPOCH_CLOSE => sessions.find(&member, &opened).map(|session| {
                closed = Some(session);
                Vec::new()
            }),
            _ => sessions.go_on(&member, epoch, (&added, &forgotten), &opened),
        };
        drop(opened);
        let partitions =
            partitions.map_err(|code| (code, "The share session does not go on with this epoch."))?;
        if !request.is_renew_ack {
            self.partitions = partitions.into_iter().map(SharePartition::new).collect();
        }
        Ok((member, closed))
    }

    fn acknowledges(&self) -> bool {
        let mut partitions = self.request.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.any(|partition| !partition.acknowledgement_batches.is_empty())
    }

    fn take_acknowledgements(&mut self) -> Vec<PartitionAcknowledgements> {
        let topics = std::mem::take(&mut self.request.topics).into_iter();
        let all = topics.flat_map(|topic| {
            let id = topic_id(topic.topic_id);
            topic.partitions.into_iter().map(move |partition| (id, partition))
        });
        let with_some = all.filter(|(_, partition)| !partition.acknowledgement_batches.is_empty());
        with_some
            .map(|(id, partition)| PartitionAcknowledgements {
                partition: (id, partition.partition_index),
                batches: partition
                    .acknowledgement_batches
                    .into_iter()
                    .map(Into::into)
                    .collect(),
            })
            .collect()
    }

    /// Finds the places of the group in the topics of the session, and has missing ones made.
    fn find_places(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        let Some((member, settings)) = &self.member else {
            return Err(Close::OutcomeUnknown);
        };
        let broker = &context.shared.broker;
        let mut missing: Vec<Arc<Topic>> = Vec::new();
        let mut last: Option<(TopicId, Option<Arc<Topic>>)> = None;
        let mut place = None;
        for partition in &mut self.partitions {
            let id = partition.id.0;
            if last.as_ref().is_none_or(|(last, _)| *last != id) {
                let topic = broker.topics().with_id(id);
                place = broker.shares().get(&member.group, id);
                missing.extend(topic.clone().filter(|topic| place.is_none() && topic.is_whole()));
                last = Some((id, topic));
            }
            let topic = last.as_ref().and_then(|(_, topic)| topic.as_deref());
            let is_spread = topic.is_some_and(|topic| !topic.is_whole());
            let refused = is_spread.then(|| (ErrorCode::PolicyViolation, SPREAD.to_owned()));
            partition.error = missing_partition(topic, partition.id.1).or(refused);
            partition.place = place.clone().filter(|_| partition.error.is_none());
        }
        if missing.is_empty() {
            return self.next_round(context);
        }
        Ok(Step::Await(Operation::Share(ShareOperation::MakePlaces {
            group: Arc::clone(&member.group),
            topics: missing,
            start: settings.reset.start(wall_ms()),
            then: self,
        })))
    }

    /// Leaves topics out that the caller may no longer read: a session names its topics once.
    fn leave_out_refused(&mut self, context: &RequestContext) {
        if context.caller().is_unrestricted() {
            return;
        }
        for partition in self.partitions.iter_mut().filter(|one| one.place.is_some()) {
            let topic = context.shared.broker.topics().with_id(partition.id.0);
            let checked = topic.map_or(Ok(()), |topic| context.check_topic(Action::Read, &topic.name));
            if let Err(code) = checked {
                partition.place = None;
                partition.error = Some((code, "No rule permits to read this topic.".to_owned()));
            }
        }
    }

    /// Reads partitions that have records for the member, or waits for some.
    fn next_round(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        self.leave_out_refused(context);
        let Some((_, settings)) = &self.member else {
            return Err(Close::OutcomeUnknown);
        };
        if self.request.max_records <= 0 || self.request.max_bytes <= 0 {
            return self.respond(context);
        }
        // Before the first look, so that nothing is missed between it and the wait.
        let places = self.partitions.iter().filter_map(|one| one.place.as_ref());
        let mut last: Option<&Arc<Place>> = None;
        for place in places {
            if last.replace(place).is_none_or(|last| !Arc::ptr_eq(last, place)) {
                place.wake_later(&self.waiter);
            }
        }
        let asked = usize::try_from(self.request.max_bytes).unwrap_or(0);
        let bytes_max = asked.min(PARTITION_BYTES_MAX);
        self.reading = Vec::new();
        for (at, partition) in self.partitions.iter().enumerate() {
            let Some(place) = &partition.place else { continue };
            let (topic, index) = partition.id;
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let log = context.shared.broker.topics().with_id(topic);
            let log = log.and_then(|topic| topic.log(index));
            let next = place.next_offset(index, &settings.rules);
            let next = next.filter(|offset| partition.ended_at != Some(*offset));
            if let Some((log, offset)) = log.zip(next) {
                let from = ReadFrom {
                    log,
                    offset,
                    bytes_max,
                    visibility: settings.rules.visibility,
                };
                self.reading.push((at, from));
            }
        }
        if self.reading.is_empty() {
            return self.wait(context);
        }
        let (memory, bytes_max) = reserve(context, asked.min(READ_BYTES_MAX));
        self.memory = memory;
        let request = ReadRequest {
            logs: self.reading.iter().map(|(_, from)| *from).collect(),
            bytes_max,
            first_batch_whole: true,
        };
        Ok(Step::Await(Operation::Read(request, self)))
    }

    /// Waits for records, if there is time.
    fn wait(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        self.memory = None;
        self.partitions.iter_mut().for_each(|one| one.ended_at = None);
        let has_error = self.partitions.iter().any(|one| one.error.is_some());
        let may_wait =
            |until: &Instant| !has_error && Instant::now() < *until && !context.drain.is_cancelled();
        match self.deadline.filter(may_wait) {
            Some(until) if !self.partitions.is_empty() => {
                Ok(Step::Await(Operation::Share(ShareOperation::AwaitMessages {
                    waiter: Arc::clone(&self.waiter),
                    until,
                    then: self,
                })))
            }
            Some(_) | None => self.respond(context),
        }
    }
}

/// The turn of the request has come, or there may be records.
impl OnDone<()> for ShareFetch {
    fn on_done(self: Box<Self>, context: &RequestContext, (): ()) -> Result<Step, Close> {
        if self.member.is_none() {
            self.begin(context)
        } else {
            self.next_round(context)
        }
    }
}

/// The acknowledgements are stored.
impl OnDone<Result<(), NotStored>> for ShareFetch {
    fn on_done(
        self: Box<Self>,
        context: &RequestContext,
        stored: Result<(), NotStored>,
    ) -> Result<Step, Close> {
        match stored {
            Ok(()) => self.find_places(context),
            Err(why) => {
                let (code, message) = error::not_stored(&why)?;
                self.refuse(context, code, &message)
            }
        }
    }
}

/// The places in new topics are made.
impl OnDone<Vec<Result<Arc<Place>, NotStored>>> for ShareFetch {
    fn on_done(
        mut self: Box<Self>,
        context: &RequestContext,
        made: Vec<Result<Arc<Place>, NotStored>>,
    ) -> Result<Step, Close> {
        let made: Result<Vec<_>, NotStored> = made.into_iter().collect();
        let made = match made {
            Ok(made) => made.into_iter().map(|place| (place.topic, place)),
            Err(why) => {
                let (code, message) = error::not_stored(&why)?;
                return self.refuse(context, code, &message);
            }
        };
        let made: BTreeMap<TopicId, Arc<Place>> = made.collect();
        let is_fine = |one: &&mut SharePartition| one.error.is_none();
        for partition in self.partitions.iter_mut().filter(is_fine) {
            if let Some(place) = made.get(&partition.id.0) {
                partition.place = Some(Arc::clone(place));
            }
        }
        self.next_round(context)
    }
}

/// Partitions are read.
impl OnDone<Vec<Result<LogSlice, ReadError>>> for ShareFetch {
    fn on_done(
        mut self: Box<Self>,
        context: &RequestContext,
        read: Vec<Result<LogSlice, ReadError>>,
    ) -> Result<Step, Close> {
        let slices = read.iter().flatten();
        let bytes: usize = slices.map(|slice| slice.bytes).sum();
        let bytes_min = usize::try_from(self.request.min_bytes).unwrap_or(0);
        let has_time = self.deadline.is_some_and(|until| Instant::now() < until);
        if has_time && (1..bytes_min).contains(&bytes) {
            // Nothing is taken before there is enough of it.
            return self.wait(context);
        }
        if read.is_empty() || self.take(read) {
            let bytes = self.partitions.iter().map(|one| one.acquired.bytes()).sum();
            if let Some(memory) = &mut self.memory {
                memory.shrink_to(bytes);
            }
            return self.respond(context);
        }
        // Others were faster, or a gap was skipped.
        if has_time {
            return self.next_round(context);
        }
        self.respond(context)
    }
}
