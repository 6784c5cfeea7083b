//! One group: its kind, its commits, its waiting requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_journal::Ticket;
use stafett_store::NotStored;
use tokio::sync::{Notify, oneshot};

use super::classic::ClassicGroup;
use super::commit::NewCommit;
use super::commit_counts::{CommitCounter, GroupCounts};
use super::commits::{CommitSender, Commits, CommittedOffset};
use super::consumer::Rules;
use super::effects::{Effects, MemberReply, WaiterId};
use super::error::GroupError;
use super::moment::Moment;
use super::stored;
use super::stored_consumer_group::StoredConsumerGroup;

/// A group, as the registry keeps it under its lock.
#[derive(Debug)]
pub struct Group {
    pub name: Arc<str>,
    /// Kind of the group. A group without members may become one of another kind: a step assigns it and asks
    /// for it to be stored.
    pub kind: GroupKind,
    pub commits: Commits,
    /// Since when the group has had no members, in ms since 1970; meaningless while it has some.
    pub empty_since: i64,
    /// True if the journal has state of the group other than commits.
    pub(super) is_stored: bool,
    /// Memory of its members after the last step that changed anything, in bytes.
    pub(super) bytes: usize,
    /// Number of its members with partitions assigned by the broker, after that step.
    pub(super) assigned_members: usize,
    /// State after that step, as shown in the metrics.
    pub(super) shown: GroupState,
    /// Time of its valid entry in the queue of deadlines; other entries are stale.
    pub(super) queued: Option<Moment>,
    /// Notified when the state changes or the group is removed; created on demand.
    pub(super) changed: Option<Arc<Notify>>,
    pub(super) counter: CommitCounter,
    waiting: BTreeMap<WaiterId, oneshot::Sender<MemberReply>>,
    next_waiter: u64,
}

/// State machine of a group. Pure: time is an argument, and all consequences are returned as [`Effects`].
#[derive(Debug)]
pub enum GroupKind {
    /// The members assign partitions among themselves. Also the kind of a group that has only commits.
    Classic(Box<ClassicGroup>),
    /// The broker assigns the partitions.
    Consumer(Box<StoredConsumerGroup>),
    /// The broker assigns the partitions, each to any number of members. Has no commits.
    Share(Box<StoredConsumerGroup>),
}

/// Kind of a group, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupProtocol {
    Classic,
    Consumer,
    Share,
}

/// State of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupState {
    pub kind: GroupProtocol,
    /// Name of the state: one word of a fixed set.
    pub name: &'static str,
}

/// Result of a step.
#[derive(Debug)]
#[must_use]
pub struct StepResult<T> {
    pub value: T,
    /// Resolves when the step is stored. `None` if it stores nothing, or if waiting requests are answered
    /// then.
    pub stored: Option<Ticket>,
}

impl<T> StepResult<T> {
    /// Waits until the stored state is as durable as commits are.
    pub async fn durable(self) -> Result<T, NotStored> {
        if let Some(ticket) = self.stored {
            stafett_store::all_outcomes(&ticket.await)?;
        }
        Ok(self.value)
    }
}

impl GroupProtocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Consumer => "consumer",
            Self::Share => "share",
        }
    }
}

impl GroupKind {
    pub fn state(&self) -> GroupState {
        match self {
            Self::Classic(group) => GroupState {
                kind: GroupProtocol::Classic,
                name: group.phase().name(),
            },
            Self::Consumer(group) => GroupState {
                kind: GroupProtocol::Consumer,
                name: group.state_name(),
            },
            Self::Share(group) => GroupState {
                kind: GroupProtocol::Share,
                name: group.state_name(),
            },
        }
    }

