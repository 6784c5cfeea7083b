//! Publications become appends; queues with limits are asked before.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::Frame;
use stafett_model::Message;
use stafett_queue::Overflow;

use super::publication::{AppendTicket, Publication, Refused};
use super::queue::Queue;
use super::registry::Queues;

impl Queues {
    /// Appends messages; resolves to what became of each. Per batch: no lock and no allocation is per message.
    pub fn append(self: &Arc<Self>, publication: Publication) -> AppendTicket {
        self.append_with(publication, SmallVec::new())
    }

    /// The same; `frames` are stored together with what is atomic.
    pub(crate) fn append_with(
        self: &Arc<Self>,
        publication: Publication,
        frames: SmallVec<[Frame; 1]>,
    ) -> AppendTicket {
        let now_ms = self.clock.now_ms();
        let (mut refused, mut limited) = (Vec::new(), Vec::new());
        let (mut published, mut index) = (0_u64, 0_u32);
        let there = self.there();
        let (appends, ticket) = publication.into_appends(
            now_ms,
            &self.arrivals,
            |message, targets| {
                index += 1;
                if let Some(full) = targets.queues.iter().find(|queue| !self.has_room(queue, message)) {
                    self.metrics.refused.inc();
                    if full.settings.overflow == Overflow::RejectPublishDeadLetter {
                        refused.push((Arc::clone(full), message.clone()));
                    }
                    return Some(Refused::QueueFull);
                }
                published += targets.queues.len() as u64;
                for queue in &targets.queues {
                    if self.count_in(queue, message) {
                        limited.push((Arc::clone(queue), index - 1));
                    }
                }
                None
            },
            frames,
        );
        self.metrics.published.inc_by(published);
        let staged = (!appends.is_empty()).then(|| self.journal.append(appends));
        drop(there);
        if !refused.is_empty() {
            self.dead_letter_refused(refused);
        }
        ticket.wait_for(staged, limited)
    }

    /// Whether a queue takes a message more.
    fn has_room(&self, queue: &Queue, message: &Message) -> bool {
        let settings = &queue.settings;
        if !settings.has_limits() || settings.overflow == Overflow::DropHead {
            return true;
        }
        let mut inner = queue.lock();
        inner.look_at_logs(self);
        let waiting = inner.state.ready() + inner.staged;
        let bytes = inner.state.bytes_ready() + message.value.len() as u64;
        // What is taken as it comes takes no room.
        let goes = |count: u64| inner.state.consumers.can_take(count);
        settings
            .length_max
            .is_none_or(|max| goes((waiting + 1).saturating_sub(max)))
            && settings
                .bytes_max
                .is_none_or(|max| bytes <= max || goes(waiting + 1))
    }

    /// Notes what a queue has to know of a message that is appended to it. True if it has to hear that it was not stored.
    fn count_in(&self, queue: &Queue, message: &Message) -> bool {
        let settings = &queue.settings;
        let is_last_run = !message.persistent && queue.outlives() && !settings.keeps_transient;
        if message.ttl_ms.is_none() && !settings.has_limits() && !is_last_run {
            return false;
        }
        let mut inner = queue.lock();
        inner.may_expire |= message.ttl_ms.is_some();
        if is_last_run && !inner.holds_transient {
            inner.note_transient(self, queue);
        }
        if settings.has_limits() {
            inner.state.add_bytes(message.value.len() as u64);
            inner.staged += u64::from(settings.overflow != Overflow::DropHead);
        }
        settings.has_limits() && settings.overflow != Overflow::DropHead
    }
}
