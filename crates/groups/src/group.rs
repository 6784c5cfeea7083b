//! One group: what kind it is, what it has committed, and who waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_journal::Ticket;
use stafett_store::NotStored;
use tokio::sync::{Notify, oneshot};

use super::assigned::AssignedGroup;
use super::classic::ClassicGroup;
use super::commit::{CommittedBy, NewCommit};
use super::commits::Commits;
use super::consumer::Rules;
use super::effects::{Answer, Effects, Wait};
use super::error::GroupError;
use super::moment::Moment;
use super::settings::Migration;
use super::stored;

/// A group, as the registry has it under its lock.
#[derive(Debug)]
pub struct Group {
    pub name: Arc<str>,
    /// A group without members may become one of another kind: assign it in a step, and ask for it to be
    /// stored.
    pub kind: GroupKind,
    pub commits: Commits,
    /// Since when it has had no members, in ms since 1970; meaningless while it has some.
    pub empty_since: i64,
    /// Whether the journal has state of it, other than commits.
    pub(super) is_stored: bool,
    /// What its members took in memory after the last step that changed anything.
    pub(super) bytes: usize,
    /// How many members the broker assigned partitions to then.
    pub(super) assigned_members: usize,
    /// What it was at then.
    pub(super) shown: GroupState,
    /// The entry in the queue of deadlines that counts; others are left-overs.
    pub(super) queued: Option<Moment>,
    /// Told when it is at something else, or gone; made when somebody wants to know.
    pub(super) changed: Option<Arc<Notify>>,
    waiting: BTreeMap<Wait, oneshot::Sender<Answer>>,
    next_wait: u64,
}

/// The state machine of a group. Pure: moments are arguments, what follows is in [`Effects`].
#[derive(Debug)]
pub enum GroupKind {
    /// Members agree among themselves; also a group that nobody ever joined, and that only has commits.
    Classic(Box<ClassicGroup>),
    /// The broker decides.
    Consumer(Box<AssignedGroup>),
}

/// The name of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Classic,
    Consumer,
}

/// What a group is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupState {
    pub kind: Kind,
    /// One word of a fixed set.
    pub name: &'static str,
}

/// What came of a step.
#[derive(Debug)]
#[must_use]
pub struct Stepped<T> {
    pub value: T,
    /// Resolves when the step is stored. `None` if it stores nothing, or if others get their answers by it.
    pub stored: Option<Ticket>,
}

impl<T> Stepped<T> {
    /// Waits until what was stored is as durable as commits are.
    pub async fn durable(self) -> Result<T, NotStored> {
        if let Some(ticket) = self.stored {
            stafett_store::all_outcomes(&ticket.await)?;
        }
        Ok(self.value)
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Consumer => "consumer",
        }
    }
}

impl GroupKind {
    pub fn state(&self) -> GroupState {
        match self {
            Self::Classic(group) => GroupState {
                kind: Kind::Classic,
                name: group.phase().name(),
            },
            Self::Consumer(group) => GroupState {
                kind: Kind::Consumer,
                name: group.state_name(),
            },
        }
    }

    /// Whether it has no members, and could be deleted or become another kind.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.group().is_empty(),
        }
    }

    /// Members that the broker assigns partitions to.
    pub(super) fn assigned_members(&self) -> usize {
        match self {
            Self::Classic(_) => 0,
            Self::Consumer(group) => group.group().members().len(),
        }
    }

    /// Whether nothing but commits would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty() && group.pending_members() == 0,
            Self::Consumer(group) => group.group().is_empty(),
        }
    }

    /// Whether anybody ever joined: commits of other groups expire one by one.
    pub(super) fn had_members(&self) -> bool {
        match self {
            Self::Classic(group) => group.purpose().is_some(),
            Self::Consumer(_) => true,
        }
    }

    /// What its members take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Classic(group) => group.bytes(),
            Self::Consumer(group) => group.group().bytes(),
        }
    }

    /// When it wants [`Self::tick`] to be called.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match self {
            Self::Classic(group) => group.deadline(),
            Self::Consumer(group) => group.deadline(),
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, migration: Migration, now: Moment, effects: &mut Effects) {
        match self {
            Self::Classic(group) => group.tick(now, effects),
            Self::Consumer(group) => group.tick(now, effects),
        }
        self.downgrade_if_classic(migration, now, effects);
    }

    /// Whether this member may commit now. A commit is also a sign of life.
    pub(super) fn check_commit(
        &mut self,
        by: &CommittedBy<'_>,
        commits: &[NewCommit],
        now: Moment,
    ) -> Result<(), GroupError> {
        match self {
            Self::Classic(group) => group.check_commit(by, now),
            Self::Consumer(group) => group.check_commit(by, commits),
        }
    }

    /// Whether this member may ask how far the group has come. Who says of itself no member, may.
    pub fn check_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match self {
            Self::Classic(_) => Ok(()),
            Self::Consumer(group) => group.check_fetch(member, epoch),
        }
    }

    /// What is stored of it, behind the byte that names the kind ([`stored`]).
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
        }
    }

    /// Reads what was stored; sessions start anew at `now`. `None` if this version of the program does not
    /// know it.
    pub(super) fn decode(bytes: &[u8], rules: Rules, now: Moment) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            stored::CLASSIC => Some(Self::Classic(Box::new(ClassicGroup::decode(rest, now)?))),
            stored::CONSUMER => Some(Self::Consumer(Box::new(AssignedGroup::decode(rest, rules, now)?))),
            _ => None,
        }
    }

    /// Applies what was stored as a difference.
    pub(super) fn apply(&mut self, delta: &[u8], now: Moment) -> Option<()> {
        match self {
            // A classic group is always stored as a whole.
            Self::Classic(_) => None,
            Self::Consumer(group) => group.apply(delta, now),
        }
    }
}

impl Group {
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
            waiting: BTreeMap::new(),
            next_wait: 0,
        }
    }

    /// Lets somebody wait for an answer. Who goes away just drops the receiver.
    pub fn wait(&mut self) -> (Wait, oneshot::Receiver<Answer>) {
        let wait = Wait(self.next_wait);
        self.next_wait += 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(wait, sender);
        (wait, receiver)
    }

    /// Tells whoever wants to know that it is not at what it was.
    pub(super) fn on_other_state(&self) {
        if let Some(changed) = &self.changed {
            changed.notify_waiters();
        }
    }

    /// Whose answers these are.
    pub(super) fn take_waiting(
        &mut self,
        answers: Vec<(Wait, Answer)>,
    ) -> Vec<(oneshot::Sender<Answer>, Answer)> {
        answers
            .into_iter()
            .filter_map(|(wait, answer)| Some((self.waiting.remove(&wait)?, answer)))
            .collect()
    }
}
