//! Publications become appends, after the check of queue limits.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Change, Frame};
use stafett_model::Message;
use stafett_queue::{Changes, Overflow};

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

    /// Appends messages, together with the `changes` that settle them in their source queue.
    pub(super) fn append_from(
        self: &Arc<Self>,
        source: &Queue,
        publication: Publication,
        changes: &Changes,
    ) -> AppendTicket {
        let mut frames = SmallVec::new();
        if source.outlives() && !changes.is_empty() {
            frames.push(super::flush::delivery_frame(
                source,
                Change::Delta(changes.encode().into()),
            ));
        }
        self.stage(publication, frames, Some(source))
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
            self.context.metrics.published.inc_by(published);
        }
        if !refused.is_empty() {
            self.dead_letter_refused(refused);
        }
        ticket.wait_for(staged, limited)
    }

    /// Returns true if a queue takes one more message.
    fn has_room(&self, queue: &Queue, message: &Message) -> bool {
        let settings = &queue.settings;
        if !settings.has_limits() || settings.overflow == Overflow::DropHead {
            return true;
        }
        let mut inner = queue.lock();
        inner.look_at_logs(&self.context);
        let waiting = inner.state.ready() + inner.staged;
        let bytes = inner.state.bytes_ready() + message.value.len() as u64;
        // A message that is handed out at once needs no room.
        let goes = |count: u64| inner.state.consumers.can_take(count);
        settings
            .length_max
            .is_none_or(|max| goes((waiting + 1).saturating_sub(max)))
            && settings
                .bytes_max
                .is_none_or(|max| bytes <= max || goes(waiting + 1))
    }

    /// Updates the queue's counts for a message that is being appended. True if the queue has to be told if
    /// it is not stored.
    fn count_in(&self, queue: &Arc<Queue>, message: &Message) -> bool {
        let settings = &queue.settings;
        let is_last_run = !message.persistent && queue.outlives() && !settings.keeps_transient;
        if message.ttl_ms.is_none() && !settings.has_limits() && !is_last_run {
            return false;
        }
        let mut inner = queue.lock();
        inner.may_expire |= message.ttl_ms.is_some();
        inner.persistence.has_new_transient |= is_last_run;
        if is_last_run && !inner.persistence.holds_transient {
            inner.note_transient(&self.context, queue);
        }
        if settings.has_limits() {
            inner.state.add_bytes(message.value.len() as u64);
            inner.staged += u64::from(settings.overflow != Overflow::DropHead);
        }
        settings.has_limits() && (settings.overflow != Overflow::DropHead || settings.bytes_max.is_some())
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
        let has_room = |queue: &Arc<Queue>| self.queues.has_room(queue, message);
        if let Some(full) = targets.queues.iter().find(|queue| !has_room(queue)) {
            return self.refuse(full, message, targets);
        }
        self.published += targets.queues.len() as u64;
        for queue in &targets.queues {
            if self.queues.count_in(queue, message) {
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
            self.queues.context.metrics.refused.inc();
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
