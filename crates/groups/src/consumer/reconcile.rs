//! One step of a member towards its target. Pure: returns the member's next state.
//!
//! No partition is ever with two members: a member that has to give a partition back keeps it in `revoking`
//! until it reports its partitions without it. Only then is the partition free for its next owner.

use super::member::{Member, MemberState};
use super::partitions::{OwnedPartitions, Partition, Partitions};

/// Next state of a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemberUpdate {
    pub state: MemberState,
    pub epoch: i32,
    pub assigned: OwnedPartitions,
    pub revoking: OwnedPartitions,
}

/// Returns the next step of a member that shares its partitions with others: it gets its whole target.
pub(super) fn whole_target(member: &Member, target_epoch: i32) -> Option<MemberUpdate> {
    if member.epoch == target_epoch {
        return None;
    }
    let split = member.assigned.against(&member.target);
    let mut assigned = split.kept;
    assigned.add(&split.missing, target_epoch);
    Some(MemberUpdate {
        state: MemberState::Stable,
        epoch: target_epoch,
        assigned,
        revoking: OwnedPartitions::default(),
    })
}

/// Returns the next step of `member`, or `None` if it stays as it is. `owned` is the member's report of its
/// partitions, if any; `is_held` tells if any member holds a partition.
pub(super) fn next(
    member: &Member,
    target_epoch: i32,
    owned: Option<&Partitions>,
    is_held: impl Fn(Partition) -> bool,
) -> Option<MemberUpdate> {
    let still_has = |holding: &OwnedPartitions| owned.is_none_or(|owned| holding.touches(owned));
    match member.state {
        MemberState::Stable if member.epoch == target_epoch => return None,
        MemberState::Unrevoked if still_has(&member.revoking) => return None,
        MemberState::Stable | MemberState::Unrevoked | MemberState::Unreleased => {}
    }
    let split = member.assigned.against(&member.target);
    if !split.surplus.is_empty() && still_has(&split.surplus) {
        return Some(MemberUpdate {
            state: MemberState::Unrevoked,
            epoch: member.epoch,
            assigned: split.kept,
            revoking: split.surplus,
        });
    }
    let mut assigned = split.kept;
    // A partition given back with this very heartbeat can be taken again by the member itself.
    let mine =
        |partition| member.revoking.since(partition).is_some() || split.surplus.since(partition).is_some();
    let (free, held): (Vec<_>, Vec<_>) = split
        .missing
        .into_iter()
        .partition(|partition| mine(*partition) || !is_held(*partition));
    if !free.is_empty() {
        assigned.add(&free, target_epoch);
    }
    let step = MemberUpdate {
        state: if held.is_empty() {
            MemberState::Stable
        } else {
            MemberState::Unreleased
        },
        epoch: target_epoch,
        assigned,
        revoking: OwnedPartitions::default(),
    };
    let same = step.state == member.state
        && step.epoch == member.epoch
        && step.assigned == member.assigned
        && member.revoking.is_empty();
    (!same).then_some(step)
}
