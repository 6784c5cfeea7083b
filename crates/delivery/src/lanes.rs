//! Logs of a dispatcher's lanes, and their growth.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Append, Change, Frame, StateItem, StateWait, Ticket};
use stafett_model::LogId;
use stafett_topics::Topic;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::grown_lanes::GrownLanes;
use super::wakeups::Token;

/// Log of a lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneLog {
    /// Number of the lane: a priority or a partition.
    pub lane: u32,
    pub log: LogId,
    /// Offset before which the log is freed.
    pub(super) freed: u64,
    /// Token of its watch; `None` while it is not watched.
    token: Option<Token>,
}

/// Owner of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOwnership {
    /// Settled messages are freed.
    Own,
    /// A topic, which has its own retention.
    Topic,
}

impl Dispatcher {
    /// Hands out when one of the logs grows.
    pub fn watch_logs(self: &Arc<Self>, context: &DeliveryContext) {
        let mut inner = self.lock();
        if self.is_ended() {
            return;
        }
        for lane in &mut inner.logs {
            lane.watch(context, self);
        }
    }

    /// Sets the start in the logs of a new dispatcher, at their first or their next messages. Returns the
    /// frame that stores it.
    pub fn start_at(&self, context: &DeliveryContext, from_end: bool) -> Frame {
        let mut inner = self.lock();
        let DeliveryState {
            state,
            persistence,
            logs,
            ..
        } = &mut *inner;
        for lane in logs.iter() {
            if let Some(bounds) = context.journal.bounds(lane.log) {
                let start = if from_end { bounds.stable } else { bounds.start };
                state.start_at(lane.lane, start.0, &mut persistence.changes);
            }
        }
        // The snapshot includes them.
        persistence.changes.clear();
        context.state_frame(self, Change::Put(state.encode(false).into()))
    }

    /// Begins lanes anew at these offsets, and stages the state together with `frames`.
    pub fn begin_lanes_at(
        &self,
        context: &DeliveryContext,
        starts: impl IntoIterator<Item = (u32, u64)>,
        mut frames: Vec<Frame>,
        wait: StateWait,
    ) -> Ticket {
        // No earlier change may be staged behind the state that includes it.
        let _turn = context.dirty.lock_turn();
        let mut inner = self.lock();
        let DeliveryState {
            state, persistence, ..
        } = &mut *inner;
        for (lane, start) in starts {
            state.reset_lane(lane, start);
        }
        let snapshot = state.encode(false);
        persistence.on_replaced(snapshot.len());
        frames.push(context.state_frame(self, Change::Put(snapshot.into())));
        context.journal.append(vec![Append::state(frames, wait)])
    }

    /// Adds the logs of a topic's new partitions.
    pub fn follow(self: &Arc<Self>, context: &DeliveryContext, topic: &Topic) {
        let mut inner = self.lock();
        let known = u32::try_from(inner.logs.len()).unwrap_or(u32::MAX);
        if self.is_ended() || known >= topic.partitions() {
            return;
        }
        for mut lane in LaneLog::of_topic(topic, known) {
            lane.watch(context, self);
            inner.logs.push(lane);
            inner.grown.note(lane.lane);
        }
        drop(inner);
        context.wake(self);
    }

    /// Applies a stored row of the state. `None` if this version does not know its format.
    pub fn restore(&self, row: StateItem<'_>) -> Option<()> {
        let mut inner = self.lock();
        let restored = match row {
            StateItem::Value { value, .. } => inner.state.restore(value),
            StateItem::Delta { delta, .. } => inner.state.apply(delta),
        };
        inner.persistence.holds_transient |= restored.ok()?;
        inner.persistence.is_transient_noted = inner.persistence.holds_transient;
        Some(())
    }

    /// Compares the restored state with the logs, and watches them.
    pub fn open(self: &Arc<Self>, context: &DeliveryContext) {
        let mut inner = self.lock();
        for lane in inner.logs.clone() {
            if let Some(bounds) = context.journal.bounds(lane.log) {
                let (state, changes) = inner.parts();
                let lost = state.start_at(lane.lane, bounds.start.0, changes);
                if self.ownership == LogOwnership::Topic {
                    context.metrics.lost.inc_by(lost);
                }
                let state = state.lane_mut(lane.lane);
                state.grow(bounds.stable.0);
                if state.ready() > 0 {
                    inner.state.count_bytes_from(lane.lane, bounds.end.0);
                }
            }
        }
        for lane in &mut inner.logs {
            let bounds = context.journal.bounds(lane.log);
            lane.freed = bounds.map_or(0, |bounds| bounds.start.0);
        }
        // It is unknown which messages have a TTL: the head is checked.
        inner.may_expire = !self.is_pulled;
        inner.counts_too_many = self.ownership == LogOwnership::Own && inner.state.ready() > 0;
        drop(inner);
        self.watch_logs(context);
    }

