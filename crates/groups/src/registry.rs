//! All groups: lookup, locking, steps.
//!
//! Groups are spread over shards with a lock each, held for one step and never across an await. State stored
//! by a step is staged under that lock.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use hashbrown::HashMap;
use prometheus_client::registry::Registry;
use stafett_counters::Sampler;
use stafett_journal::{Change, Frame, Journal, StateItem, StateUnreadable, StateWait, Ticket};
use stafett_model::{Durability, Lock, LockGuard, SharedLock};
use stafett_store::{Clock, NotStored, appends, spaces};
use stafett_topics::Topics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::commit_counts::GroupCounts;
use super::consumer::Rules;
use super::deadlines::{self, Deadlines};
use super::effects::{Effects, MemberReply, Store};
use super::error::GroupError;
use super::group::{Group, GroupKind, GroupProtocol, StepResult};
use super::homes::GroupHomes;
use super::member_protocol::MemberProtocol;
use super::metrics::GroupMetrics;
use super::moment::Moment;
use super::replies::JoinError;
use super::settings::{GroupOverrides, GroupSettings};
use super::stored;

const SHARDS: usize = 64;
/// Number of groups of a shard below which its table does not shrink.
const TABLE_MIN: usize = 16;
/// Bound on the frames of one append. The parts of a larger commit have outcomes of their own.
const FRAMES_MAX: usize = 1000;

pub(super) type Shard = HashMap<Arc<str>, Group, RandomState>;

/// All groups of a broker.
#[derive(Debug)]
pub struct Groups {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) topics: Arc<Topics>,
    pub(super) settings: GroupSettings,
    pub(super) metrics: GroupMetrics,
    pub(super) sampler: Sampler<GroupCounts>,
    pub(super) deadlines: Deadlines,
    pub(super) clock: Arc<Clock>,
    shards: Box<[Lock<Shard>]>,
    hash: RandomState,
    count: AtomicUsize,
    /// Place of the next commit's request among all commits.
    pub(super) orders: AtomicU64,
    /// Memory of the members of all groups, in bytes.
    member_bytes: AtomicUsize,
    /// Number of members with partitions assigned by the broker.
    pub(super) assigned_members: AtomicUsize,
    /// Settings of single groups.
    overrides: SharedLock<BTreeMap<Box<str>, GroupOverrides>>,
    /// Cells of groups. `None` if all groups are here.
    pub(super) homes: OnceLock<GroupHomes>,
    /// Durability that changes wait for before they are acknowledged.
    wait: StateWait,
    /// Codec for members of the classic protocol.
    pub(super) member_protocol: Option<Arc<dyn MemberProtocol>>,
    /// Tasks that wait until something is stored, and the task that keeps deadlines.
    pub(super) tasks: TaskTracker,
    /// Reference for those tasks.
    this: Weak<Self>,
    stop: CancellationToken,
}

/// Behaviour of a step if the group does not exist.
#[derive(Debug, Clone)]
pub enum IfAbsent {
    Create,
    Fail(GroupError),
}

impl Groups {
    /// Loads the stored groups and starts the task that keeps deadlines. Must be called within a Tokio
    /// runtime.
    pub fn open(
        journal: Arc<dyn Journal>,
        topics: Arc<Topics>,
        settings: GroupSettings,
        durability: Durability,
        member_protocol: Option<Arc<dyn MemberProtocol>>,
        clock: Arc<Clock>,
    ) -> Result<Arc<Self>, StateUnreadable> {
        let wait = durability.into();
        let groups = Arc::new_cyclic(|this| Self {
            journal,
            topics,
            settings,
            metrics: GroupMetrics::default(),
            sampler: Sampler::default(),
            deadlines: Deadlines::default(),
            clock,
            shards: (0..SHARDS).map(|_| Lock::default()).collect(),
            hash: RandomState::new(),
            count: AtomicUsize::new(0),
            orders: AtomicU64::new(1),
            member_bytes: AtomicUsize::new(0),
            assigned_members: AtomicUsize::new(0),
            overrides: SharedLock::default(),
            homes: OnceLock::new(),
            wait,
            member_protocol,
            tasks: TaskTracker::new(),
            this: Weak::clone(this),
            stop: CancellationToken::new(),
        });
        groups.load_groups()?;
        groups.load_commits()?;
        let keeper = deadlines::run(Arc::downgrade(&groups), groups.stop.clone());
        groups.tasks.spawn(keeper);
        Ok(groups)
    }

    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Returns the durability that changes wait for before they are acknowledged.
    pub fn wait(&self) -> StateWait {
        self.wait
    }

