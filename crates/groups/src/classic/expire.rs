//! Deadlines: of silent members, and of phases that take too long.

use std::sync::Arc;

use super::{ClassicGroup, Phase};
use crate::effects::Effects;
use crate::moment::Moment;

impl ClassicGroup {
    /// Returns the next time at which [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Moment> {
        let members = self.members.values().filter_map(super::Member::deadline);
        let pending = self.pending.values().copied();
        let phase = match self.phase {
            Phase::Empty => None,
            Phase::Gathering { until, .. } | Phase::Preparing { until } | Phase::Completing { until, .. } => {
                Some(until)
            }
            Phase::Stable { until } => until,
        };
        members.chain(pending).chain(phase).min()
    }

    /// Handles everything due by `now`.
    pub fn tick(&mut self, now: Moment, effects: &mut Effects) {
        let is_over = |deadline: Option<Moment>| deadline.is_some_and(|deadline| deadline <= now);
        let before = self.pending.len();
        self.pending.retain(|_, until| *until > now);
        let mut has_left = self.pending.len() < before;
        let silent = self
            .members
            .iter()
            .filter(|(_, member)| is_over(member.deadline()));
        let silent: Vec<_> = silent.map(|(id, _)| Arc::clone(id)).collect();
        for id in silent {
            effects.expired += 1;
            has_left |= self.remove_member(&id, effects);
        }
        let is_phase_over = match self.phase {
            Phase::Empty => false,
            Phase::Gathering { until, .. } | Phase::Preparing { until } | Phase::Completing { until, .. } => {
                is_over(Some(until))
            }
            Phase::Stable { until } => is_over(until),
        };
        if is_phase_over {
            self.on_phase_over(now, effects);
        } else if has_left {
            self.on_left(now, effects);
        }
    }

    fn on_phase_over(&mut self, now: Moment, effects: &mut Effects) {
        match self.phase {
            Phase::Empty => {}
            Phase::Gathering {
                end,
                delay_ms,
                has_new: true,
                ..
            } if now < end => {
                self.phase = Phase::Gathering {
                    until: now.after(delay_ms).min(end),
                    end,
                    delay_ms,
                    has_new: false,
                };
            }
            Phase::Gathering { .. } | Phase::Preparing { .. } => self.complete(now, effects),
            Phase::Completing { .. } | Phase::Stable { .. } => self.give_up_unsynced(now, effects),
        }
    }

    /// Removes the members that never asked for their assignment.
    fn give_up_unsynced(&mut self, now: Moment, effects: &mut Effects) {
        let unsynced = self.members.iter().filter(|(_, member)| !member.has_synced);
        let unsynced: Vec<_> = unsynced.map(|(id, _)| Arc::clone(id)).collect();
        for id in unsynced {
            effects.expired += 1;
            self.remove_member(&id, effects);
        }
        self.prepare(now, effects);
    }
}