    /// Returns true if the group has no members, so that it can be deleted or change its kind.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) | Self::Share(group) => group.group().is_empty(),
        }
    }

    /// Returns the number of members with partitions assigned by the broker.
    pub(super) fn assigned_members(&self) -> usize {
        match self {
            Self::Classic(_) => 0,
            Self::Consumer(group) | Self::Share(group) => group.group().members().len(),
        }
    }

    /// Returns the group whose partitions the broker assigns, if it is of such a kind.
    pub(super) fn assigned_mut(&mut self) -> Option<&mut StoredConsumerGroup> {
        match self {
            Self::Classic(_) => None,
            Self::Consumer(group) | Self::Share(group) => Some(group),
        }
    }

    /// Returns true if the group has nothing but commits. A share group has its place in topics.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty() && group.pending_members() == 0,
            Self::Consumer(group) => group.group().is_empty(),
            Self::Share(_) => false,
        }
    }

    /// Returns true if the group ever had members: in other groups, commits expire one by one.
    pub(super) fn had_members(&self) -> bool {
        match self {
            Self::Classic(group) => group.purpose().is_some(),
            Self::Consumer(_) | Self::Share(_) => true,
        }
    }

    /// Returns the approximate memory of the members, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Classic(group) => group.bytes(),
            Self::Consumer(group) | Self::Share(group) => group.group().bytes(),
        }
    }

    /// Returns the time at which [`Self::tick`] has to be called.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match self {
            Self::Classic(group) => group.deadline(),
            Self::Consumer(group) | Self::Share(group) => group.deadline(),
        }
    }

    /// Handles everything due by `now`.
    pub(super) fn tick(&mut self, now: Moment, effects: &mut Effects) {
        match self {
            Self::Classic(group) => group.tick(now, effects),
            Self::Consumer(group) | Self::Share(group) => group.tick(now, effects),
        }
    }

    /// Checks that this member may commit now. A commit is also a sign of life.
    pub(super) fn check_commit(
        &mut self,
        by: &CommitSender<'_>,
        commits: &[NewCommit],
        now: Moment,
    ) -> Result<(), GroupError> {
        match self {
            Self::Classic(group) => group.check_commit(by, now),
            Self::Consumer(group) => group.check_commit(by, commits),
            // It has no commits: for them there is no such group.
            Self::Share(_) => Err(GroupError::NoSuchGroup),
        }
    }

    /// Checks that this member may fetch the commits. A request without a member may.
    pub fn check_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match self {
            Self::Classic(_) => Ok(()),
            Self::Consumer(group) => group.check_fetch(member, epoch),
            // It has no commits: for them there is no such group.
            Self::Share(_) => Err(GroupError::NoSuchGroup),
        }
    }

    /// Encodes the state, behind the byte of the kind ([`stored`]).
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Classic(group) => {
                out.push(stored::CLASSIC);
                group.encode(out);
            }
            Self::Consumer(group) => {
                out.push(stored::CONSUMER);
                out.extend(group.encode());
            }
            Self::Share(group) => {
                out.push(stored::SHARE);
                out.extend(group.encode());
            }
        }
    }

    /// Decodes stored state; sessions start anew at `now`. `None` if this version does not know the format.
    pub(super) fn decode(bytes: &[u8], rules: impl Fn(GroupProtocol) -> Rules, now: Moment) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            stored::CLASSIC => Self::Classic(Box::new(ClassicGroup::decode(rest, now)?)),
            stored::CONSUMER => {
                let group = StoredConsumerGroup::new(rules(GroupProtocol::Consumer));
                Self::Consumer(Box::new(group.restored(rest, now)?))
            }
            stored::SHARE => {
                let group = StoredConsumerGroup::sharing(rules(GroupProtocol::Share));
                Self::Share(Box::new(group.restored(rest, now)?))
            }
            _ => return None,
        })
    }

    /// Applies a stored change.
    pub(super) fn apply(&mut self, delta: &[u8], now: Moment) -> Option<()> {
        match self {
            // A classic group is always stored as a whole.
            Self::Classic(_) => None,
            Self::Consumer(group) | Self::Share(group) => group.apply(delta, now),
        }
    }
}

impl Group {
    /// Returns the bytes of its members and commits in memory, approximately.
    pub fn memory_bytes(&self) -> usize {
        let commits = self.commits.topics().map(|(_, partitions)| partitions.len());
        self.bytes + commits.sum::<usize>() * size_of::<(u32, CommittedOffset)>()
    }

    /// Returns the counters of its commits and its lag; `None` if it had no commits since the start.
    pub fn counts(&self) -> Option<&Arc<GroupCounts>> {
        self.counter.get()
    }

    pub(super) fn new(name: Arc<str>, wall_ms: i64) -> Self {
        let kind = GroupKind::Classic(Box::default());
        Self {
            name,
            shown: kind.state(),
            kind,
            commits: Commits::default(),
            empty_since: wall_ms,
            is_stored: false,
            bytes: 0,
            assigned_members: 0,
            queued: None,
            changed: None,
            counter: CommitCounter::default(),
            waiting: BTreeMap::new(),
            next_waiter: 0,
        }
    }

    /// Registers a waiting request. A caller that stops waiting drops the receiver.
    pub fn register_waiter(&mut self) -> (WaiterId, oneshot::Receiver<MemberReply>) {
        let waiter = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(waiter, sender);
        (waiter, receiver)
    }

    /// Notifies watchers that the group's state has changed.
    pub(super) fn notify_state_change(&self) {
        if let Some(changed) = &self.changed {
            changed.notify_waiters();
        }
    }

    /// Removes the waiting requests that `replies` are for, and returns them with their replies.
    pub(super) fn take_waiting(
        &mut self,
        replies: Vec<(WaiterId, MemberReply)>,
    ) -> Vec<(oneshot::Sender<MemberReply>, MemberReply)> {
        replies
            .into_iter()
            .filter_map(|(waiter, reply)| Some((self.waiting.remove(&waiter)?, reply)))
            .collect()
    }
}
