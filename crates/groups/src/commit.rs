//! Committing offsets, and forgetting them.
//!
//! A commit is seen and acknowledged when it is as durable as the broker's settings say. One that the journal
//! refuses was never there.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Change, Frame, Ticket};
use stafett_store::{NotStored, spaces, wall_ms};
use stafett_topics::TopicId;

use super::commits::{Changes, Committed, PartitionChange};
use super::deletion::forgetting;
use super::error::GroupError;
use super::group::{Group, GroupState, Kind};
use super::registry::{Absent, Groups};
use super::stored;

/// Commits of one request that are stored together or not at all: an append lies in one write group.
pub const COMMITS_TOGETHER: usize = 1000;

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

/// Commits that are on their way, each [`COMMITS_TOGETHER`] of them together.
#[derive(Debug)]
#[must_use]
pub struct Committing(SmallVec<[Ticket; 1]>);

impl Committing {
    /// Whether there was nothing to commit.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all is as durable as commits are, and says of each part whether it is stored.
    pub async fn parts(self) -> SmallVec<[Result<(), NotStored>; 1]> {
        let mut parts = SmallVec::with_capacity(self.0.len());
        for ticket in self.0 {
            parts.push(stafett_store::all_outcomes(&ticket.await));
        }
        parts
    }

    /// Waits for all of it; gives the first failure.
    pub async fn durable(self) -> Result<(), NotStored> {
        self.parts().await.into_iter().collect()
    }
}

impl Groups {
    /// Stages commits if all of them may be; [`Committing`] says when they are stored. Whoever is no member
    /// creates the group by it.
    pub fn commit(
        &self,
        group: &str,
        by: &CommittedBy<'_>,
        commits: Vec<NewCommit>,
    ) -> Result<Committing, GroupError> {
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
        Ok(stepped.value)
    }

    fn put(&self, group: &mut Group, commits: Vec<NewCommit>) -> Committing {
        let at = wall_ms();
        self.metrics
            .commits
            .inc_by(u64::try_from(commits.len()).unwrap_or(u64::MAX));
        let changes = commits.into_iter().map(|commit| {
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
            (topic, partition, Some(committed))
        });
        self.stage_commits(group, changes)
    }

    /// Stages changes of a group's commits.
    fn stage_commits(&self, group: &mut Group, changes: impl Iterator<Item = PartitionChange>) -> Committing {
        let mut tickets = SmallVec::new();
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let part: Changes = changes.by_ref().take(COMMITS_TOGETHER).collect();
            let frames = part.iter().map(|change| frame(&group.name, change)).collect();
            let ticket = self.stage(frames);
            group.commits.stage(ticket.glance(), part);
            tickets.push(ticket);
        }
        Committing(tickets)
    }

    /// Forgets commits that `is_allowed` allows to forget. Gives whether it did, for each; those that there
    /// are not are forgotten already.
    pub fn delete_commits(
        &self,
        group: &str,
        commits: &[(TopicId, u32)],
        is_allowed: impl FnOnce(&Group) -> Result<Vec<bool>, GroupError>,
    ) -> Result<(Vec<bool>, Committing), GroupError> {
        self.check_named(group)?;
        let absent = Absent::Fail(GroupError::NoSuchGroup);
        let stepped = self.try_step(group, absent, |group, _, _| {
            let allowed = is_allowed(group)?;
            let is_there = |place: &(TopicId, u32)| group.commits.may_have(place.0, place.1);
            let pairs = commits.iter().zip(&allowed);
            let gone: Vec<(TopicId, u32)> = pairs
                .filter_map(|(place, allowed)| (*allowed && is_there(place)).then_some(*place))
                .collect();
            let changes = gone
                .into_iter()
                .map(|(topic, partition)| (topic, partition, None));
            Ok((allowed, self.stage_commits(group, changes)))
        })?;
        Ok(stepped.value)
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
                group.commits.settle();
                if group.commits.has_staged() {
                    // A commit that is on its way comes before a deletion that would be staged now.
                    continue;
                }
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
                    frames.push(spaces::COMMITS.delete(key));
                }
                if group.commits.is_empty() && group.kind.is_idle() {
                    left.push(Arc::clone(&group.name));
                }
            }
            for name in left {
                if let Some(group) = self.remove(&mut shard, &name) {
                    frames.append(&mut forgetting(&group));
                }
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

pub(super) fn frame(group: &str, (topic, partition, committed): &PartitionChange) -> Frame {
    let key = stored::commit_key(group, *topic, *partition);
    let change = match committed {
        Some(committed) => Change::Put(stored::encode_commit(committed)),
        None => Change::Delete,
    };
    spaces::COMMITS.change(key, change)
}

/// From when a group's commits may expire, beside their own time: not while it has members.
fn expires_from(group: &Group) -> Option<i64> {
    if !group.kind.is_empty() {
        return None;
    }
    let is_known = group.kind.had_members() || group.kind.state().kind != Kind::Classic;
    Some(if is_known { group.empty_since } else { i64::MIN })
}
