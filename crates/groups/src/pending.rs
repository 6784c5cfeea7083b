//! Commits that wait for the end of a transaction, and count from its end on.
//!
//! They have the place of their request among all commits ([`super::CommittedOffset::order`]): a commit of
//! the same partition that came later, alone or with another transaction, is not replaced by them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stafett_journal::{Frame, StateWait, Ticket};
use stafett_store::appends;

use super::commit::{NewCommit, frame};
use super::commits::Changes;
use super::group::Group;
use super::registry::Groups;

/// Bytes of a commit in the journal, without its group and text.
const COMMIT_BYTES: usize = 128;
/// Commits of other cells' transactions in one append: they fit into the smallest segment.
const ENDED_TOGETHER: usize = 100;

/// Commits of a group that count with their transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCommits {
    pub group: Box<str>,
    /// Cell of the group.
    pub cell: u32,
    pub commits: Vec<NewCommit>,
    /// Wall time of the request, ms since 1970.
    pub at: i64,
    /// Place of the request among all commits, from [`Groups::next_order`].
    pub order: u64,
}

impl PendingCommits {
    /// Returns the approximate bytes that the commits take in the append of the end.
    pub fn bytes(&self) -> usize {
        let text = |commit: &NewCommit| commit.text.as_deref().map_or(0, str::len);
        let bytes = |commit| COMMIT_BYTES + self.group.len() + text(commit);
        self.commits.iter().map(bytes).sum()
    }
}

impl Groups {
    /// Returns the place of the next commit's request.
    pub fn next_order(&self) -> u64 {
        self.orders.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives places behind that of a stored commit only.
    pub fn order_after(&self, stored: u64) {
        self.orders.fetch_max(stored.saturating_add(1), Ordering::Relaxed);
    }

    /// Stages commits of a transaction that has ended in the first cell, in parts: they may come again. They
    /// are not kept there once they are stored here.
    pub fn stage_ended(&self, commits: &PendingCommits) -> Ticket {
        let append = |frames| {
            let parts = appends(frames, ENDED_TOGETHER, StateWait::Synced);
            self.journal.append(parts)
        };
        self.commit_together(&[commits], append)
    }

    /// Commits for several groups in one append, which `append` stages together with others. The commits
    /// were checked before. Groups that do not exist are created.
    pub fn commit_together(
        &self,
        commits: &[&PendingCommits],
        append: impl FnOnce(Vec<Frame>) -> Ticket,
    ) -> Ticket {
        let shards: BTreeSet<usize> = commits
            .iter()
            .map(|pending| self.shard_number(&pending.group))
            .collect();
        let mut locked: Vec<_> = shards
            .into_iter()
            .filter_map(|number| Some((number, self.shards().get(number)?.lock())))
            .collect();
        let mut frames = Vec::new();
        let mut staged = Vec::new();
        for pending in commits {
            let name = &*pending.group;
            let number = self.shard_number(name);
            let shard = locked.iter_mut().find(|(locked, _)| *locked == number);
            let group = shard.and_then(|(_, shard)| shard.get_mut(name));
            let changes = self.changes(pending.commits.iter().cloned(), pending.at, pending.order);
            let mut changes: Changes = changes.collect();
            if let Some(group) = group {
                group.commits.settle();
                changes.retain(|(topic, partition, _)| {
                    !group.commits.has_later((*topic, *partition), pending.order)
                });
            }
            frames.extend(changes.iter().map(|change| frame(name, change)));
            staged.push((name, number, changes));
        }
        let ticket = append(frames);
        for (name, number, changes) in staged {
            let Some((_, shard)) = locked.iter_mut().find(|(locked, _)| *locked == number) else {
                continue;
            };
            let group = match shard.get_mut(name) {
                Some(group) => group,
                None => self.insert(shard, Group::new(name.into(), self.clock.wall_ms())),
            };
            group.commits.stage(ticket.glance(), changes);
        }
        ticket
    }
}
