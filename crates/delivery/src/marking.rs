//! Hand-out marks: offsets up to which messages may have been handed out, stored ahead of the hand-out.
//!
//! A new mark is staged before the previous block is used up ([`stafett_queue::lane::Lane::mark_ahead`]), so
//! normally no message waits for it. A message at or after the last stored mark waits. So after a crash it is
//! known which messages a consumer may have had. Messages settled by delivery are marked too: they may be
//! delivered again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stafett_journal::{Outcome, Refusal, Ticket};
use stafett_queue::Changes;
use stafett_store::StageOutcome;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};

/// A staged mark.
#[derive(Debug)]
pub(super) struct Marking {
    lane: u32,
    mark: u64,
    ticket: Ticket,
}

/// Permission to hand out a message.
#[derive(Debug)]
pub(super) enum Marked {
    Yes,
    /// Permitted once this mark is stored.
    After(Marking),
    /// Not permitted now: the journal has stopped.
    No,
}

impl Marking {
    /// Waits until the mark is stored or refused, and updates the dispatcher.
    pub(super) async fn decided(self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        let outcome = self.ticket.await.pop();
        let mut inner = dispatcher.lock();
        inner.on_marked(context, dispatcher, self.lane, self.mark, outcome.as_ref());
    }
}

impl DeliveryState {
    /// Checks that a message may be handed out, either the next one of its lane or a returned one. Stages a
    /// further mark if needed.
    pub(super) fn marked(
        &mut self,
        context: &DeliveryContext,
        dispatcher: &Arc<Dispatcher>,
        number: u32,
        at: u64,
    ) -> Marked {
        if !dispatcher.is_stored || self.state.lane_mut(number).is_marked_ahead(at) {
            return Marked::Yes;
        }
        if let Some(mark) = self.state.lane_mut(number).mark_ahead() {
            let mut changes = Changes::default();
            changes.mark(number, mark);
            match self.store_at_once(context, dispatcher, changes) {
                StageOutcome::Waits(ticket) => self.marking.push(Marking {
                    lane: number,
                    mark,
                    ticket,
                }),
                StageOutcome::Refused(Refusal::Closed) => return Marked::No,
                // Messages are handed out even if the disk is too full for the mark: their settlement makes
                // space.
                StageOutcome::Stored | StageOutcome::Refused(_) => {
                    self.state.lane_mut(number).mark_is_stored(mark);
                }
            }
        }
        if !self.state.lane_mut(number).is_marked(at) {
            self.learn_marks(context, dispatcher);
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

    /// Updates the marks that are stored by now.
    fn learn_marks(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        for mut marking in std::mem::take(&mut self.marking) {
            let mut task = Context::from_waker(Waker::noop());
            match Pin::new(&mut marking.ticket).poll(&mut task) {
                Poll::Pending => self.marking.push(marking),
                Poll::Ready(mut outcomes) => {
                    let outcome = outcomes.pop();
                    self.on_marked(context, dispatcher, marking.lane, marking.mark, outcome.as_ref());
                }
            }
        }
    }

    fn on_marked(
        &mut self,
        context: &DeliveryContext,
        dispatcher: &Arc<Dispatcher>,
        lane: u32,
        mark: u64,
        outcome: Option<&Outcome>,
    ) {
        match outcome {
            Some(Outcome::Committed(_)) => {}
            Some(Outcome::Refused(refusal)) if *refusal != Refusal::Closed => {
                self.persistence.changes.mark(lane, mark);
                context.mark_dirty(dispatcher, self);
            }
            // The journal has stopped.
            Some(Outcome::Refused(_) | Outcome::Unknown) | None => return,
        }
        self.state.lane_mut(lane).mark_is_stored(mark);
    }
}
