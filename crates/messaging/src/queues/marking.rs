//! Hand-out marks: how far messages have been handed out, stored before they are.
//!
//! A mark is staged while some of the block before is left ([`stafett_queue::lane::Lane::mark_ahead`]), so
//! that as a rule nothing waits for it. A message at or behind the last mark that is stored waits: so a
//! program that is killed knows afterwards which messages somebody may have had. What is settled with being
//! handed out is marked as well: it may come again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stafett_journal::{Change, Outcome, Refusal, Ticket};
use stafett_queue::Changes;
use stafett_store::StageOutcome;

use super::pump::delivery_frame;
use super::queue::{Inner, Queue};
use super::registry::Queues;

/// A mark that is staged.
#[derive(Debug)]
pub(super) struct Marking {
    lane: u32,
    mark: u64,
    ticket: Ticket,
}

/// Whether a message may be handed out.
#[derive(Debug)]
pub(super) enum Marked {
    Yes,
    /// Once this is stored.
    After(Marking),
    /// Not now: the journal has stopped.
    No,
}

impl Marking {
    /// Resolves once the mark is stored, or refused; then the queue knows.
    pub(super) async fn decided(self, hub: &Queues, queue: &Arc<Queue>) {
        let outcome = self.ticket.await.pop();
        let mut inner = queue.lock();
        inner.on_marked(hub, queue, self.lane, self.mark, outcome.as_ref());
    }
}

impl Inner {
    /// Whether a message may be handed out that is the next one of its lane, or came back. Sees to it that it
    /// soon may.
    pub(super) fn marked(&mut self, hub: &Queues, queue: &Arc<Queue>, number: u32, at: u64) -> Marked {
        if !queue.outlives() || self.state.lane_mut(number).is_marked_ahead(at) {
            return Marked::Yes;
        }
        if let Some(mark) = self.state.lane_mut(number).mark_ahead() {
            let mut changes = Changes::default();
            changes.mark(number, mark);
            match self.store_at_once(hub, queue, changes) {
                StageOutcome::Waits(ticket) => self.marking.push(Marking {
                    lane: number,
                    mark,
                    ticket,
                }),
                StageOutcome::Refused(Refusal::Closed) => return Marked::No,
                // On a disk that is as full as that messages go out all the same: what consumers settle makes
                // space.
                StageOutcome::Stored | StageOutcome::Refused(_) => {
                    self.state.lane_mut(number).mark_is_stored(mark);
                }
            }
        }
        if !self.state.lane_mut(number).is_marked(at) {
            self.learn_marks(hub, queue);
        }
        if self.state.lane_mut(number).is_marked(at) {
            return Marked::Yes;
        }
        let waits_for = |marking: &Marking| marking.lane == number && marking.mark > at;
        match self.marking.iter().position(waits_for) {
            Some(index) => Marked::After(self.marking.swap_remove(index)),
            None => Marked::No,
        }
    }

    /// Learns which marks are stored by now.
    fn learn_marks(&mut self, hub: &Queues, queue: &Arc<Queue>) {
        for mut marking in std::mem::take(&mut self.marking) {
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut marking.ticket).poll(&mut context) {
                Poll::Pending => self.marking.push(marking),
                Poll::Ready(mut outcomes) => {
                    let outcome = outcomes.pop();
                    self.on_marked(hub, queue, marking.lane, marking.mark, outcome.as_ref());
                }
            }
        }
    }

    fn on_marked(
        &mut self,
        hub: &Queues,
        queue: &Arc<Queue>,
        lane: u32,
        mark: u64,
        outcome: Option<&Outcome>,
    ) {
        match outcome {
            Some(Outcome::Committed(_)) => {}
            Some(Outcome::Refused(refusal)) if *refusal != Refusal::Closed => {
                self.changes.mark(lane, mark);
                hub.mark_dirty(queue, self);
            }
            // The journal has stopped.
            Some(Outcome::Refused(_) | Outcome::Unknown) | None => return,
        }
        self.state.lane_mut(lane).mark_is_stored(mark);
    }

    /// Stores changes before anything that is stored later, or, if they are refused, with what is stored
    /// next.
    pub(super) fn store_at_once(
        &mut self,
        hub: &Queues,
        queue: &Arc<Queue>,
        changes: Changes,
    ) -> StageOutcome {
        let delta = changes.encode();
        let bytes = delta.len();
        let staged = StageOutcome::of(
            &*hub.journal,
            [delivery_frame(queue, Change::Delta(delta.into()))],
        );
        match &staged {
            StageOutcome::Stored | StageOutcome::Waits(_) => self.changed_bytes += bytes,
            StageOutcome::Refused(_) => {
                self.changes.put_before(changes);
                hub.mark_dirty(queue, self);
            }
        }
        staged
    }
}
