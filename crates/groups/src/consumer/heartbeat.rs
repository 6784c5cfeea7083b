//! Heartbeats: the members' reports and the answers. A refused heartbeat changes nothing.

use stafett_topics::TopicSource;

use super::assign::Assignor;
use super::group::{ConsumerGroup, Rules};
use super::member::{
    EPOCH_JOIN, EPOCH_LEAVE, EPOCH_LEAVE_STATIC, InterestId, Member, MemberState, UnstoredParts,
};
use super::partitions::Partitions;
use super::reconcile;
use super::subscription::{PatternError, Subscription};

/// Report of a member. `None` leaves a field unchanged.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat {
    pub member: Box<str>,
    /// Epoch of the member, or one of the requests [`EPOCH_JOIN`], [`EPOCH_LEAVE`] and
    /// [`EPOCH_LEAVE_STATIC`].
    pub epoch: i32,
    pub instance: Option<Box<str>>,
    pub rack: Option<Box<str>>,
    pub client_id: Box<str>,
    pub host: Box<str>,
    pub rebalance_timeout_ms: Option<u32>,
    pub names: Option<Vec<Box<str>>>,
    /// Pattern of topic names; an empty one removes the pattern.
    pub pattern: Option<Box<str>>,
    pub assignor: Option<Assignor>,
    /// Partitions that the member owns.
    pub owned: Option<Partitions>,
    /// Id of the connection that it came over; `None` if an answer cannot be lost.
    pub connection: Option<u64>,
}

/// Reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    pub epoch: i32,
    /// Partitions that the member may consume, if they changed or it asked for them.
    pub assignment: Option<Partitions>,
    /// True if it waits for partitions that others have to give back: it should ask again soon.
    pub waits: bool,
}

/// Refusal of a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    #[error("{0} is not a member of the group")]
    UnknownMember(Box<str>),
    #[error("static member {0} is not in the group")]
    UnknownInstance(Box<str>),
    #[error(
        "the member believes in epoch {given}, and it is at {current}: it has to give up everything and join again"
    )]
    FencedEpoch { given: i32, current: i32 },
    #[error("static member {instance} is with {owner}")]
    FencedInstance { instance: Box<str>, owner: Box<str> },
    #[error("static member {instance} is with {owner}, which has not left")]
    UnreleasedInstance { instance: Box<str>, owner: Box<str> },
    #[error("the group has {0} members, and can take no more")]
    Full(usize),
    #[error("the pattern of topics is wrong: {0}")]
    Pattern(#[from] PatternError),
}

impl Heartbeat {
    /// Returns the approximate bytes that a group may have to keep of it.
    pub fn bytes(&self) -> usize {
        let names = self
            .names
            .iter()
            .flatten()
            .map(|name| name.len() + size_of::<Box<str>>());
        names.sum::<usize>() + self.member.len() + self.pattern.as_ref().map_or(0, |pattern| pattern.len())
    }

    /// Returns true if the report is complete, which asks for a complete answer.
    fn is_full(&self) -> bool {
        self.rebalance_timeout_ms.is_some()
            && (self.names.is_some() || self.pattern.is_some())
            && self.owned.is_some()
    }
}

/// Kind of sender of a heartbeat.
enum Sender {
    Member,
    /// A new member.
    New,
    /// A static member that returns under a new id, which replaces this one.
    Returning(Box<str>),
}

impl ConsumerGroup {
    pub fn heartbeat(
        &mut self,
        beat: Heartbeat,
        source: &dyn TopicSource,
        rules: &Rules,
        now_ms: u64,
    ) -> Result<HeartbeatReply, HeartbeatError> {
        match beat.epoch {
            EPOCH_LEAVE => self.leave(&beat),
            EPOCH_LEAVE_STATIC => self.leave_for_now(&beat, now_ms),
            _ => self.report(beat, source, rules, now_ms),
        }
    }

