//! Committing offsets, and deleting them.
//!
//! A commit becomes visible and is acknowledged once it is as durable as the settings demand. A refused one
//! was never visible.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Change, Frame, Ticket};
use stafett_model::EVENTS;
use stafett_store::{NotStored, spaces};
use stafett_topics::TopicId;

use super::commits::{Changes, CommitSender, CommittedOffset, PartitionChange};
use super::deletion::removal_frames;
use super::error::GroupError;
use super::group::{Group, GroupProtocol, GroupState};
use super::registry::{Groups, IfAbsent};
use super::stored;

/// Commits of one request that are stored together or not at all, as an append lies in one write group.
pub const COMMITS_TOGETHER: usize = 1000;

/// Offset to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    pub topic: TopicId,
    pub partition: u32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub text: Option<Box<str>>,
}

/// Commits being stored, in parts of [`COMMITS_TOGETHER`].
#[derive(Debug, Default)]
#[must_use]
pub struct CommitTicket(SmallVec<[Ticket; 1]>);

impl CommitTicket {
    /// Returns true if there was nothing to commit.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a part is refused already.
    pub fn is_refused(&self) -> bool {
        self.0
            .iter()
            .any(|ticket| ticket.glance().committed() == Some(false))
    }

    /// Adds another part.
    pub fn and(mut self, part: Option<Ticket>) -> Self {
        self.0.extend(part);
        self
    }

    /// Waits until all parts are as durable as commits are. Returns the result of each part.
    pub async fn parts(self) -> SmallVec<[Result<(), NotStored>; 1]> {
        let mut parts = SmallVec::with_capacity(self.0.len());
        for ticket in self.0 {
            parts.push(stafett_store::all_outcomes(&ticket.await));
        }
        parts
    }

    /// Waits for all parts. Returns the first error.
    pub async fn durable(self) -> Result<(), NotStored> {
        self.parts().await.into_iter().collect()
    }
}

impl Groups {
    /// Stages commits if all of them are allowed; [`CommitTicket`] tells when they are stored. A commit of a
    /// sender that is not a member creates the group, unless there is nothing to commit.
    pub fn commit(
        &self,
        group: &str,
        by: &CommitSender<'_>,
        commits: Vec<NewCommit>,
    ) -> Result<CommitTicket, GroupError> {
        let is_outsider = by.epoch < 0;
        let is_nothing = commits.is_empty();
        let absent = if is_outsider && !is_nothing {
            IfAbsent::Create
        } else {
            IfAbsent::Fail(GroupError::NoSuchGroup)
        };
        let stepped = self.try_step(group, absent, |group, now, effects| {
            effects.only_alive = true;
            group.kind.check_commit(by, &commits, now)?;
            Ok(self.put(group, commits))
        });
        match stepped {
            Err(GroupError::NoSuchGroup) if is_outsider && is_nothing => Ok(CommitTicket::default()),
            stepped => Ok(stepped?.value),
        }
    }

    fn put(&self, group: &mut Group, commits: Vec<NewCommit>) -> CommitTicket {
        let changes = self.changes(commits, self.clock.wall_ms(), self.next_order());
        self.stage_commits(group, changes)
    }

    /// Dates commits and gives them their place, and counts them.
    pub(super) fn changes<C: IntoIterator<Item = NewCommit, IntoIter: ExactSizeIterator>>(
        &self,
        commits: C,
        at: i64,
        order: u64,
    ) -> impl Iterator<Item = PartitionChange> + use<C> {
        let commits = commits.into_iter();
        self.metrics
            .commits
            .inc_by(u64::try_from(commits.len()).unwrap_or(u64::MAX));
        commits.map(move |commit| {
            let NewCommit {
                topic,
                partition,
                offset,
                leader_epoch,
                text,
            } = commit;
            let committed = CommittedOffset {
                offset,
                leader_epoch,
                at,
                order,
                text,
            };
            (topic, partition, Some(committed))
        })
    }

