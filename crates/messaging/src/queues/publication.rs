//! Messages that are published together, and the outcome of each.
//!
//! Messages with the same targets share a batch, and a batch with several targets is stored once. Every
//! target keeps the order of the messages.
//!
//! Some publications are one append ([`Unit`]): then a queue's refusal either affects this queue only, or
//! fails the whole publication.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};

use smallvec::SmallVec;
use stafett_journal::{Append, BatchFrame, Frame, Outcome, Refusal, Selection, StateWait, Target, Ticket};
use stafett_model::{Arrival, BatchBuilder, Codec, Durability, LogId, Message, with_append_time};
use stafett_store::NotStored;

use super::queue::Queue;

/// Size of a batch, in bytes, from which a new one is begun, if segments are large.
const BATCH_BYTES: usize = 128 << 10;
/// Bound on the logs of one stored batch.
const TARGETS_MAX: usize = 4096;

/// Targets of a message.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    pub queues: SmallVec<[Arc<Queue>; 1]>,
    /// Logs of stored topics.
    pub logs: SmallVec<[LogId; 1]>,
    /// True if one of these topics replaces the messages' timestamps by the time of arrival.
    pub append_time: bool,
}

/// Index of targets within a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteIndex(u32);

/// Messages that are published together.
#[derive(Debug, Default)]
pub struct Publication {
    routes: Vec<Targets>,
    messages: Vec<(Message, RouteIndex)>,
    unit: Unit,
}

/// Unit in which a publication is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Unit {
    /// Each batch separately.
    #[default]
    Batch,
    /// All messages that queues take, together; a queue's refusal affects this queue only.
    Taken,
    /// All messages together, or none if one is refused.
    Whole,
}

/// Verdict of a message's target queues.
#[derive(Debug)]
pub(super) enum Verdict {
    Taken,
    Refused(Refused),
    /// The message is refused; these are stored in its place.
    Parted(Vec<(Message, Targets)>),
}

/// Outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Stored in all targets, with the durability of the strictest.
    Stored,
    Refused(Refused),
    /// The journal stopped before the outcome was known.
    Unknown,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the queue is as long as it may be")]
    QueueFull,
    #[error(transparent)]
    Journal(Refusal),
    #[error("the message does not fit into a batch")]
    TooLarge,
    #[error("the queue is gone")]
    Gone,
}

/// Failure of a publication that is stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTogether {
    /// The message at index `at` was refused, and so all of them were.
    Misfit {
        at: usize,
        why: Refused,
    },
    /// The queue in which the messages were to be settled is deleted, with its messages.
    SourceGone,
    NotStored(NotStored),
}

impl NotTogether {
    /// Returns the failure as one of the journal, which is closed for messages that have no place any more.
    pub(crate) fn not_stored(self) -> NotStored {
        match self {
            Self::NotStored(why) => why,
            Self::Misfit { .. } | Self::SourceGone => NotStored::Refused(Refusal::Closed),
        }
    }
}

/// Future of the outcomes of a publication's messages, in order.
#[derive(Debug)]
pub struct AppendTicket {
    ticket: Option<Ticket>,
    /// Indexes of the messages of each append.
    members: Vec<Vec<u32>>,
    results: Vec<Appended>,
    limited: Vec<Counted>,
    /// Reason why some of it was not stored.
    failed: Option<NotTogether>,
}

/// A message counted by a queue as staged.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) queue: Arc<Queue>,
    pub(super) message: u32,
    pub(super) bytes: u64,
}