    fn report(
        &mut self,
        beat: Heartbeat,
        source: &dyn TopicSource,
        rules: &Rules,
        now_ms: u64,
    ) -> Result<HeartbeatReply, HeartbeatError> {
        let sender = self.sender(&beat, rules)?;
        let base = match &sender {
            Sender::Member => Some(&*beat.member),
            Sender::Returning(owner) => Some(&**owner),
            Sender::New => None,
        };
        // From here on, look-ups see topics at least as new as `follow_topics` did.
        let topics_changed = self.follow_topics(source);
        let interest = self.wanted(base.map(Box::from), &beat, source)?;
        let is_new = matches!(sender, Sender::New);
        let has_names = beat.names.is_some();
        match sender {
            Sender::Member => {}
            Sender::New => self.join(&beat, interest, now_ms),
            Sender::Returning(owner) => self.replace(&owner, &beat),
        }
        let wants_else = self.describe(&beat, interest, now_ms);
        let differs = (is_new || wants_else || topics_changed) && self.topics_differ();
        if is_new || wants_else || differs {
            self.bump();
        }
        self.assign();
        let changed = self.advance(&beat.member, beat.owned.as_ref(), now_ms);
        self.wake_for(&beat.member, rules);
        let shares = self.shares();
        let Some(member) = self.members.get_mut(&beat.member) else {
            return Err(HeartbeatError::UnknownMember(beat.member));
        };
        // A member that shares partitions never reports them. It missed an answer if it reports its
        // subscription or an earlier epoch.
        let missed_one = if shares {
            has_names || beat.epoch != member.epoch
        } else {
            member.missed_answer(changed, &beat)
        };
        let is_told = changed || beat.epoch == EPOCH_JOIN || beat.is_full() || missed_one;
        Ok(HeartbeatReply {
            epoch: member.epoch,
            assignment: is_told.then(|| member.assigned.partitions()),
            waits: member.state == MemberState::Unreleased,
        })
    }

    /// Determines the sender of a heartbeat, and checks it.
    fn sender(&self, beat: &Heartbeat, rules: &Rules) -> Result<Sender, HeartbeatError> {
        let is_joining = beat.epoch == EPOCH_JOIN;
        if is_joining && self.members.len() >= rules.members_max && !self.members.contains_key(&beat.member) {
            return Err(HeartbeatError::Full(self.members.len()));
        }
        if is_joining && let Some(instance) = &beat.instance {
            let Some(owner) = self.instances.get(instance) else {
                return Ok(self.joining(beat));
            };
            let has_left = self
                .members
                .get(owner)
                .is_none_or(|member| member.epoch == EPOCH_LEAVE_STATIC);
            return if has_left {
                Ok(Sender::Returning(owner.clone()))
            } else {
                Err(HeartbeatError::UnreleasedInstance {
                    instance: instance.clone(),
                    owner: owner.clone(),
                })
            };
        }
        if is_joining {
            return Ok(self.joining(beat));
        }
        let member = self.known(beat)?;
        self.check_epoch(member, beat)?;
        Ok(Sender::Member)
    }

    fn joining(&self, beat: &Heartbeat) -> Sender {
        if self.members.contains_key(&beat.member) {
            Sender::Member
        } else {
            Sender::New
        }
    }

    /// Returns the member that sent the heartbeat of an existing member.
    fn known(&self, beat: &Heartbeat) -> Result<&Member, HeartbeatError> {
        if let Some(instance) = &beat.instance {
            let owner = self
                .instances
                .get(instance)
                .ok_or_else(|| HeartbeatError::UnknownInstance(instance.clone()))?;
            if *owner != beat.member {
                return Err(HeartbeatError::FencedInstance {
                    instance: instance.clone(),
                    owner: owner.clone(),
                });
            }
        }
        self.member(&beat.member)
            .ok_or_else(|| HeartbeatError::UnknownMember(beat.member.clone()))
    }

    /// Returns the interest of the member from now on; `base` is the member itself or the one that it
    /// replaces.
    fn wanted(
        &mut self,
        base: Option<Box<str>>,
        beat: &Heartbeat,
        source: &dyn TopicSource,
    ) -> Result<InterestId, HeartbeatError> {
        let before = base.and_then(|id| self.members.get(&id));
        let known = before.and_then(|member| self.subscription(member));
        if let Some(member) = before
            && beat.names.is_none()
            && beat.pattern.is_none()
        {
            return Ok(member.interest);
        }
        let names = match (&beat.names, known) {
            (Some(names), _) => names.clone(),
            (None, Some(known)) => known.names().to_vec(),
            (None, None) => Vec::new(),
        };
        let pattern = match (&beat.pattern, known) {
            (Some(pattern), _) => Some(pattern.clone()),
            (None, Some(known)) => known.pattern().map(Box::from),
            (None, None) => None,
        };
        let id = self.interest(Subscription::new(names, pattern))?;
        if let Some(interest) = self.interests.get_mut(&id)
            && interest.members == 0
        {
            interest.resolve(source);
        }
        Ok(id)
    }

    fn join(&mut self, beat: &Heartbeat, interest: InterestId, now_ms: u64) {
        self.insert(Member {
            id: beat.member.clone(),
            instance: beat.instance.clone(),
            rack: beat.rack.clone(),
            client_id: beat.client_id.clone(),
            host: beat.host.clone(),
            rebalance_timeout_ms: beat.rebalance_timeout_ms.unwrap_or_default(),
            assignor: beat.assignor,
            interest,
            ..Member::empty(now_ms)
        });
    }

