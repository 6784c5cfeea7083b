//! Stored format of a group: a sequence of pieces. A member's step stores that member only.
//!
//! Numbers are little-endian. A text is preceded by its length as u32; an optional text by a u8, 1 if it is
//! present.
//!
//! ```text
//! u8 version = 1, then any number of pieces: u8 tag, and
//! 0 group         i32 epoch, i32 target epoch, u8 assignor, u64 hash of topics
//! 1 description   text member, text? instance, text? rack, text client, text host,
//!                 u32 rebalance timeout in ms, u8 assignor (255: none), text? pattern, u32 names, each: text
//! 2 target        text member, u32 topics, each: u128 id, u32 partitions, each: u32
//! 3 current       text member, i32 epoch, i32 previous epoch, u8 state, holding assigned, holding revoking
//!                 holding: u32 topics, each: u128 id, u32 partitions, each: u32, i32 since
//! 4 gone          text member
//! 5 classic       text member, text purpose, u32 session in ms, u32 strategies, each: text name,
//!                 u32 bytes, bytes
//! ```

use std::sync::Arc;

use bytes::Bytes;
use stafett_topics::TopicId;

use super::assign::Assignor;
use super::group::{ConsumerGroup, Rules};
use super::member::{Classic, Member, MemberState, UnstoredParts};
use super::partitions::{OwnedPartition, OwnedPartitions, Partition, Partitions};
use super::reconcile::MemberUpdate;
use super::subscription::Subscription;
use crate::strategy::Strategy;

const VERSION: u8 = 1;
const GROUP: u8 = 0;
const DESCRIPTION: u8 = 1;
const TARGET: u8 = 2;
const CURRENT: u8 = 3;
const GONE: u8 = 4;
const CLASSIC: u8 = 5;
const NO_ASSIGNOR: u8 = 255;

impl ConsumerGroup {
    /// Returns true if anything changed since it was last stored.
    pub fn has_changes(&self) -> bool {
        self.unstored || !self.unstored_members.is_empty()
    }

    /// Encodes the whole state.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_group(self, &mut out);
        for member in self.members.values() {
            self.put_member(member, UnstoredParts::ALL, &mut out);
        }
        out
    }

    /// Encodes the changes since the last call, and clears them.
    pub fn take_changes(&mut self) -> Vec<u8> {
        let mut out = vec![VERSION];
        if self.unstored {
            put_group(self, &mut out);
        }
        let (here, gone): (Vec<_>, Vec<_>) = self
            .unstored_members
            .iter()
            .partition(|id| self.members.contains_key(*id));
        for id in gone {
            out.push(GONE);
            put_text(id, &mut out);
        }
        for member in here.into_iter().filter_map(|id| self.members.get(id)) {
            self.put_member(member, member.unstored, &mut out);
        }
        self.forget_changes();
        out
    }

    fn forget_changes(&mut self) {
        self.unstored = false;
        for id in std::mem::take(&mut self.unstored_members) {
            if let Some(member) = self.members.get_mut(&id) {
                member.unstored = UnstoredParts::default();
            }
        }
    }

    fn put_member(&self, member: &Member, parts: UnstoredParts, out: &mut Vec<u8>) {
        if parts.description
            && let Some(subscription) = self.subscription(member)
        {
            put_description(member, subscription, out);
            if let Some(classic) = &member.classic {
                out.push(CLASSIC);
                put_text(&member.id, out);
                put_classic(classic, out);
            }
        }
        if parts.target {
            put_target(member, out);
        }
        if parts.current {
            put_current(member, out);
        }
    }

    /// Applies stored state on top of the state restored before. Sessions start anew at `now_ms`. `None` if
    /// this version does not know the format.
    pub fn restore(&mut self, stored: &[u8], rules: &Rules, now_ms: u64) -> Option<()> {
        let mut input = Input(stored);
        if input.u8()? != VERSION {
            return None;
        }
        while !input.0.is_empty() {
            match input.u8()? {
                GROUP => {
                    self.epoch = input.i32()?;
                    self.target_epoch = input.i32()?;
                    self.assignor = assignor(input.u8()?)??;
                    self.topics_hash = input.u64()?;
                }
                DESCRIPTION => {
                    let id = input.text()?;
                    let description = input.description()?;
                    self.restore_description(id, description, now_ms);
                }
                TARGET => {
                    let id = input.text()?;
                    let target = input.partitions()?;
                    if let Some(member) = self.members.get_mut(&id) {
                        member.target = Arc::new(target);
                    }
                }
                CURRENT => {
                    let id = input.text()?;
                    self.restore_current(&id, input.current()?, now_ms);
                }
                CLASSIC => {
                    let id = input.text()?;
                    let classic = input.classic()?;
                    if let Some(member) = self.members.get_mut(&id) {
                        member.classic = Some(classic);
                    }
                }
                GONE => {
                    self.remove(&input.text()?);
                }
                _ => return None,
            }
        }
        self.count_held();
        self.find_deadline(rules);
        self.forget_changes();
        Some(())
    }

    fn restore_description(&mut self, id: Box<str>, description: Description, now_ms: u64) {
        // A pattern that is no longer valid matches nothing.
        let names = description.subscription.names().to_vec();
        let interest = self
            .interest(description.subscription)
            .or_else(|_| self.interest(Subscription::new(names, None)));
        let Ok(interest) = interest else { return };
        self.set_interest(&id, interest);
        let before = self.members.remove(&id);
        let is_new = before.is_none();
        let member = Member {
            id: id.clone(),
            instance: description.instance,
            rack: description.rack,
            client_id: description.client_id,
            host: description.host,
            rebalance_timeout_ms: description.rebalance_timeout_ms,
            assignor: description.assignor,
            interest,
            // For a classic member, a CLASSIC piece follows.
            classic: None,
            ..before.map_or_else(|| Member::empty(now_ms), |member| *member)
        };
        if is_new {
            self.insert(member);
        } else {
            self.members.insert(id, Box::new(member));
        }
    }

    fn restore_current(&mut self, id: &str, current: Current, now_ms: u64) {
        let step = MemberUpdate {
            state: current.state,
            epoch: current.epoch,
            assigned: current.assigned,
            revoking: current.revoking,
        };
        self.apply_update(id, step);
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.previous_epoch = current.previous_epoch;
        member.seen_ms = now_ms;
        member.revoke_by_ms = (current.state == MemberState::Unrevoked)
            .then(|| now_ms.saturating_add(u64::from(member.rebalance_timeout_ms)));
    }
}

