//! Permission to commit and fetch offsets of a group.

use super::group::ConsumerGroup;
use super::member::Member;
use super::partitions::Partition;

/// Refusal of a commit or a fetch of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("there is no such member of the group")]
    UnknownMember,
    #[error("the member believes in epoch {given}, and it is at {current}")]
    StaleEpoch { given: i32, current: i32 },
    #[error("the member is in another generation")]
    OtherGeneration,
}

impl ConsumerGroup {
    /// Checks that a member may commit offsets of these partitions. A member that is behind may still commit
    /// those that it has held since its epoch. A sender without an epoch may if the group has no members.
    pub fn check_commit(
        &self,
        member: &str,
        epoch: i32,
        partitions: impl IntoIterator<Item = Partition>,
    ) -> Result<(), CommitError> {
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self.member(member).ok_or(CommitError::UnknownMember)?;
        let stale = if member.classic.is_some() {
            CommitError::OtherGeneration
        } else {
            CommitError::StaleEpoch {
                given: epoch,
                current: member.epoch,
            }
        };
        if epoch == member.epoch {
            return Ok(());
        }
        if epoch > member.epoch {
            return Err(stale);
        }
        let is_behind = |partition| held_since(member, partition).is_none_or(|since| since > epoch);
        if partitions.into_iter().any(is_behind) {
            return Err(stale);
        }
        Ok(())
    }

    /// Checks that a member may fetch the group's offsets. A request with neither member nor epoch may.
    pub fn check_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), CommitError> {
        if member.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = member
            .and_then(|id| self.member(id))
            .ok_or(CommitError::UnknownMember)?;
        if epoch == member.epoch {
            Ok(())
        } else {
            Err(CommitError::StaleEpoch {
                given: epoch,
                current: member.epoch,
            })
        }
    }
}

fn held_since(member: &Member, partition: Partition) -> Option<i32> {
    let assigned = member.assigned.since(partition);
    assigned.or_else(|| member.revoking.since(partition))
}
