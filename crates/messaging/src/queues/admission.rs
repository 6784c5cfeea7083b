//! Publications become appends, after the check of queue limits.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::Frame;
use stafett_model::Message;
use stafett_queue::Overflow;

use super::publication::{AppendTicket, Counted, Publication, Refused, Targets, Unit, Verdict};
use super::queue::Queue;
use super::registry::Queues;

/// State of checking a publication against its queues.
struct Judge<'a> {
    queues: &'a Arc<Queues>,
    unit: Unit,
    index: u32,
    published: u64,
    limited: Vec<Counted>,
    /// Refused messages to be dead-lettered, with the queues that refused them, in an append of their own.
    refused: Vec<(Arc<Queue>, Message)>,
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
        self.stage(publication, frames, None)
    }

    /// Appends messages, together with the frame that settles them in their source queue.
    pub(crate) fn append_from(
        self: &Arc<Self>,
        source: &Queue,
        publication: Publication,
        settlement: Option<Frame>,
    ) -> AppendTicket {
        self.stage(publication, settlement.into_iter().collect(), Some(source))
    }

    fn stage(
        self: &Arc<Self>,
        publication: Publication,
        frames: SmallVec<[Frame; 1]>,
        source: Option<&Queue>,
    ) -> AppendTicket {
        let mut judge = Judge {
            queues: self,
            unit: publication.unit(),
            index: 0,
            published: 0,
            limited: Vec::new(),
            refused: Vec::new(),
        };
        let no_removal = self.context.lock_out_removals();
        if source.is_some_and(Queue::is_deleted) {
            return publication.into_nothing();
        }
        let (appends, ticket) = publication.into_appends(
            self.context.clock.wall_ms(),
            &self.arrivals,
            self.batch_bytes,
            |message, targets| judge.judge(message, targets),
            frames,
        );
        let staged = (!appends.is_empty()).then(|| self.journal.append(appends));
        drop(no_removal);
        let Judge {
            unit,
            published,
            limited,
            refused,
            ..
        } = judge;
        if unit == Unit::Batch || staged.is_some() {
            self.metrics.published.inc_by(published);
        }
        if !refused.is_empty() {
            self.dead_letter_refused(refused);
        }
        ticket.wait_for(staged, limited)
    }
}

impl Judge<'_> {
    /// Returns the verdict of a message's target queues.
    fn judge(&mut self, message: &Message, targets: &Targets) -> Verdict {
        let index = self.index;
        self.index += 1;
        if self.unit == Unit::Whole && targets.queues.iter().any(|queue| queue.is_deleted()) {
            return Verdict::Refused(Refused::Gone);
        }
        let context = &self.queues.context;
        let has_room = |queue: &Arc<Queue>| queue.has_room(context, message);
        if let Some(full) = targets.queues.iter().find(|queue| !has_room(queue)) {
            return self.refuse(full, message, targets);
        }
        self.published += targets.queues.len() as u64;
        for queue in &targets.queues {
            if queue.reserve_room(context, message) {
                self.limited.push(Counted {
                    queue: Arc::clone(queue),
                    message: index,
                    bytes: message.value.len() as u64,
                });
            }
        }
        Verdict::Taken
    }

    /// Returns the verdict for a message for which a queue has no room.
    fn refuse(&mut self, full: &Arc<Queue>, message: &Message, targets: &Targets) -> Verdict {
        let dies = full.settings.overflow == Overflow::RejectPublishDeadLetter;
        if self.unit != Unit::Whole {
            self.queues.metrics.refused.inc();
        }
        if self.unit != Unit::Taken {
            if self.unit == Unit::Batch && dies {
                self.refused.push((Arc::clone(full), message.clone()));
            }
            return Verdict::Refused(Refused::QueueFull);
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
        Verdict::Parted(parts)
    }
}
