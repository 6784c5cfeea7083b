//! A consumer group as the registry keeps it: decides when to store a delta and when a snapshot.
//!
//! Each step stores a delta. Once the deltas are larger than the last snapshot, a new snapshot is stored;
//! also when the group loses its last member, as the snapshot is small then.

use stafett_store::DeltaPolicy;
use stafett_topics::TopicSource;

use super::commit::NewCommit;
use super::commits::CommitSender;

use super::consumer::{
    self, CommitError, ConsumerGroupState, Heartbeat, HeartbeatError, HeartbeatReply, Partition, Rules,
};
use super::effects::{Effects, Store};
use super::error::GroupError;
use super::migration::ClassicMember;
use super::moment::Moment;

/// Bytes of deltas that are always allowed between two snapshots.
const DELTA_BYTES_MIN: usize = 16 << 10;

/// A consumer group with its rules and the sizes of its stored state.
#[derive(Debug)]
pub struct StoredConsumerGroup {
    group: consumer::ConsumerGroup,
    rules: Rules,
    sizes: DeltaPolicy<DELTA_BYTES_MIN, 1>,
    /// True if the journal has refused a state: the next step stores a snapshot, also if it changes nothing.
    is_lost: bool,
}

impl StoredConsumerGroup {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            group: consumer::ConsumerGroup::default(),
            rules,
            sizes: DeltaPolicy::default(),
            is_lost: false,
        }
    }

    /// Creates a group in which several members may have the same partition.
    pub(super) fn sharing(rules: Rules) -> Self {
        Self {
            group: consumer::ConsumerGroup::sharing(),
            ..Self::new(rules)
        }
    }

    pub fn group(&self) -> &consumer::ConsumerGroup {
        &self.group
    }

    /// Returns the name of the state: one word of a fixed set.
    pub(super) fn state_name(&self) -> &'static str {
        match self.group.state() {
            ConsumerGroupState::Empty => "empty",
            ConsumerGroupState::Assigning => "assigning",
            ConsumerGroupState::Reconciling => "reconciling",
            ConsumerGroupState::Stable => "stable",
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        beat: Heartbeat,
        topics: &dyn TopicSource,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<HeartbeatReply, HeartbeatError> {
        let epoch = self.group.epoch();
        let reply = self.group.heartbeat(beat, topics, &self.rules, now.0)?;
        effects.rebalances += u64::from(self.group.epoch() != epoch);
        effects.only_alive = !self.group.has_changes();
        self.store(effects);
        Ok(reply)
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Changes the rules.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.group.find_deadline(&rules);
    }

    /// Raises the epoch of a group that never had members, so that it is stored.
    pub(super) fn begin(&mut self, effects: &mut Effects) {
        self.group.begin();
        self.store(effects);
    }

    /// Records that the last stored state was lost: the next step stores a snapshot.
    pub(super) fn on_not_stored(&mut self) {
        self.is_lost = true;
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.group.deadline_ms().map(Moment)
    }

    pub(super) fn tick(&mut self, now: Moment, effects: &mut Effects) {
        let expired = self.group.on_tick(&self.rules, now.0);
        for (member, why) in &expired {
            tracing::info!(%member, ?why, "a member of a group is put out");
        }
        effects.expired += expired.len() as u64;
        effects.rebalances += u64::from(!expired.is_empty());
        self.store(effects);
    }

    pub(super) fn take_over(
        &mut self,
        generation: i32,
        members: Vec<ClassicMember>,
        topics: &dyn TopicSource,
        now: Moment,
    ) {
        self.group
            .take_over(generation, members, topics, &self.rules, now.0);
    }

    pub(super) fn join_classic(
        &mut self,
        member: ClassicMember,
        topics: &dyn TopicSource,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<i32, GroupError> {
        let generation = self.group.join_classic(member, topics, &self.rules, now.0)?;
        self.store(effects);
        Ok(generation)
    }

    pub(super) fn heartbeat_classic(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: Moment,
    ) -> Result<(), GroupError> {
        self.group
            .heartbeat_classic(member, instance, generation, &self.rules, now.0)
    }

    pub(super) fn leave_classic(&mut self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        self.group.leave_classic(member, instance)
    }

    pub(super) fn check_commit(
        &self,
        by: &CommitSender<'_>,
        commits: &[NewCommit],
    ) -> Result<(), GroupError> {
        let names_member = by.epoch >= 0 || !by.member.is_empty() || by.instance.is_some();
        if by.is_transactional && !names_member {
            return Ok(());
        }
        let partitions = commits.iter().map(|commit| Partition {
            topic: commit.topic,
            index: commit.partition,
        });
        Ok(self.group.check_commit(by.member, by.epoch, partitions)?)
    }

    pub(super) fn check_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        Ok(self.group.check_fetch(member, epoch)?)
    }

    pub(super) fn store(&mut self, effects: &mut Effects) {
        if !self.group.has_changes() && !self.is_lost {
            return;
        }
        let is_lost = std::mem::take(&mut self.is_lost);
        let delta = self.group.take_changes();
        self.sizes.on_delta(delta.len());
        let is_due = !self.sizes.has_snapshot() || self.sizes.is_due();
        effects.store = if is_due || is_lost || self.group.is_empty() {
            self.sizes.on_snapshot(self.group.encode().len());
            Store::Whole
        } else {
            Store::Delta(delta.into())
        };
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        self.group.encode()
    }

    /// Restores an empty group from a snapshot.
    pub(super) fn restored(mut self, bytes: &[u8], now: Moment) -> Option<Self> {
        self.group.restore(bytes, &self.rules, now.0)?;
        self.sizes.on_snapshot(bytes.len());
        Some(self)
    }

    pub(super) fn apply(&mut self, delta: &[u8], now: Moment) -> Option<()> {
        self.sizes.on_delta(delta.len());
        self.group.restore(delta, &self.rules, now.0)
    }
}

impl From<CommitError> for GroupError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::UnknownMember => Self::UnknownMember,
            CommitError::StaleEpoch { .. } => Self::StaleEpoch,
            CommitError::OtherGeneration => Self::OtherGeneration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::tests::world::Topics;

    #[test]
    fn a_state_that_the_journal_refused_is_stored_with_the_next_sign_of_life() {
        let mut topics = Topics::default();
        topics.set("t", 1);
        let mut group = StoredConsumerGroup::new(Rules::default());
        let join = Heartbeat {
            member: "m".into(),
            names: Some(vec!["t".into()]),
            ..Heartbeat::default()
        };
        let report = Heartbeat {
            member: "m".into(),
            epoch: 1,
            ..Heartbeat::default()
        };
        let mut stored_of = |beat: &Heartbeat, is_refused| {
            let mut effects = Effects::default();
            group
                .heartbeat(beat.clone(), &topics, Moment(1), &mut effects)
                .unwrap();
            if is_refused {
                group.on_not_stored();
            }
            matches!(effects.store, Store::Whole)
        };
        assert!(stored_of(&join, true));
        assert!(stored_of(&report, true), "it was not stored");
        assert!(stored_of(&report, false), "nor was it now");
        assert!(!stored_of(&report, false));
    }
}