    /// Checks that a sender may commit now. A group that does not exist takes commits of a sender that is not
    /// a member.
    pub fn check_commit(
        &self,
        group: &str,
        by: &CommitSender<'_>,
        commits: &[NewCommit],
    ) -> Result<(), GroupError> {
        let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
        let checked = self.try_step(group, absent, |group, now, effects| {
            effects.only_alive = true;
            group.kind.check_commit(by, commits, now)
        });
        match checked {
            Err(GroupError::NoSuchGroup) if by.epoch < 0 => Ok(()),
            checked => checked.map(|_| ()),
        }
    }

    /// Stages changes of a group's commits.
    fn stage_commits(
        &self,
        group: &mut Group,
        changes: impl Iterator<Item = PartitionChange>,
    ) -> CommitTicket {
        let mut tickets = SmallVec::new();
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let part: Changes = changes.by_ref().take(COMMITS_TOGETHER).collect();
            let commits = part
                .iter()
                .filter(|(_, _, committed)| committed.is_some())
                .count();
            group.counter.add(&self.sampler, commits as u64);
            let frames = part.iter().map(|change| frame(&group.name, change)).collect();
            let ticket = self.stage(frames);
            group.commits.stage(ticket.glance(), part);
            tickets.push(ticket);
        }
        CommitTicket(tickets)
    }

    /// Deletes the commits that `is_allowed` permits. Returns its verdict for each; deleting a commit that
    /// does not exist succeeds.
    pub fn delete_commits(
        &self,
        group: &str,
        commits: &[(TopicId, u32)],
        is_allowed: impl FnOnce(&Group) -> Result<Vec<bool>, GroupError>,
    ) -> Result<(Vec<bool>, CommitTicket), GroupError> {
        self.check_named(group)?;
        let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
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

    /// Deletes expired commits, commits of deleted topics, and groups with nothing left.
    pub(super) fn sweep(&self) {
        let now = self.clock.now_ms();
        let retention = self.settings.commit_retention;
        let retention = retention.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
        for shard in self.shards() {
            let mut shard = self.lock(shard);
            let mut frames = Vec::new();
            let mut left = Vec::new();
            for group in shard.values_mut() {
                group.commits.settle();
                if group.commits.has_staged() {
                    // A staged commit must not be overtaken by a deletion staged now: retry in a later sweep.
                    continue;
                }
                let base = expires_from(group).map(|date| self.clock.steady_date(date));
                let removed = group.commits.retain(|topic, committed| {
                    let is_expired = retention.zip(base).is_some_and(|(retention, base)| {
                        let committed = self.clock.steady_date(committed.at);
                        now.saturating_sub(base.max(committed)) >= retention
                    });
                    !is_expired && self.topics.with_id(topic).is_some()
                });
                self.metrics
                    .expired_commits
                    .inc_by(u64::try_from(removed.len()).unwrap_or(u64::MAX));
                if !removed.is_empty() {
                    group.counter.on_removed();
                }
                for (topic, partition) in removed {
                    let key = stored::commit_key(&group.name, topic, partition);
                    frames.push(spaces::COMMITS.delete(key));
                }
                if group.commits.is_empty() && group.kind.is_idle() {
                    left.push(Arc::clone(&group.name));
                }
            }
            for name in &left {
                if let Some(group) = self.remove(&mut shard, name) {
                    frames.append(&mut removal_frames(&group));
                }
            }
            if !frames.is_empty() {
                drop(self.stage(frames));
            }
            drop(shard);
            for name in left {
                tracing::info!(target: EVENTS, kind = "group.deleted", %name, "expired: without members, and without commits");
            }
        }
    }

    /// Returns the state of a group, or `None` if it does not exist.
    pub fn state(&self, name: &str) -> Option<GroupState> {
        self.with_group(name, |group| group.map(|group| group.kind.state()))
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

/// Returns the earliest time from which a group's commits count as unused. `None` if the group has members.
fn expires_from(group: &Group) -> Option<i64> {
    if !group.kind.is_empty() {
        return None;
    }
    let is_known = group.kind.had_members() || group.kind.state().kind != GroupProtocol::Classic;
    Some(if is_known { group.empty_since } else { i64::MIN })
}