    /// Returns the rules for a group whose partitions the broker assigns.
    pub(super) fn rules(&self, name: &str, kind: GroupProtocol) -> Rules {
        let overrides = self.overrides.read();
        let set = overrides.get(name).copied().unwrap_or_default();
        match kind {
            GroupProtocol::Share => set.share.over(self.settings.share),
            GroupProtocol::Classic | GroupProtocol::Consumer => set.consumer.over(self.settings.consumer),
        }
    }

    /// Sets the overrides of a group, whether it exists or not.
    pub fn set_overrides(&self, name: &str, set: GroupOverrides) {
        {
            let mut overrides = self.overrides.write();
            if set == GroupOverrides::default() {
                overrides.remove(name);
            } else {
                overrides.insert(name.into(), set);
            }
        }
        let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
        // A group that does not exist gets its rules when it is created.
        let _running = self.step(name, absent, |group, _, _| {
            let rules = self.rules(name, group.kind.state().kind);
            if let Some(kind) = group.kind.assigned_mut() {
                kind.set_rules(rules);
            }
        });
    }

    /// Registers the metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Returns the current time of the groups' clock.
    pub fn now(&self) -> Moment {
        Moment(self.clock.elapsed_ms())
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` with a group, or with `None` if it does not exist.
    pub fn with_group<T>(&self, name: &str, look: impl FnOnce(Option<&Group>) -> T) -> T {
        let mut shard = self.lock(self.shard(name));
        let group = shard.get_mut(name).map(|group| {
            group.commits.settle();
            &*group
        });
        look(group)
    }

    /// Calls `look` with every group, in no order. Groups created or removed meanwhile may be missed.
    pub fn each(&self, mut look: impl FnMut(&Group)) {
        for shard in &self.shards {
            for group in self.lock(shard).values_mut() {
                group.commits.settle();
                look(group);
            }
        }
    }

    /// Changes a group and carries out the effects.
    pub fn step<T>(
        &self,
        name: &str,
        absent: IfAbsent,
        step: impl FnOnce(&mut Group, Moment, &mut Effects) -> T,
    ) -> Result<StepResult<T>, GroupError> {
        let bytes = name.len();
        let max = self.settings.name_bytes_max;
        if bytes > max {
            return Err(GroupError::Name { bytes, max });
        }
        let mut shard = self.lock(self.shard(name));
        let group = match (shard.get_mut(name), absent) {
            (Some(_), _) => shard.get_mut(name),
            (None, IfAbsent::Fail(error)) => return Err(error),
            (None, IfAbsent::Create) => {
                self.check_new(name)?;
                Some(self.insert(&mut shard, Group::new(name.into(), self.clock.wall_ms())))
            }
        };
        let group = group.ok_or(GroupError::NoSuchGroup)?;
        let mut effects = Effects::default();
        let value = step(group, self.now(), &mut effects);
        let stored = self.apply_effects(group, effects);
        Ok(StepResult { value, stored })
    }

    /// Like [`Self::step`], for steps that can fail. The effects of a failed step are carried out too.
    pub fn try_step<T>(
        &self,
        name: &str,
        absent: IfAbsent,
        step: impl FnOnce(&mut Group, Moment, &mut Effects) -> Result<T, GroupError>,
    ) -> Result<StepResult<T>, GroupError> {
        let StepResult { value, stored } = self.step(name, absent, step)?;
        Ok(StepResult {
            value: value?,
            stored,
        })
    }

    /// Adds a group. Its name must be free.
    pub(super) fn insert<'a>(&self, shard: &'a mut Shard, group: Group) -> &'a mut Group {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.metrics.on_state(None, Some(group.shown));
        shard.entry(Arc::clone(&group.name)).or_insert(group)
    }

    /// Removes a group. `None` if it does not exist.
    pub(super) fn remove(&self, shard: &mut Shard, name: &str) -> Option<Group> {
        let group = shard.remove(name)?;
        if shard.capacity() > 4 * shard.len().max(TABLE_MIN) {
            shard.shrink_to(2 * shard.len());
        }
        group.notify_state_change();
        group.counter.end(&self.sampler);
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.member_bytes.fetch_sub(group.bytes, Ordering::Relaxed);
        self.assigned_members
            .fetch_sub(group.assigned_members, Ordering::Relaxed);
        self.metrics.on_state(Some(group.shown), None);
        Some(group)
    }

    /// Stages frames. Must be called under the lock of the group that they belong to.
    pub(super) fn stage(&self, frames: Vec<Frame>) -> Ticket {
        self.journal.append(appends(frames, FRAMES_MAX, self.wait))
    }

    /// Carries out the effects of a step.
    pub(super) fn apply_effects(&self, group: &mut Group, effects: Effects) -> Option<Ticket> {
        let Effects {
            replies,
            store,
            rebalances,
            expired,
            only_alive,
        } = effects;
        if !only_alive {
            self.on_changed(group);
        }
        self.metrics.rebalances.inc_by(rebalances);
        self.metrics.expired_members.inc_by(expired);
        let mut ticket = self.store(group, store);
        if let GroupKind::Classic(kind) = &group.kind
            && let Some(generation) = kind.generation_in_storing()
            && let Some(ticket) = ticket.take()
        {
            self.await_assigned(&group.name, generation, ticket);
        }
        let replies = group.take_waiting(replies);
        match ticket {
            Some(ticket) if !replies.is_empty() => {
                self.tasks.spawn(async move {
                    let failed = stafett_store::all_outcomes(&ticket.await).err();
                    for (sender, reply) in replies {
                        let reply = match failed {
                            Some(why) => failure(reply, why),
                            None => reply,
                        };
                        // The receiver is gone if the request no longer waits.
                        let _ = sender.send(reply);
                    }
                });
                None
            }
            ticket => {
                for (sender, reply) in replies {
                    let _ = sender.send(reply);
                }
                ticket
            }
        }
    }

    /// Waits until the assignments of a classic group are stored.
    fn await_assigned(&self, group: &Arc<str>, generation: i32, ticket: Ticket) {
        let (groups, group) = (Weak::clone(&self.this), Arc::clone(group));
        self.tasks.spawn(async move {
            let outcome = stafett_store::all_outcomes(&ticket.await);
            let Some(groups) = groups.upgrade() else { return };
            let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
            let _deleted = groups.step(&group, absent, |group, now, effects| {
                if let GroupKind::Classic(kind) = &mut group.kind {
                    kind.on_assigned(generation, outcome, now, effects);
                }
            });
        });
    }

    /// Updates everything derived from the group's members. Costs a pass over all members, so it is not
    /// called after a mere sign of life.
    fn on_changed(&self, group: &mut Group) {
        let now = group.kind.state();
        let before = std::mem::replace(&mut group.shown, now);
        if before != now {
            group.notify_state_change();
            self.metrics.on_state(Some(before), Some(now));
            if group.kind.is_empty() {
                group.empty_since = self.clock.wall_ms();
            }
        }
        self.queue(group);
        self.account(group);
    }

    fn store(&self, group: &mut Group, store: Store) -> Option<Ticket> {
        let change = match store {
            Store::Nothing => return None,
            Store::Whole => Change::Put(stored::encode_group(group)),
            Store::Delta(delta) => Change::Delta(delta),
        };
        group.is_stored = true;
        let key = Bytes::copy_from_slice(group.name.as_bytes());
        let ticket = self.stage(vec![spaces::GROUPS.change(key, change)]);
        if ticket.glance().committed() == Some(false)
            && let Some(kind) = group.kind.assigned_mut()
        {
            // The disk is full.
            kind.on_not_stored();
        }
        Some(ticket)
    }

    /// Updates the totals of members and of their memory.
    fn account(&self, group: &mut Group) {
        let members = group.kind.assigned_members();
        let before = std::mem::replace(&mut group.assigned_members, members);
        self.assigned_members.fetch_add(members, Ordering::Relaxed);
        self.assigned_members.fetch_sub(before, Ordering::Relaxed);
        let bytes = group.kind.bytes();
        let before = std::mem::replace(&mut group.bytes, bytes);
        self.member_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.member_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Checks that the members of all groups may take `bytes` more.
    pub(super) fn check_memory(&self, bytes: usize) -> Result<(), GroupError> {
        let taken = self.member_bytes.load(Ordering::Relaxed);
        if taken.saturating_add(bytes) > self.settings.memory_bytes_max {
            return Err(GroupError::NoMemory);
        }
        Ok(())
    }

    /// Queues the group's deadline, unless an earlier entry wakes the group anyway.
    fn queue(&self, group: &mut Group) {
        let Some(deadline) = group.kind.deadline() else {
            return;
        };
        if group.queued.is_none_or(|queued| deadline < queued) {
            group.queued = Some(deadline);
            self.deadlines.push(deadline, Arc::clone(&group.name));
        }
    }

    /// Wakes a group for its entry in the queue of deadlines. A stale entry is ignored.
    pub(super) fn tick(&self, name: &str, due: Moment) {
        let mut shard = self.lock(self.shard(name));
        let Some(group) = shard.get_mut(name) else { return };
        if group.queued != Some(due) {
            return;
        }
        group.queued = None;
        let mut effects = Effects::default();
        let now = self.now();
        group.kind.tick(now, &mut effects);
        self.downgrade_if_classic(group, now, &mut effects);
        drop(self.apply_effects(group, effects));
    }

    pub(super) fn shards(&self) -> &[Lock<Shard>] {
        &self.shards
    }

    pub(super) fn shard_number(&self, name: &str) -> usize {
        usize::try_from(self.hash.hash_one(name) % SHARDS as u64).unwrap_or(0)
    }

    pub(super) fn shard(&self, name: &str) -> &Lock<Shard> {
        let shard = self.shards.get(self.shard_number(name));
        shard.expect("there are as many shards")
    }

    #[expect(clippy::unused_self, reason = "shards are this registry's")]
    pub(super) fn lock<'a>(&self, shard: &'a Lock<Shard>) -> LockGuard<'a, Shard> {
        shard.lock()
    }

    fn load_groups(&self) -> Result<(), StateUnreadable> {
        let now = self.now();
        spaces::GROUPS.load(&*self.journal, |item| match item {
            StateItem::Value { key, value } => self.load_group(key, value, now),
            StateItem::Delta { key, delta } => self.load_delta(key, delta),
        })
    }

    fn load_group(&self, key: &[u8], value: &[u8], now: Moment) -> Option<()> {
        let name = std::str::from_utf8(key).ok()?;
        let (empty_since, kind) = stored::decode_group(value)?;
        let mut group = Group::new(name.into(), empty_since);
        group.kind = GroupKind::decode(kind, |kind| self.rules(name, kind), now)?;
        group.shown = group.kind.state();
        group.is_stored = true;
        self.queue(&mut group);
        self.account(&mut group);
        self.insert(&mut self.lock(self.shard(name)), group);
        Some(())
    }

    fn load_delta(&self, key: &[u8], delta: &[u8]) -> Option<()> {
        let name = std::str::from_utf8(key).ok()?;
        let mut shard = self.lock(self.shard(name));
        let group = shard.get_mut(name)?;
        group.kind.apply(delta, self.now())?;
        let now = group.kind.state();
        let before = std::mem::replace(&mut group.shown, now);
        self.metrics.on_state(Some(before), Some(now));
        self.queue(group);
        self.account(group);
        Some(())
    }

    fn load_commits(&self) -> Result<(), StateUnreadable> {
        spaces::COMMITS.load_values(&*self.journal, |key, value| {
            let (name, topic, partition) = stored::read_commit_key(key)?;
            let committed = stored::decode_commit(value)?;
            let mut shard = self.lock(self.shard(name));
            let group = if shard.contains_key(name) {
                shard.get_mut(name)?
            } else {
                self.insert(&mut shard, Group::new(name.into(), committed.at))
            };
            self.order_after(committed.order);
            group.commits.put(topic, partition, committed);
            Some(())
        })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns the reply to send if its step was not stored.
fn failure(reply: MemberReply, why: NotStored) -> MemberReply {
    match reply {
        MemberReply::Join(Ok(joined)) => MemberReply::Join(Err(JoinError {
            error: why.into(),
            member: joined.member,
        })),
        MemberReply::Sync(Ok(_)) => MemberReply::Sync(Err(why.into())),
        MemberReply::Join(Err(_)) | MemberReply::Sync(Err(_)) => reply,
    }
}
