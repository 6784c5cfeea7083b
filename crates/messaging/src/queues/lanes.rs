//! Logs of a queue's lanes, and their growth.

use smallvec::SmallVec;
use stafett_model::LogId;
use stafett_topics::Topic;

use super::context::DeliveryContext;
use super::grown::Grown;
use super::queue::Inner;

/// Log of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneLog {
    /// Number of the lane: a priority or a partition.
    pub(super) lane: u32,
    pub(super) log: LogId,
    /// Offset before which the log is freed.
    pub(super) freed: u64,
}

/// Owner of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogOwnership {
    /// Settled messages are freed.
    Own,
    /// A topic, which has its own retention.
    Topic,
}

impl Inner {
    /// Updates the ends of all lanes from their logs.
    pub(super) fn look_at_logs(&mut self, context: &DeliveryContext) {
        self.grown = Grown::none();
        for at in 0..self.logs.len() {
            if let Some(LaneLog { lane, log, .. }) = self.logs.get(at).copied() {
                self.look_at(context, lane, log);
            }
        }
        context.metrics.looks.inc_by(self.logs.len() as u64);
    }

    /// Updates the ends of the lanes whose logs may have grown.
    pub(super) fn look_at_grown(&mut self, context: &DeliveryContext) {
        match self.grown.take() {
            Grown::These(lanes) if self.ownership == LogOwnership::Topic => {
                for lane in &lanes {
                    if let Some(log) = self.log(*lane) {
                        self.look_at(context, *lane, log);
                    }
                }
                context.metrics.looks.inc_by(lanes.len() as u64);
            }
            Grown::These(_) | Grown::All => self.look_at_logs(context),
        }
    }

    fn look_at(&mut self, context: &DeliveryContext, lane: u32, log: LogId) {
        let Some(bounds) = context.journal.bounds(log) else {
            return;
        };
        if self.ownership == LogOwnership::Topic {
            let (state, changes) = self.parts();
            let lost = state.start_at(lane, bounds.start.0, changes);
            context.metrics.lost.inc_by(lost);
        }
        let state = self.state.lane_mut(lane);
        let before = state.end();
        state.grow(bounds.end.0);
        self.staged = self.staged.saturating_sub(state.end() - before);
    }

    pub(super) fn log(&self, number: u32) -> Option<LogId> {
        // Lanes of a topic are in order.
        let guess = usize::try_from(number).ok().and_then(|at| self.logs.get(at));
        let lane = guess
            .filter(|lane| lane.lane == number)
            .or_else(|| self.logs.iter().find(|lane| lane.lane == number));
        lane.map(|lane| lane.log)
    }
}

impl LaneLog {
    pub(super) fn new(lane: u32, log: LogId) -> Self {
        Self { lane, log, freed: 0 }
    }

    /// Returns the lanes of a topic's partitions, from `from` on.
    pub(super) fn of_topic(topic: &Topic, from: u32) -> SmallVec<[Self; 1]> {
        (from..topic.partitions())
            .filter_map(|partition| Some(Self::new(partition, topic.log(partition)?)))
            .collect()
    }
}