#[derive(Debug)]
struct Description {
    instance: Option<Box<str>>,
    rack: Option<Box<str>>,
    client_id: Box<str>,
    host: Box<str>,
    rebalance_timeout_ms: u32,
    assignor: Option<Assignor>,
    subscription: Subscription,
}

#[derive(Debug)]
struct Current {
    epoch: i32,
    previous_epoch: i32,
    state: MemberState,
    assigned: OwnedPartitions,
    revoking: OwnedPartitions,
}

fn put_group(group: &ConsumerGroup, out: &mut Vec<u8>) {
    out.push(GROUP);
    out.extend(group.epoch.to_le_bytes());
    out.extend(group.target_epoch.to_le_bytes());
    out.push(number(Some(group.assignor)));
    out.extend(group.topics_hash.to_le_bytes());
}

fn put_description(member: &Member, subscription: &Subscription, out: &mut Vec<u8>) {
    out.push(DESCRIPTION);
    put_text(&member.id, out);
    put_optional(member.instance.as_deref(), out);
    put_optional(member.rack.as_deref(), out);
    put_text(&member.client_id, out);
    put_text(&member.host, out);
    out.extend(member.rebalance_timeout_ms.to_le_bytes());
    out.push(number(member.assignor));
    put_optional(subscription.pattern(), out);
    put_count(subscription.names().len(), out);
    for name in subscription.names() {
        put_text(name, out);
    }
}

fn put_classic(classic: &Classic, out: &mut Vec<u8>) {
    put_text(&classic.purpose, out);
    out.extend(classic.session_ms.to_le_bytes());
    put_count(classic.strategies.len(), out);
    for strategy in &classic.strategies {
        put_text(&strategy.name, out);
        put_count(strategy.metadata.len(), out);
        out.extend(&strategy.metadata);
    }
}

fn put_target(member: &Member, out: &mut Vec<u8>) {
    let target = &member.target;
    out.push(TARGET);
    put_text(&member.id, out);
    put_count(target.by_topic().count(), out);
    for run in target.by_topic() {
        for (place, partition) in run.iter().enumerate() {
            if place == 0 {
                out.extend(partition.topic.0.to_le_bytes());
                put_count(run.len(), out);
            }
            out.extend(partition.index.to_le_bytes());
        }
    }
}

