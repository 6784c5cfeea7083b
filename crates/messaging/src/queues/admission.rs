//! Admission of published messages: queues with limits are asked first, then appends are made.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Append, Frame};
use stafett_model::{Message, Namespace};
use stafett_queue::Overflow;
use stafett_store::Reservation;

use super::publication::{
    AppendOutcome, AppendTicket, AtomicPublishError, Atomicity, Publication, Refused, ReservedRoom,
    RouteIndex, Targets,
};
use super::queue::Queue;
use super::registry::Queues;
use stafett_delivery::OpenMove;

/// Check of a publication's messages against the limits of their queues.
struct AdmissionCheck<'a> {
    queues: &'a Queues,
    atomicity: Atomicity,
    /// True for messages that are new to their namespace, if one is bounded.
    adds: bool,
    /// Room in the namespaces that were asked; `None` in one without bounds.
    rooms: SmallVec<[(Namespace, Option<Reservation>); 1]>,
    /// True if a deleted queue refuses messages; else it is no target.
    needs_queues: bool,
    /// Number of admitted messages, once per queue.
    published: u64,
    /// Admitted messages and their bytes, by runs of the same route.
    runs: SmallVec<[Run; 2]>,
    reserved: Vec<ReservedRoom>,
    /// Refused messages to be dead-lettered, with the queues that refused them, in an append of their own.
    refused: Vec<(Arc<Queue>, Message)>,
}

/// Admitted messages in a row with the same route.
struct Run {
    route: RouteIndex,
    messages: u64,
    bytes: u64,
}

/// Answer of a message's target queues.
enum Admission {
    Admitted,
    Refused(Refused),
    /// The message is refused; these are stored in its place.
    Parted(Vec<(Message, Targets)>),
}

impl Queues {
    /// Appends messages; resolves to the outcome of each. Locks and allocations are per batch, not per
    /// message.
    pub fn append(self: &Arc<Self>, publication: Publication) -> AppendTicket {
        self.append_with(publication, SmallVec::new())
    }

    /// Appends messages like [`Self::append`]; `frames` join the append of a joint publication.
    pub(crate) fn append_with(
        self: &Arc<Self>,
        publication: Publication,
        frames: SmallVec<[Frame; 1]>,
    ) -> AppendTicket {
        self.stage(publication, frames, None, &[])
    }

    /// Counts the records of an append for their topics.
    pub(crate) fn count_traffic(&self, append: &Append) {
        self.topics.traffic().count_appends(std::slice::from_ref(append));
    }

    /// Appends messages, together with the settlement of others in queues that are not deleted, and waits for
    /// both. `source`: the queue that they leave.
    pub(crate) fn append_settling(
        self: &Arc<Self>,
        source: Option<&Queue>,
        publication: Publication,
        settled: &[OpenMove],
    ) -> AppendTicket {
        self.stage(publication, SmallVec::new(), source, settled)
    }

    /// Appends messages, together with the frame that settles them in their source queue.
    pub(crate) fn append_from(
        self: &Arc<Self>,
        source: &Queue,
        publication: Publication,
        settlement: Option<Frame>,
    ) -> AppendTicket {
        self.stage(publication, settlement.into_iter().collect(), Some(source), &[])
    }

    fn stage(
        self: &Arc<Self>,
        mut publication: Publication,
        mut frames: SmallVec<[Frame; 1]>,
        source: Option<&Queue>,
        settled: &[OpenMove],
    ) -> AppendTicket {
        let mut outcomes = vec![AppendOutcome::Stored; publication.len()];
        let mut check = AdmissionCheck {
            queues: self,
            atomicity: publication.atomicity,
            // Dead letters and delayed messages have been there, and are not lost to a bound.
            adds: self.bounds.is_used() && source.is_none() && publication.atomicity != Atomicity::Taken,
            rooms: SmallVec::new(),
            needs_queues: source.is_some() || publication.needs_queues,
            published: 0,
            runs: SmallVec::new(),
            reserved: Vec::new(),
            refused: Vec::new(),
        };
        let no_removal = self.context.lock_out_removals();
        let others = frames.len();
        frames.extend(settled.iter().filter_map(|open| open.settlement(&self.context)));
        let settles = frames.len() > others;
        let appends = if source.is_some_and(Queue::is_deleted) {
            Err(AtomicPublishError::SourceGone)
        } else {
            let admitted = check.admit(&mut publication, &mut outcomes);
            let arrival = (self.context.clock.wall_ms(), &self.arrivals);
            admitted.and_then(|()| publication.to_appends(&mut outcomes, arrival, self.batch_bytes, frames))
        };
        let (appends, members, failed) = match appends {
            Ok((mut appends, members)) => {
                for append in appends.iter_mut().filter(|_| settles) {
                    (append.state, append.waits_for_state) = (self.durability.into(), true);
                }
                (appends, members, None)
            }
            Err(failed) => {
                outcomes.fill(AppendOutcome::Refused(failed.refused()));
                (Vec::new(), Vec::new(), Some(failed))
            }
        };
        let ticket = (!appends.is_empty()).then(|| self.journal.append(appends));
        drop(no_removal);
        if let Some(ticket) = &ticket {
            let rooms = check.rooms.drain(..).filter_map(|(_, room)| room);
            rooms.for_each(|room| room.stage(ticket.glance()));
        }
        if check.atomicity == Atomicity::Batch || ticket.is_some() {
            self.metrics.published.inc_by(check.published);
            check.count(&publication);
        }
        let reserved = check.reserved;
        if !check.refused.is_empty() {
            self.dead_letter_refused(check.refused);
        }
        AppendTicket {
            ticket,
            members,
            outcomes,
            reserved,
            failed,
            repeated: false,
            places: None,
        }
    }
}

