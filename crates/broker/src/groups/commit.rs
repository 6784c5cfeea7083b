//! Committing offsets, forgetting them, and deleting groups.
//!
//! A commit is seen as soon as it is staged, and acknowledged when it is as durable as the broker's settings say.

use std::sync::Arc;

use stafett_journal::Change;

use super::commits::Committed;
use super::error::GroupError;
use super::group::{Group, GroupState, Kind, Stepped};
use super::moment::wall_ms;
use super::registry::{Absent, Groups};
use super::stored::{self, COMMIT_SPACE};
use crate::topic::TopicId;

/// Who commits.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommittedBy<'a> {
    /// Empty: somebody who is no member.
    pub member: &'a str,
    pub instance: Option<&'a str>,
    /// The generation, or the epoch of the member. Below 0: somebody who is no member.
    pub epoch: i32,
}

/// An offset that is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    pub topic: TopicId,
    pub partition: u32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub text: Option<Box<str>>,
}

impl Groups {
    /// Stages a commit, all of it or nothing; [`Stepped::durable`] says when it is stored. Whoever is no member creates
    /// the group by it.
    pub fn commit(
        &self,
        group: &str,
        by: &CommittedBy<'_>,
        commits: Vec<NewCommit>,
    ) -> Result<Stepped<()>, GroupError> {
        let absent = if by.epoch < 0 {
            Absent::Create
        } else {
            Absent::Fail(GroupError::NoSuchGroup)
        };
        let stepped = self.try_step(group, absent, |group, now, effects| {
            effects.only_alive = true;
            group.kind.check_commit(by, &commits, now)?;
            Ok(self.put(group, commits))
        })?;
        let stored = stepped.value;
        Ok(Stepped { value: (), stored })
    }

    fn put(&self, group: &mut Group, commits: Vec<NewCommit>) -> Option<stafett_journal::Ticket> {
        if commits.is_empty() {
            return None;
        }
        let at = wall_ms();
        self.metrics
            .commits
            .inc_by(u64::try_from(commits.len()).unwrap_or(u64::MAX));
        let mut frames = Vec::with_capacity(commits.len());
        for commit in commits {
            let NewCommit {
                topic,
                partition,
                offset,
                leader_epoch,
                text,
            } = commit;
            let committed = Committed {
                offset,
                leader_epoch,
                at,
                text,
            };
            let key = stored::commit_key(&group.name, topic, partition);
            let value = stored::encode_commit(&committed);
            frames.push(stored::change(COMMIT_SPACE, key, Change::Put(value)));
            group.commits.put(topic, partition, committed);
        }
        Some(self.stage(frames))
    }

    /// Forgets commits that `is_allowed` allows to forget. Gives whether it did, for each; those that there are not
    /// are forgotten already.
    pub fn delete_commits(
        &self,
        group: &str,
        commits: &[(TopicId, u32)],
        is_allowed: impl FnOnce(&Group) -> Result<Vec<bool>, GroupError>,
    ) -> Result<Stepped<Vec<bool>>, GroupError> {
        self.check_named(group)?;
        let absent = Absent::Fail(GroupError::NoSuchGroup);
        let stepped = self.try_step(group, absent, |group, _, _| {
            let allowed = is_allowed(group)?;
            let mut frames = Vec::new();
            for ((topic, partition), _) in commits.iter().zip(&allowed).filter(|(_, allowed)| **allowed) {
                if group.commits.remove(*topic, *partition).is_some() {
                    let key = stored::commit_key(&group.name, *topic, *partition);
                    frames.push(stored::change(COMMIT_SPACE, key, Change::Delete));
                }
            }
            let ticket = (!frames.is_empty()).then(|| self.stage(frames));
            Ok((allowed, ticket))
        })?;
        let (value, stored) = stepped.value;
        Ok(Stepped { value, stored })
    }

    /// Deletes a group without members, and its commits.
    pub fn delete(&self, name: &str) -> Result<Stepped<()>, GroupError> {
        let mut shard = self.lock(self.shard(name));
        let group = shard.get(name).ok_or(GroupError::NoSuchGroup)?;
        if !group.kind.is_empty() {
            return Err(GroupError::NotEmpty);
        }
        let mut frames = Vec::new();
        self.remove(&mut shard, name, &mut frames);
        let stored = (!frames.is_empty()).then(|| self.stage(frames));
        Ok(Stepped { value: (), stored })
    }

    /// Forgets commits that have expired or whose topics are gone, and groups of which nothing is left.
    pub(super) fn sweep(&self) {
        let now = wall_ms();
        let retention = self.settings.commit_retention;
        let retention = retention.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        for shard in self.shards() {
            let mut shard = self.lock(shard);
            let mut frames = Vec::new();
            let mut left = Vec::new();
            for group in shard.values_mut() {
                let base = expires_from(group);
                let removed = group.commits.retain(|topic, committed| {
                    let is_expired = retention.zip(base).is_some_and(|(retention, base)| {
                        now.saturating_sub(base.max(committed.at)) >= retention
                    });
                    !is_expired && self.topics.with_id(topic).is_some()
                });
                self.metrics
                    .expired_commits
                    .inc_by(u64::try_from(removed.len()).unwrap_or(u64::MAX));
                for (topic, partition) in removed {
                    let key = stored::commit_key(&group.name, topic, partition);
                    frames.push(stored::change(COMMIT_SPACE, key, Change::Delete));
                }
                if group.commits.is_empty() && group.kind.is_idle() {
                    left.push(Arc::clone(&group.name));
                }
            }
            for name in left {
                self.remove(&mut shard, &name, &mut frames);
            }
            if !frames.is_empty() {
                drop(self.stage(frames));
            }
        }
    }

    /// The state of a group, if there is one.
    pub fn state(&self, name: &str) -> Option<GroupState> {
        self.look(name, |group| group.map(|group| group.kind.state()))
    }
}

/// From when a group's commits may expire, beside their own time: not while it has members.
fn expires_from(group: &Group) -> Option<i64> {
    if !group.kind.is_empty() {
        return None;
    }
    let is_known = group.kind.had_members() || group.kind.state().kind != Kind::Classic;
    Some(if is_known { group.empty_since } else { i64::MIN })
}
