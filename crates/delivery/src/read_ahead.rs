//! Read-ahead: messages that are read from the logs and not handed out yet.
//!
//! It has a cursor for each of the lanes read last, so that lanes that take turns are not read again each
//! time.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::LogSlice;
use stafett_model::{Epoch, Offset, StoredMessage};
use stafett_queue::{DeliveryId, ReadyMessage};
use stafett_topics::{
    Cursor, CursorItem, LogRead, LogTicket, ReadAheadBudget, SkipReason, Skipped, read_log,
};

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::hand_out::HandOutStep;

/// Bound on the lanes with a cursor.
const LANES_MAX: usize = 2;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of one read if a consumer takes all that it can get.
const READ_BYTES_EAGER: usize = 512 << 10;
/// Bound on the read-ahead of all dispatchers, in bytes: beyond it, idle ones drop theirs.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Pause of a stalled dispatcher, whose log could not be read, in ms.
const STALLED_MS: i64 = 1000;

/// Read-ahead of all lanes. Messages that were returned have cursors of their own.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    new: LaneCursors,
    returned: LaneCursors,
}

/// Cursors by lane, the most recently filled last.
#[derive(Debug, Default)]
struct LaneCursors(SmallVec<[(u32, Box<Cursor>); 1]>);

impl ReadAhead {
    /// Looks at a message. If it is there, it is taken out.
    pub(super) fn look(&mut self, ready: ReadyMessage) -> CursorItem {
        let DeliveryId { lane, offset } = ready.id;
        let cursor = self.cursors(ready).of(lane);
        cursor.map_or(CursorItem::Unread, |cursor| cursor.look(offset))
    }

    /// Puts back the message that was just taken out.
    pub(super) fn put_back(&mut self, ready: ReadyMessage, message: StoredMessage, stored_by: Epoch) {
        let DeliveryId { lane, offset } = ready.id;
        if let Some(cursor) = self.cursors(ready).of(lane) {
            cursor.put_back(offset, message, stored_by);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn cursors(&mut self, ready: ReadyMessage) -> &mut LaneCursors {
        if ready.was_returned {
            &mut self.returned
        } else {
            &mut self.new
        }
    }
}

impl LaneCursors {
    /// Gives the lane's cursor the result of a read from `from` on.
    fn fill(&mut self, budget: &Arc<ReadAheadBudget>, lane: u32, from: u64, slice: LogSlice) {
        let known = self.0.iter().position(|(known, _)| *known == lane);
        let mut cursor = match known {
            Some(at) => self.0.remove(at).1,
            None if self.0.len() < LANES_MAX => Box::new(Cursor::new(Arc::clone(budget))),
            None => self.0.remove(0).1,
        };
        cursor.fill(from, slice);
        self.0.push((lane, cursor));
    }

    fn of(&mut self, lane: u32) -> Option<&mut Cursor> {
        let (_, cursor) = self.0.iter_mut().find(|(known, _)| *known == lane)?;
        Some(cursor)
    }
}

impl Dispatcher {
    /// Reads from a message on that is not read yet. `None` if it has ended.
    pub(super) fn read(
        &self,
        context: &DeliveryContext,
        missing: ReadyMessage,
        bytes_max: usize,
    ) -> Option<LogTicket> {
        let mut inner = self.lock();
        let Some(log) = inner.log(missing.id.lane).filter(|_| !self.is_ended()) else {
            inner.hands_out = false;
            return None;
        };
        drop(inner);
        Some(read_log(
            &*context.journal,
            log,
            Offset(missing.id.offset),
            bytes_max,
        ))
    }
}

impl DeliveryState {
    pub(super) fn read_step(&self, missing: ReadyMessage) -> HandOutStep {
        let eager = !missing.was_returned && self.links.values().any(|link| !link.settles);
        HandOutStep::Read {
            missing,
            bytes: if eager { READ_BYTES_EAGER } else { READ_BYTES },
        }
    }

    /// Handles the result of a read.
    pub(super) fn on_read(
        &mut self,
        dispatcher: &Arc<Dispatcher>,
        context: &Arc<DeliveryContext>,
        missing: ReadyMessage,
        read: LogRead,
    ) {
        let DeliveryId { lane, offset } = missing.id;
        // The message may have been purged meanwhile.
        let wanted = [self.state.first_ready(), self.state.passed_over()];
        let is_wanted = wanted.contains(&Some(missing));
        match read {
            LogRead::Batches(slice) => {
                let cursors = self.read_ahead.cursors(missing);
                cursors.fill(&context.read_ahead, lane, offset, slice);
            }
            LogRead::Skip(skipped @ Skipped { from, to, why }) => {
                if why == SkipReason::Damaged
                    && let Some(log) = self.log(lane)
                {
                    let name = dispatcher.describe();
                    tracing::error!("{name}: {log} is damaged from {from} to {to}");
                }
                if is_wanted {
                    self.skip(context, missing, skipped);
                }
            }
            LogRead::End(_) => {
                let name = dispatcher.describe();
                tracing::error!("{name} cannot be read at {offset}: it is tried again");
                self.stall(context, dispatcher);
            }
        }
    }

    /// Skips a range that cannot be handed out.
    fn skip(&mut self, context: &DeliveryContext, missing: ReadyMessage, skipped: Skipped) {
        let (state, changes) = self.parts();
        let Skipped { from, to, why } = skipped;
        match why {
            SkipReason::Gap => state.skip(missing, to.0, changes),
            SkipReason::Expired => {
                let lost = state.start_at(missing.id.lane, to.0, changes);
                context.metrics.lost.inc_by(lost);
            }
            SkipReason::Damaged => {
                context.metrics.lost.inc_by(to.0.saturating_sub(from.0));
                state.skip(missing, to.0, changes);
            }
        }
    }

    /// Stalls the dispatcher: nothing is handed out for a while.
    pub(super) fn stall(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        self.read_ahead.clear();
        self.getters.clear();
        self.stalled_until = context.clock.now_ms() + STALLED_MS;
        self.wake_at(context, dispatcher, self.stalled_until);
    }

    /// Drops the read-ahead of an idle dispatcher, unless there is memory for it.
    pub(super) fn release_read_ahead(&mut self, context: &DeliveryContext) {
        if self.links.is_empty() || self.state.ready() == 0 || context.read_ahead.bytes() > KEPT_BYTES_MAX {
            self.read_ahead.clear();
        }
    }
}
