//! A group: its members, its epochs, and the members' targets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use stafett_topics::{TopicShape, TopicSource};

use super::assign::{self, Applicant, Assignor, Task};
use super::member::{InterestId, Member, UnstoredParts};
use super::partitions::{Partition, Partitions};
use super::reconcile::MemberUpdate;
use super::subscription::{Interest, PatternError, Subscription};

/// Rules of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Session timeout: a silent member is removed after this time.
    pub session_ms: u64,
    /// Longest heartbeat interval that members are told.
    pub heartbeat_ms: u32,
    /// Shortest heartbeat interval of members that have their whole target.
    pub heartbeat_ms_min: u32,
    pub members_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            session_ms: 45_000,
            heartbeat_ms: 5_000,
            heartbeat_ms_min: 1_000,
            members_max: 10_000,
        }
    }
}

/// State of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerGroupState {
    /// The group has no members.
    Empty,
    /// Members or topics changed, and no targets are computed for that yet.
    Assigning,
    /// Some member has not reached its target.
    Reconciling,
    Stable,
}

/// A group of consumers.
#[derive(Debug, Default)]
pub struct ConsumerGroup {
    /// True if members may share partitions: each member gets its whole target at once.
    shares: bool,
    pub(crate) epoch: i32,
    /// Group epoch that the targets were computed for.
    pub(crate) target_epoch: i32,
    /// Assignor that computed the targets.
    pub(super) assignor: Assignor,
    /// Hash of the topics that members want, as of the last epoch.
    pub(super) topics_hash: u64,
    /// Boxed, as a map has room for eleven values from the first one on.
    pub(crate) members: BTreeMap<Box<str>, Box<Member>>,
    /// Ids of static members, by instance name.
    pub(crate) instances: HashMap<Box<str>, Box<str>>,
    pub(crate) interests: BTreeMap<InterestId, Box<Interest>>,
    next_interest: u32,
    /// Version of the topics that the interests reflect.
    topics_version: u64,
    /// Partitions that members hold, including those not yet given back.
    held: HashSet<Partition>,
    /// Earliest time at which a member may expire.
    pub(super) wake_ms: Option<u64>,
    /// True if the group's own numbers changed since they were last stored.
    pub(crate) unstored: bool,
    /// Members that changed or left since they were last stored.
    pub(super) unstored_members: BTreeSet<Box<str>>,
}

impl ConsumerGroup {
    /// Creates a group in which several members may have the same partition.
    pub fn sharing() -> Self {
        Self {
            shares: true,
            assignor: Assignor::Simple,
            ..Self::default()
        }
    }