    /// Gives a static member that had left its new id. It keeps its partitions.
    fn replace(&mut self, owner: &str, beat: &Heartbeat) {
        let Some(interest) = self.members.get(owner).map(|member| member.interest) else {
            return;
        };
        self.keep_interest(interest);
        if let Some(mut member) = self.remove(owner) {
            member.id = beat.member.clone();
            member.epoch = EPOCH_JOIN;
            member.previous_epoch = EPOCH_JOIN;
            self.insert(member);
        }
        self.leave_interest(interest);
    }

    /// Updates the member from its report. True if its interest changed.
    fn describe(&mut self, beat: &Heartbeat, interest: InterestId, now_ms: u64) -> bool {
        let wants_else = self.set_interest(&beat.member, interest);
        let Some(member) = self.members.get_mut(&beat.member) else {
            return false;
        };
        member.seen_ms = now_ms;
        let mut is_new = wants_else;
        if beat.epoch == EPOCH_JOIN && member.classic.take().is_some() {
            // The member now uses the new protocol.
            is_new = true;
        }
        if member.client_id != beat.client_id {
            member.client_id.clone_from(&beat.client_id);
            is_new = true;
        }
        if member.host != beat.host {
            member.host.clone_from(&beat.host);
            is_new = true;
        }
        if beat.rack.is_some() && member.rack != beat.rack {
            member.rack.clone_from(&beat.rack);
            is_new = true;
        }
        if let Some(timeout) = beat.rebalance_timeout_ms
            && member.rebalance_timeout_ms != timeout
        {
            member.rebalance_timeout_ms = timeout;
            is_new = true;
        }
        if beat.assignor.is_some() && member.assignor != beat.assignor {
            member.assignor = beat.assignor;
            is_new = true;
        }
        if is_new {
            let parts = UnstoredParts {
                description: true,
                ..UnstoredParts::default()
            };
            self.on_changed(&beat.member, parts);
        }
        wants_else
    }

    /// Takes the member's next step. True if its assigned partitions changed.
    fn advance(&mut self, id: &str, owned: Option<&Partitions>, now_ms: u64) -> bool {
        let Some(member) = self.members.get(id) else {
            return false;
        };
        let step = if self.shares() {
            reconcile::whole_target(member, self.target_epoch)
        } else {
            reconcile::next(member, self.target_epoch, owned, |partition| {
                self.is_held(partition)
            })
        };
        let Some(step) = step else {
            return false;
        };
        let changed = self.apply_update(id, step);
        if let Some(member) = self.members.get_mut(id) {
            member.revoke_by_ms = (member.state == MemberState::Unrevoked)
                .then(|| now_ms.saturating_add(u64::from(member.rebalance_timeout_ms)));
        }
        changed
    }

    pub(crate) fn leave(&mut self, beat: &Heartbeat) -> Result<HeartbeatReply, HeartbeatError> {
        self.known(beat)?;
        self.put_out(&beat.member);
        Ok(HeartbeatReply {
            epoch: EPOCH_LEAVE,
            assignment: None,
            waits: false,
        })
    }

    /// Handles the temporary leave of a static member: it keeps its partitions for the session timeout.
    fn leave_for_now(&mut self, beat: &Heartbeat, now_ms: u64) -> Result<HeartbeatReply, HeartbeatError> {
        self.known(beat)?;
        if let Some(member) = self.members.get(&beat.member) {
            let step = reconcile::MemberUpdate {
                state: MemberState::Stable,
                epoch: EPOCH_LEAVE_STATIC,
                assigned: member.assigned.clone(),
                // The member has stopped: partitions that it was to give back are free.
                revoking: super::OwnedPartitions::default(),
            };
            self.apply_update(&beat.member, step);
        }
        if let Some(member) = self.members.get_mut(&beat.member) {
            member.seen_ms = now_ms;
            member.revoke_by_ms = None;
        }
        Ok(HeartbeatReply {
            epoch: EPOCH_LEAVE_STATIC,
            assignment: None,
            waits: false,
        })
    }

    /// Removes a member; its partitions go to the others.
    pub(super) fn put_out(&mut self, id: &str) -> Option<Member> {
        let member = self.remove(id)?;
        self.bump();
        Some(member)
    }

    /// Checks the epoch. A member may be one epoch behind if it owns nothing else than assigned: an answer
    /// was lost.
    fn check_epoch(&self, member: &Member, beat: &Heartbeat) -> Result<(), HeartbeatError> {
        let owned = beat.owned.as_ref();
        let owns_no_more = || owned.is_some_and(|owned| member.assigned.covers(owned));
        let is_current = beat.epoch == member.epoch;
        let missed_one = beat.epoch < member.epoch
            && beat.epoch == member.previous_epoch
            && (self.shares() || owns_no_more());
        if is_current || missed_one {
            Ok(())
        } else {
            Err(HeartbeatError::FencedEpoch {
                given: beat.epoch,
                current: member.epoch,
            })
        }
    }
}
