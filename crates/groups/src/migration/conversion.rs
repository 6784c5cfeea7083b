//! Conversion between a classic group and one whose partitions the broker assigns.

use bytes::Bytes;

use crate::classic::member::Member;
use crate::classic::{ClassicGroup, Phase};
use crate::consumer;
use crate::effects::{Effects, Store};
use crate::error::GroupError;
use crate::moment::Moment;
use crate::replies::MemberId;

impl ClassicGroup {
    /// Returns all members, by id.
    pub(crate) fn member_entries(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members.iter()
    }

    /// Removes all members and answers their waiting requests with [`GroupError::Rebalancing`].
    pub(crate) fn dismiss_members(&mut self, effects: &mut Effects) {
        for (id, member) in std::mem::take(&mut self.members) {
            member.dismiss(&GroupError::Rebalancing, &id, effects);
        }
        effects.store = Store::Whole;
    }

    /// Creates a classic group from a consumer group that has only classic members left. They are asked to
    /// join, and have the partitions that `held_by` gives as their assignments until then.
    pub(crate) fn from_consumer_group(
        group: &consumer::ConsumerGroup,
        now: Moment,
        held_by: impl Fn(&consumer::Member) -> Bytes,
    ) -> Self {
        let mut converted = Self::default();
        let mut longest_ms = 0;
        for member in group.members() {
            // Members at this generation are asked to join; others get an error and give up their partitions.
            converted.generation = converted.generation.max(member.epoch);
            let Some(classic) = &member.classic else { continue };
            let id = MemberId::from(&*member.id);
            converted.purpose = Some(classic.purpose.clone());
            converted.leader.get_or_insert_with(|| MemberId::clone(&id));
            if let Some(instance) = &member.instance {
                converted.instances.insert(instance.clone(), MemberId::clone(&id));
            }
            longest_ms = longest_ms.max(member.rebalance_timeout_ms);
            let kept = Member {
                instance: member.instance.clone(),
                client_id: member.client_id.clone(),
                client_host: member.host.clone(),
                session_ms: classic.session_ms,
                rebalance_ms: member.rebalance_timeout_ms,
                strategies: classic.strategies.clone(),
                assignment: held_by(member),
                heard: now,
                is_new: false,
                joining: None,
                syncing: None,
                has_synced: true,
            };
            converted.members.insert(id, kept);
        }
        converted.phase = Phase::Preparing {
            until: now.after(longest_ms),
        };
        converted
    }
}