    /// Returns true if several members may have the same partition.
    pub fn shares(&self) -> bool {
        self.shares
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    pub fn assignor(&self) -> Assignor {
        self.assignor
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the members, by id.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values().map(|member| &**member)
    }

    pub fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id).map(|member| &**member)
    }

    pub fn subscription(&self, member: &Member) -> Option<&Subscription> {
        self.interests
            .get(&member.interest)
            .map(|interest| &interest.subscription)
    }

    /// Returns the names of the topics that members want, possibly repeated.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.interests.values().flat_map(|interest| interest.names())
    }

    pub fn state(&self) -> ConsumerGroupState {
        if self.members.is_empty() {
            ConsumerGroupState::Empty
        } else if self.shares {
            ConsumerGroupState::Stable
        } else if self.epoch > self.target_epoch {
            ConsumerGroupState::Assigning
        } else if self
            .members
            .values()
            .all(|member| member.is_reconciled(self.target_epoch))
        {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// Returns the approximate memory of the members, in bytes.
    pub fn bytes(&self) -> usize {
        let members = self.members.values().map(|member| member.bytes());
        let interests = self.interests.values().map(|interest| interest.bytes());
        members.sum::<usize>() + interests.sum::<usize>() + self.held.len() * size_of::<Partition>()
    }

    /// Raises the epoch of a group that never had members.
    pub(crate) fn begin(&mut self) {
        if self.epoch == 0 {
            self.bump();
        }
    }

    pub(super) fn bump(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.unstored = true;
    }

    /// Marks parts of a member for storing.
    pub(crate) fn on_changed(&mut self, id: &str, parts: UnstoredParts) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.unstored.description |= parts.description;
        member.unstored.target |= parts.target;
        member.unstored.current |= parts.current;
        if !self.unstored_members.contains(id) {
            self.unstored_members.insert(id.into());
        }
    }

    /// Adds a member, to be stored as a whole.
    pub(crate) fn insert(&mut self, member: Member) {
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        let holding = member
            .assigned
            .as_slice()
            .iter()
            .chain(member.revoking.as_slice());
        self.held.extend(holding.map(|held| held.partition));
        if let Some(interest) = self.interests.get_mut(&member.interest) {
            interest.members += 1;
        }
        let id = member.id.clone();
        self.members.insert(id.clone(), Box::new(member));
        self.on_changed(&id, UnstoredParts::ALL);
    }

    /// Removes a member and frees its partitions.
    pub(super) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|owner| **owner == *id)
        {
            self.instances.remove(instance);
        }
        for held in member
            .assigned
            .as_slice()
            .iter()
            .chain(member.revoking.as_slice())
        {
            self.held.remove(&held.partition);
        }
        self.leave_interest(member.interest);
        self.unstored_members.insert(id.into());
        Some(*member)
    }

    /// Returns the interest of a subscription. A new one has no topics and no members yet.
    pub(crate) fn interest(&mut self, subscription: Subscription) -> Result<InterestId, PatternError> {
        let known = self
            .interests
            .iter()
            .find(|(_, interest)| interest.subscription == subscription);
        if let Some((id, _)) = known {
            return Ok(*id);
        }
        let interest = Interest::new(subscription)?;
        let id = InterestId(self.next_interest);
        self.next_interest = self.next_interest.wrapping_add(1);
        self.interests.insert(id, Box::new(interest));
        Ok(id)
    }

    /// Changes a member's interest. False if it is the same as before.
    pub(super) fn set_interest(&mut self, id: &str, interest: InterestId) -> bool {
        let Some(member) = self
            .members
            .get_mut(id)
            .filter(|member| member.interest != interest)
        else {
            return false;
        };
        let before = std::mem::replace(&mut member.interest, interest);
        if let Some(interest) = self.interests.get_mut(&interest) {
            interest.members += 1;
        }
        self.leave_interest(before);
        true
    }

    /// Drops an interest without members.
    fn drop_unused(&mut self, interest: InterestId) {
        if self
            .interests
            .get(&interest)
            .is_some_and(|known| known.members == 0)
        {
            self.interests.remove(&interest);
        }
    }

    /// Adds a member to an interest's count, until [`ConsumerGroup::leave_interest`].
    pub(super) fn keep_interest(&mut self, interest: InterestId) {
        if let Some(known) = self.interests.get_mut(&interest) {
            known.members += 1;
        }
    }

    pub(super) fn leave_interest(&mut self, interest: InterestId) {
        if let Some(known) = self.interests.get_mut(&interest) {
            known.members = known.members.saturating_sub(1);
        }
        self.drop_unused(interest);
    }

    /// Updates the interests from the topics that changed since the last call. True if any interest may have
    /// changed.
    pub(crate) fn follow_topics(&mut self, source: &dyn TopicSource) -> bool {
        let version = source.version();
        let known = std::mem::replace(&mut self.topics_version, version);
        if known == version {
            return false;
        }
        if known == 0 {
            self.resolve_all(source);
            return true;
        }
        // Either the changed topics or all wanted ones are looked up, whichever are fewer.
        let lookups: Option<usize> = self.interests.values().map(|interest| interest.lookups()).sum();
        let mut changed = Vec::new();
        let mut is_more = false;
        let is_known = source.each_changed(known, &mut |name| {
            is_more |= lookups.is_some_and(|lookups| changed.len() > lookups);
            if !is_more {
                changed.push(Box::<str>::from(name));
            }
        });
        if !is_known || is_more {
            self.resolve_all(source);
            return true;
        }
        let mut is_changed = false;
        for name in &changed {
            for interest in self.interests.values_mut() {
                is_changed |= interest.update(name, source);
            }
        }
        is_changed
    }

    fn resolve_all(&mut self, source: &dyn TopicSource) {
        for interest in self.interests.values_mut() {
            interest.resolve(source);
        }
    }

    /// Updates the hash of the wanted topics. True if it changed.
    pub(crate) fn topics_differ(&mut self) -> bool {
        let hash = self.hash_of_topics();
        let before = std::mem::replace(&mut self.topics_hash, hash);
        self.unstored |= hash != before;
        hash != before
    }

    fn union(&self) -> BTreeMap<&str, TopicShape> {
        let topics = self.interests.values().flat_map(|interest| &interest.topics);
        topics.map(|(name, shape)| (&**name, *shape)).collect()
    }

    /// Returns the FNV-1a hash of topic ids and partition counts. It is stored, so that a restart is no
    /// change.
    fn hash_of_topics(&self) -> u64 {
        fn hash<'a>(shapes: impl Iterator<Item = &'a TopicShape>) -> u64 {
            let bytes = shapes.flat_map(|shape| {
                let id = shape.id.0.to_le_bytes().into_iter();
                id.chain(shape.partitions.to_le_bytes())
            });
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        }
        let mut interests = self.interests.values();
        match (interests.next(), interests.next()) {
            (Some(only), None) => hash(only.topics.values()),
            _ => hash(self.union().values()),
        }
    }

    /// Computes the members' targets, unless they are computed for the group's epoch already.
    pub(super) fn assign(&mut self) {
        if self.epoch == self.target_epoch || self.members.is_empty() {
            return;
        }
        let assignor = self.preferred_assignor();
        let targets = {
            let union = self.union();
            let index: HashMap<&str, u32> = union.keys().copied().zip(0..).collect();
            let wants: BTreeMap<InterestId, Arc<[u32]>> = self
                .interests
                .iter()
                .map(|(id, interest)| {
                    let wants = interest
                        .topics
                        .keys()
                        .filter_map(|name| index.get(&**name).copied());
                    (*id, wants.collect())
                })
                .collect();
            let members = self.members.values().map(|member| Applicant {
                id: &member.id,
                instance: member.instance.as_deref(),
                wants: wants
                    .get(&member.interest)
                    .cloned()
                    .unwrap_or_else(|| Arc::new([])),
                before: &member.target,
            });
            let task = Task {
                members: members.collect(),
                topics: union.values().copied().collect(),
            };
            assign::assign(assignor, &task)
        };
        self.set_targets(targets);
        self.assignor = assignor;
        self.target_epoch = self.epoch;
        self.unstored = true;
    }

    fn set_targets(&mut self, targets: Vec<Partitions>) {
        for (member, target) in self.members.values_mut().zip(targets) {
            if *member.target != target {
                member.target = Arc::new(target);
                member.unstored.target = true;
                self.unstored_members.insert(member.id.clone());
            }
        }
    }

    /// Returns the assignor that most members prefer; the default on a tie.
    fn preferred_assignor(&self) -> Assignor {
        if self.shares {
            return Assignor::Simple;
        }
        let likes = |assignor: Assignor| {
            let members = self.members.values();
            members.filter(|member| member.assignor == Some(assignor)).count()
        };
        if likes(Assignor::Range) > likes(Assignor::Uniform) {
            Assignor::Range
        } else {
            Assignor::Uniform
        }
    }

    /// Recomputes the held partitions: steps of several members that are restored together come in any order.
    pub(super) fn count_held(&mut self) {
        let members = self.members.values();
        let holding = members.flat_map(|member| {
            member
                .assigned
                .as_slice()
                .iter()
                .chain(member.revoking.as_slice())
        });
        self.held = holding.map(|held| held.partition).collect();
    }

    pub(crate) fn is_held(&self, partition: Partition) -> bool {
        self.held.contains(&partition)
    }

    /// Applies a step to a member. True if its assigned partitions changed.
    pub(super) fn apply_update(&mut self, id: &str, step: MemberUpdate) -> bool {
        let Some(member) = self.members.get_mut(id) else {
            return false;
        };
        for held in member
            .assigned
            .as_slice()
            .iter()
            .chain(member.revoking.as_slice())
        {
            self.held.remove(&held.partition);
        }
        for held in step.assigned.as_slice().iter().chain(step.revoking.as_slice()) {
            self.held.insert(held.partition);
        }
        let changed = member.assigned != step.assigned;
        member.assigned = step.assigned;
        member.revoking = step.revoking;
        member.state = step.state;
        member.set_epoch(step.epoch);
        self.on_changed(
            id,
            UnstoredParts {
                current: true,
                ..UnstoredParts::default()
            },
        );
        changed
    }
}