impl AdmissionCheck<'_> {
    /// Counts the admitted messages for their queues and topics.
    fn count(&self, publication: &Publication) {
        for run in &self.runs {
            let Some(targets) = publication.targets(run.route) else {
                continue;
            };
            for queue in &targets.queues {
                queue.count_published(&self.queues.context, run.messages, run.bytes);
            }
            if !targets.is_waiting {
                for log in &targets.logs {
                    let traffic = self.queues.topics.traffic();
                    traffic.count_in(*log, run.messages, run.bytes);
                }
            }
        }
    }

    /// Asks the queues of each message, and reserves room. `outcomes` gets the refusals; messages that are
    /// stored in place of refused ones are added to both.
    fn admit(
        &mut self,
        publication: &mut Publication,
        outcomes: &mut Vec<AppendOutcome>,
    ) -> Result<(), AtomicPublishError> {
        // A publication that is stored needs no room again, even if its queues are full by now.
        if publication
            .request()
            .is_some_and(|id| self.queues.journal.knows(id))
        {
            return Ok(());
        }
        let mut at = 0;
        while at < outcomes.len() {
            let admission = publication
                .get(at)
                .map(|(message, route, targets)| self.ask(at, route, message, targets));
            let why = match admission {
                Some(Admission::Admitted) | None => None,
                Some(Admission::Refused(why)) => Some(why),
                Some(Admission::Parted(parts)) => {
                    for (message, targets) in parts {
                        let route = publication.route(targets);
                        publication.push(message, route);
                        outcomes.push(AppendOutcome::Stored);
                    }
                    Some(Refused::QueueFull)
                }
            };
            if let (Some(why), Some(outcome)) = (why, outcomes.get_mut(at)) {
                self.atomicity.check(at, why)?;
                *outcome = AppendOutcome::Refused(why);
            }
            at += 1;
        }
        Ok(())
    }

    /// Asks the queues of one message.
    fn ask(&mut self, at: usize, route: RouteIndex, message: &Message, targets: &Targets) -> Admission {
        if self.needs_queues && targets.queues.iter().any(|queue| queue.is_deleted()) {
            return Admission::Refused(Refused::Gone);
        }
        let context = &self.queues.context;
        let has_room = |queue: &Arc<Queue>| queue.has_room(context, message);
        if let Some(full) = targets.queues.iter().find(|queue| !has_room(queue)) {
            return self.refuse(full, message, targets);
        }
        if self.adds
            && let Some(full) = targets
                .queues
                .iter()
                .find(|queue| !self.has_room_in(queue, message))
        {
            self.queues.metrics.refused.inc();
            full.count_refused(context);
            return Admission::Refused(Refused::QueueFull);
        }
        self.published += targets.queues.len() as u64;
        let bytes = message.value.len() as u64;
        match self.runs.last_mut() {
            Some(run) if run.route == route => {
                run.messages += 1;
                run.bytes += bytes;
            }
            _ => self.runs.push(Run {
                route,
                messages: 1,
                bytes,
            }),
        }
        for queue in &targets.queues {
            if queue.reserve_room(context, message) {
                self.reserved.push(ReservedRoom {
                    queue: Arc::clone(queue),
                    message: u32::try_from(at).unwrap_or(u32::MAX),
                    bytes: message.value.len() as u64,
                });
            }
        }
        Admission::Admitted
    }

    /// Reserves room in the namespace of a queue. False if there is none.
    fn has_room_in(&mut self, queue: &Queue, message: &Message) -> bool {
        let namespace = &queue.namespace;
        let known = self.rooms.iter().position(|(known, _)| known == namespace);
        let at = known.unwrap_or_else(|| {
            let room = self.queues.reservation(namespace);
            self.rooms.push((namespace.clone(), room));
            self.rooms.len() - 1
        });
        let bytes = message.value.len() as u64;
        match self.rooms.get_mut(at) {
            Some((_, Some(room))) => {
                let queues = self.queues;
                room.reserve(bytes, &queues.context.clock, || queues.count_messages(namespace))
            }
            Some((_, None)) | None => true,
        }
    }

    /// Refuses a message for which a queue has no room.
    fn refuse(&mut self, full: &Arc<Queue>, message: &Message, targets: &Targets) -> Admission {
        let dies = full.settings().overflow == Overflow::RejectPublishDeadLetter;
        if self.atomicity != Atomicity::Whole {
            self.queues.metrics.refused.inc();
            full.count_refused(&self.queues.context);
        }
        if self.atomicity != Atomicity::Taken {
            if self.atomicity == Atomicity::Batch && dies {
                self.refused.push((Arc::clone(full), message.clone()));
            }
            return Admission::Refused(Refused::QueueFull);
        }
        // The other targets still get the message. The resulting messages are stored in the same append, so
        // that a crash cannot lose them.
        let mut others = targets.clone();
        others.queues.retain(|queue| !Arc::ptr_eq(queue, full));
        let mut parts = Vec::new();
        if !others.is_empty() {
            parts.push((message.clone(), others));
        }
        if dies {
            parts.extend(self.queues.dead_letter_of(full, message.clone()));
        }
        Admission::Parted(parts)
    }
}