fn put_current(member: &Member, out: &mut Vec<u8>) {
    out.push(CURRENT);
    put_text(&member.id, out);
    out.extend(member.epoch.to_le_bytes());
    out.extend(member.previous_epoch.to_le_bytes());
    out.push(match member.state {
        MemberState::Stable => 0,
        MemberState::Unrevoked => 1,
        MemberState::Unreleased => 2,
    });
    for holding in [&member.assigned, &member.revoking] {
        let runs = || {
            let held = holding.as_slice();
            held.chunk_by(|a, b| a.partition.topic == b.partition.topic)
        };
        put_count(runs().count(), out);
        for run in runs() {
            for (place, held) in run.iter().enumerate() {
                if place == 0 {
                    out.extend(held.partition.topic.0.to_le_bytes());
                    put_count(run.len(), out);
                }
                out.extend(held.partition.index.to_le_bytes());
                out.extend(held.since.to_le_bytes());
            }
        }
    }
}

fn put_count(count: usize, out: &mut Vec<u8>) {
    let count = u32::try_from(count).expect("what came in one request is counted in 32 bits");
    out.extend(count.to_le_bytes());
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_count(text.len(), out);
    out.extend(text.as_bytes());
}

fn put_optional(text: Option<&str>, out: &mut Vec<u8>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_text(text, out);
    }
}

fn number(assignor: Option<Assignor>) -> u8 {
    match assignor {
        Some(Assignor::Uniform) => 0,
        Some(Assignor::Range) => 1,
        Some(Assignor::Simple) => 2,
        None => NO_ASSIGNOR,
    }
}

#[expect(clippy::option_option, reason = "unknown, none, one")]
fn assignor(number: u8) -> Option<Option<Assignor>> {
    match number {
        0 => Some(Some(Assignor::Uniform)),
        1 => Some(Some(Assignor::Range)),
        2 => Some(Some(Assignor::Simple)),
        NO_ASSIGNOR => Some(None),
        _ => None,
    }
}

/// Rest of the stored bytes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, behind) = self.0.split_first_chunk()?;
        self.0 = behind;
        Some(*front)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<Box<str>> {
        let bytes = self.u32()? as usize;
        let (front, behind) = self.0.split_at_checked(bytes)?;
        self.0 = behind;
        std::str::from_utf8(front).ok().map(Into::into)
    }

    #[expect(clippy::option_option, reason = "malformed, none, one")]
    fn optional(&mut self) -> Option<Option<Box<str>>> {
        match self.u8()? {
            0 => Some(None),
            1 => self.text().map(Some),
            _ => None,
        }
    }

    fn description(&mut self) -> Option<Description> {
        Some(Description {
            instance: self.optional()?,
            rack: self.optional()?,
            client_id: self.text()?,
            host: self.text()?,
            rebalance_timeout_ms: self.u32()?,
            assignor: assignor(self.u8()?)?,
            subscription: {
                let pattern = self.optional()?;
                let names: Option<Vec<_>> = (0..self.u32()?).map(|_| self.text()).collect();
                Subscription::new(names?, pattern)
            },
        })
    }

    fn classic(&mut self) -> Option<Classic> {
        Some(Classic {
            purpose: self.text()?,
            session_ms: self.u32()?,
            strategies: (0..self.u32()?).map(|_| self.strategy()).collect::<Option<_>>()?,
        })
    }

    fn strategy(&mut self) -> Option<Strategy> {
        let name = self.text()?;
        let bytes = self.u32()? as usize;
        let (front, behind) = self.0.split_at_checked(bytes)?;
        self.0 = behind;
        Some(Strategy {
            name,
            metadata: Bytes::copy_from_slice(front),
        })
    }

    fn current(&mut self) -> Option<Current> {
        Some(Current {
            epoch: self.i32()?,
            previous_epoch: self.i32()?,
            state: match self.u8()? {
                0 => MemberState::Stable,
                1 => MemberState::Unrevoked,
                2 => MemberState::Unreleased,
                _ => return None,
            },
            assigned: self.holding()?,
            revoking: self.holding()?,
        })
    }

    fn partitions(&mut self) -> Option<Partitions> {
        let mut list = Vec::new();
        for _ in 0..self.u32()? {
            let topic = TopicId(self.bytes().map(u128::from_le_bytes)?);
            for _ in 0..self.u32()? {
                let index = self.u32()?;
                list.push(Partition { topic, index });
            }
        }
        Some(list.into_iter().collect())
    }

    fn holding(&mut self) -> Option<OwnedPartitions> {
        let mut list = Vec::new();
        for _ in 0..self.u32()? {
            let topic = TopicId(self.bytes().map(u128::from_le_bytes)?);
            for _ in 0..self.u32()? {
                let index = self.u32()?;
                list.push(OwnedPartition {
                    partition: Partition { topic, index },
                    since: self.i32()?,
                });
            }
        }
        Some(list.into_iter().collect())
    }
}