    /// Hands out restored messages. `may_have_holes` says whether the logs may have lost messages of the
    /// previous run.
    pub fn resume(self: &Arc<Self>, context: &Arc<DeliveryContext>, may_have_holes: bool) {
        let mut inner = self.lock();
        let waits = inner.state.ready() > 0;
        // Limits need exact counts, also if a kill came between a transient message and the word of it.
        let is_ragged = may_have_holes || inner.persistence.holds_transient || inner.settings.has_limits();
        let is_inexact = waits && is_ragged && self.ownership == LogOwnership::Own;
        inner.counts_too_many = is_inexact;
        drop(inner);
        if waits {
            context.wake(self);
        }
        if is_inexact {
            context.scan_soon(self);
        }
    }
}

impl DeliveryState {
    /// Updates the ends of all lanes from their logs.
    pub(super) fn look_at_logs(&mut self, dispatcher: &Dispatcher, context: &DeliveryContext) {
        self.grown = GrownLanes::none();
        for at in 0..self.logs.len() {
            if let Some(LaneLog { lane, log, .. }) = self.logs.get(at).copied() {
                self.look_at(dispatcher, context, lane, log);
            }
        }
        context.metrics.looks.inc_by(self.logs.len() as u64);
    }

    /// Updates the ends of the lanes whose logs may have grown.
    pub(super) fn look_at_grown(&mut self, dispatcher: &Dispatcher, context: &DeliveryContext) {
        match self.grown.take() {
            GrownLanes::These(lanes) if dispatcher.ownership == LogOwnership::Topic => {
                for lane in &lanes {
                    if let Some(log) = self.log(*lane) {
                        self.look_at(dispatcher, context, *lane, log);
                    }
                }
                context.metrics.looks.inc_by(lanes.len() as u64);
            }
            GrownLanes::These(_) | GrownLanes::All => self.look_at_logs(dispatcher, context),
        }
    }

    /// Updates the end of a lane from its log.
    pub fn look_at_lane(&mut self, dispatcher: &Dispatcher, context: &DeliveryContext, lane: u32) {
        if let Some(log) = self.log(lane) {
            self.look_at(dispatcher, context, lane, log);
        }
    }

    fn look_at(&mut self, dispatcher: &Dispatcher, context: &DeliveryContext, lane: u32, log: LogId) {
        let Some(bounds) = context.journal.bounds(log) else {
            return;
        };
        if dispatcher.ownership == LogOwnership::Topic {
            let (state, changes) = self.parts();
            let lost = state.start_at(lane, bounds.start.0, changes);
            context.metrics.lost.inc_by(lost);
        }
        let state = self.state.lane_mut(lane);
        let before = state.end();
        state.grow(bounds.stable.0);
        self.staged = self.staged.saturating_sub(state.end() - before);
    }

    pub fn log(&self, number: u32) -> Option<LogId> {
        // Lanes of a topic are in order.
        let guess = usize::try_from(number).ok().and_then(|at| self.logs.get(at));
        let lane = guess
            .filter(|lane| lane.lane == number)
            .or_else(|| self.logs.iter().find(|lane| lane.lane == number));
        lane.map(|lane| lane.log)
    }
}

impl LaneLog {
    pub fn new(lane: u32, log: LogId) -> Self {
        Self {
            lane,
            log,
            freed: 0,
            token: None,
        }
    }

    /// Hands out when the log grows.
    pub fn watch(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        if self.token.is_none() {
            self.token = context.watch(dispatcher, self.lane, self.log);
        }
    }

    /// Takes the token of its watch, to be freed.
    pub(super) fn take_token(&mut self) -> Option<Token> {
        self.token.take()
    }

    /// Returns the lanes of a topic's partitions, from `from` on.
    pub fn of_topic(topic: &Topic, from: u32) -> SmallVec<[Self; 1]> {
        (from..topic.partitions())
            .filter_map(|partition| Some(Self::new(partition, topic.log(partition)?)))
            .collect()
    }
}