impl Targets {
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.logs.is_empty()
    }

    /// Returns true if both have the same targets, in the same order.
    fn are(&self, other: &Self) -> bool {
        let pairs = || self.queues.iter().zip(&other.queues);
        self.logs == other.logs
            && self.append_time == other.append_time
            && self.queues.len() == other.queues.len()
            && pairs().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Publication {
    /// Creates an empty publication with room for `messages` messages.
    pub fn with_capacity(messages: usize) -> Self {
        Self {
            messages: Vec::with_capacity(messages),
            ..Self::default()
        }
    }

    /// Creates a publication that is stored as one append, without messages refused by queues.
    pub(crate) fn together() -> Self {
        Self {
            unit: Unit::Taken,
            ..Self::default()
        }
    }

    /// Creates a publication that is stored as one append, or not at all if a queue refuses a message.
    pub(crate) fn whole() -> Self {
        Self {
            unit: Unit::Whole,
            ..Self::default()
        }
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Adds targets for messages. The targets of consecutive messages are shared if they are the same.
    pub fn route(&mut self, targets: Targets) -> RouteIndex {
        if self.routes.last().is_none_or(|last| !last.are(&targets)) {
            self.routes.push(targets);
        }
        RouteIndex(u32::try_from(self.routes.len() - 1).unwrap_or(u32::MAX))
    }

    pub fn push(&mut self, message: Message, route: RouteIndex) {
        self.messages.push((message, route));
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn routes(&self) -> &[Targets] {
        &self.routes
    }

    /// Converts the publication to appends. `judge` gives the verdict of each message's queues; `frames` join
    /// the append of a joint publication.
    pub(super) fn into_appends(
        mut self,
        arrived_ms: i64,
        arrivals: &AtomicU64,
        batch_bytes: usize,
        mut judge: impl FnMut(&Message, &Targets) -> Verdict,
        frames: SmallVec<[Frame; 1]>,
    ) -> (Vec<Append>, AppendTicket) {
        let mut results = vec![Appended::Stored; self.messages.len()];
        let mut groups = Groups {
            left: self.messages.len(),
            batch_bytes: batch_bytes.min(BATCH_BYTES),
            ..Groups::default()
        };
        let mut at = 0;
        while let Some((message, route)) = self.messages.get(at) {
            let targets = usize::try_from(route.0).ok().and_then(|at| self.routes.get(at));
            let verdict = targets.map_or(Verdict::Taken, |targets| judge(message, targets));
            let why = match (verdict, targets) {
                (Verdict::Taken, Some(targets)) if !targets.is_empty() => {
                    let index = u32::try_from(at).unwrap_or(u32::MAX);
                    let added = groups.add(index, message, *route, targets, (arrived_ms, arrivals));
                    added.err()
                }
                (Verdict::Taken, _) => None,
                (Verdict::Refused(why), _) => Some(why),
                (Verdict::Parted(parts), _) => {
                    for (message, targets) in parts {
                        let route = self.route(targets);
                        self.push(message, route);
                        results.push(Appended::Stored);
                    }
                    Some(Refused::QueueFull)
                }
            };
            if let Some(why) = why {
                let failed = match (self.unit, why) {
                    (Unit::Whole, why) => Some(NotTogether::Misfit { at, why }),
                    // The refusal is not by a queue.
                    (Unit::Taken, Refused::Journal(refusal)) => {
                        Some(NotTogether::NotStored(NotStored::Refused(refusal)))
                    }
                    (Unit::Taken | Unit::Batch, _) => None,
                };
                if failed.is_some() {
                    results.fill(Appended::Refused(why));
                    return (Vec::new(), AppendTicket::of(Vec::new(), results, failed));
                }
                if let Some(result) = results.get_mut(at) {
                    *result = Appended::Refused(why);
                }
            }
            at += 1;
        }
        let (appends, members) = groups.finish(self.unit != Unit::Batch, arrived_ms, frames);
        (appends, AppendTicket::of(members, results, None))
    }

    /// Fails the publication, as its source is deleted: nothing is stored.
    pub(super) fn into_nothing(self) -> AppendTicket {
        let results = vec![Appended::Refused(Refused::Gone); self.messages.len()];
        AppendTicket::of(Vec::new(), results, Some(NotTogether::SourceGone))
    }
}

/// Messages of one batch.
#[derive(Debug)]
struct Group {
    key: Key,
    logs: SmallVec<[LogId; 1]>,
    batch: BatchBuilder,
    members: Vec<u32>,
}

/// Common properties of a batch's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    route: RouteIndex,
    /// Priority; 0 if no target has priorities.
    priority: u8,
    /// True if the batch gets the durability of its logs: if the message is persistent, if no target queue is
    /// durable, or if a target keeps transient messages or is a topic.
    persistent: bool,
    append_time: bool,
}

/// The batches of a publication. A message joins the last batch with its key only if no target got another
/// batch since.
#[derive(Debug, Default)]
struct Groups {
    list: Vec<Group>,
    /// Maps are filled once there are several groups.
    last_of_key: HashMap<Key, usize>,
    last_of_log: HashMap<LogId, usize>,
    /// Approximate number of messages to come.
    left: usize,
    /// Size of a batch, in bytes, from which a new one is begun.
    batch_bytes: usize,
}

impl Groups {
    fn add(
        &mut self,
        index: u32,
        message: &Message,
        route: RouteIndex,
        targets: &Targets,
        (ms, arrivals): (i64, &AtomicU64),
    ) -> Result<(), Refused> {
        let any = |what: fn(&Queue) -> bool| targets.queues.iter().any(|queue| what(queue));
        let key = Key {
            route,
            priority: if any(|queue| queue.settings.has_priorities()) {
                message.priority
            } else {
                0
            },
            persistent: message.persistent
                || !targets.logs.is_empty()
                || !any(|queue| queue.durable)
                || any(|queue| queue.settings.keeps_transient),
            append_time: targets.append_time,
        };
        let at = match self.list.last() {
            Some(last) if last.key == key => self.list.len() - 1,
            _ => self.group(key, message, targets)?,
        };
        let group = self.list.get_mut(at).ok_or(Refused::TooLarge)?;
        let bytes = message.bytes();
        self.left = self.left.saturating_sub(1);
        let group = if group.batch.bytes() + bytes > self.batch_bytes && !group.batch.is_empty() {
            let logs = group.logs.clone();
            let at = self.begin(key, logs, bytes);
            self.list.get_mut(at).ok_or(Refused::TooLarge)?
        } else {
            group
        };
        // If lanes take turns, the arrival number gives the order across batches.
        let number = if any(|queue| queue.settings.two_priorities) {
            arrivals.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        };
        let written = message.write(Arrival { ms, number }, &mut group.batch);
        written.map_err(|_| Refused::TooLarge)?;
        group.members.push(index);
        Ok(())
    }

    /// Returns the group that a message may join, or a new one.
    fn group(&mut self, key: Key, message: &Message, targets: &Targets) -> Result<usize, Refused> {
        if let Some(&at) = self.last_of_key.get(&key)
            && let Some(group) = self.list.get(at)
            && group
                .logs
                .iter()
                .all(|log| self.last_of_log.get(log) == Some(&at))
        {
            return Ok(at);
        }
        // Deleted queues are skipped.
        let queues = targets.queues.iter().filter(|queue| !queue.is_deleted());
        let logs = queues.map(|queue| queue.log_for(message.priority));
        let mut logs = logs.collect::<Result<SmallVec<[LogId; 1]>, Refused>>()?;
        logs.extend_from_slice(&targets.logs);
        if logs.len() > 1 {
            // A log gets a message once, even if several targets lead to it.
            logs.sort_unstable();
            logs.dedup();
        }
        Ok(self.begin(key, logs, message.bytes()))
    }

    /// Begins a batch. The first one has room for all remaining messages, if they are as large as the first.
    fn begin(&mut self, key: Key, logs: SmallVec<[LogId; 1]>, message_bytes: usize) -> usize {
        let at = self.list.len();
        let expected = if at == 0 { self.left + 1 } else { 4 };
        let room = expected.saturating_mul(message_bytes);
        self.list.push(Group {
            key,
            logs,
            batch: BatchBuilder::with_capacity(Codec::None, room.min(self.batch_bytes.max(message_bytes))),
            members: Vec::with_capacity(expected.min(1024)),
        });
        if at > 0 {
            // A single group needs no maps.
            let from = if at == 1 { 0 } else { at };
            for (number, group) in self.list.iter().enumerate().skip(from) {
                self.last_of_key.insert(group.key, number);
                for log in &group.logs {
                    self.last_of_log.insert(*log, number);
                }
            }
        }
        at
    }

    fn finish(
        self,
        together: bool,
        arrived_ms: i64,
        extra: SmallVec<[Frame; 1]>,
    ) -> (Vec<Append>, Vec<Vec<u32>>) {
        let mut appends = Vec::with_capacity(self.list.len());
        let mut members = Vec::with_capacity(self.list.len());
        let mut all = Append {
            frames: extra,
            // Durability if no batch is added.
            state: StateWait::Written,
            ..Append::default()
        };
        let mut everyone = Vec::new();
        for group in self.list {
            let Ok(mut body) = group.batch.finish() else {
                continue;
            };
            if group.key.append_time
                && let Ok(split) = with_append_time(&body, arrived_ms)
            {
                body = split.join();
            }
            if group.logs.is_empty() {
                continue;
            }
            if together {
                all.pinned_bytes += body.len();
                all.frames.extend(frames(&body, &group.logs));
                everyone.extend(group.members);
                continue;
            }
            appends.push(Append {
                // An acknowledged message can be consumed: so it waits for the write, but never for a sync.
                level: (!group.key.persistent).then_some(Durability::Os),
                pinned_bytes: body.len(),
                frames: frames(&body, &group.logs).collect(),
                ..Append::default()
            });
            members.push(group.members);
        }
        if !all.frames.is_empty() {
            appends.push(all);
            members.push(everyone);
        }
        (appends, members)
    }
}

/// Returns the frames of a batch: several if it has very many logs.
fn frames(body: &bytes::Bytes, logs: &[LogId]) -> impl Iterator<Item = Frame> {
    logs.chunks(TARGETS_MAX).map(move |logs| {
        let targets = logs.iter().map(|log| Target {
            log: *log,
            records: Selection::All,
        });
        Frame::Batch(BatchFrame {
            body: body.clone(),
            targets: targets.collect(),
        })
    })
}

impl AppendTicket {
    fn of(members: Vec<Vec<u32>>, results: Vec<Appended>, failed: Option<NotTogether>) -> Self {
        Self {
            ticket: None,
            members,
            results,
            limited: Vec::new(),
            failed,
        }
    }

    pub(super) fn wait_for(mut self, ticket: Option<Ticket>, limited: Vec<Counted>) -> Self {
        self.ticket = ticket;
        self.limited = limited;
        self
    }

    /// Waits for a publication that is stored together. Returns the outcomes of its messages.
    pub(crate) async fn together(mut self) -> Result<Vec<Appended>, NotTogether> {
        std::future::poll_fn(|context| self.poll_outcomes(context)).await;
        match self.failed {
            None => Ok(std::mem::take(&mut self.results)),
            Some(failed) => Err(failed),
        }
    }

    fn poll_outcomes(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self {
            ticket,
            members,
            results,
            limited,
            failed,
        } = self;
        if let Some(waited_for) = ticket {
            let outcomes = ready!(Pin::new(waited_for).poll(context));
            *ticket = None;
            for (number, outcome) in outcomes.iter().enumerate() {
                let (result, why) = match outcome {
                    Outcome::Committed(_) => continue,
                    Outcome::Refused(refusal) => (
                        Appended::Refused(Refused::Journal(*refusal)),
                        NotStored::Refused(*refusal),
                    ),
                    Outcome::Unknown => (Appended::Unknown, NotStored::Unknown),
                };
                *failed = Some(NotTogether::NotStored(why));
                for member in members.get(number).into_iter().flatten() {
                    let slot = usize::try_from(*member).ok();
                    if let Some(slot) = slot.and_then(|at| results.get_mut(at)) {
                        *slot = result;
                    }
                }
            }
        }
        for counted in limited.drain(..) {
            let at = usize::try_from(counted.message).unwrap_or(usize::MAX);
            if results.get(at) != Some(&Appended::Stored) {
                counted.queue.release_room(counted.bytes);
            }
        }
        Poll::Ready(())
    }
}

impl Future for AppendTicket {
    type Output = Vec<Appended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.poll_outcomes(context));
        Poll::Ready(std::mem::take(&mut self.results))
    }
}

impl Drop for AppendTicket {
    /// Corrects the counts of a dropped ticket: refusals are known as soon as the append is staged.
    fn drop(&mut self) {
        if !self.limited.is_empty() {
            let _ = self.poll_outcomes(&mut Context::from_waker(Waker::noop()));
        }
    }
}
