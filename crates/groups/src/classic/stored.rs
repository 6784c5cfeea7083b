//! Stored format of a classic group. Waiting requests and session times are not stored: after a start all
//! sessions begin anew.
//!
//! ```text
//! u8 version = 1, i32 generation, purpose, strategy, leader
//! u32 members, each: id, instance, client id, client host, u32 session ms, u32 rebalance ms,
//!                    bytes assignment, u32 strategies, each: text name, bytes metadata
//! ```
//!
//! Numbers are little-endian. Texts and bytes are preceded by their length as u32, all ones for none.

use std::sync::Arc;

use bytes::Bytes;

use super::member::Member;
use super::{ClassicGroup, Phase};
use crate::moment::Moment;
use crate::strategy::Strategy;

const VERSION: u8 = 1;
const NONE: u32 = u32::MAX;

impl ClassicGroup {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.generation.to_le_bytes());
        put_text(self.purpose.as_deref(), out);
        put_text(self.strategy.as_deref(), out);
        put_text(self.leader.as_deref(), out);
        put_u32(self.members.len(), out);
        for (id, member) in &self.members {
            put_text(Some(id), out);
            put_text(member.instance.as_deref(), out);
            put_text(Some(&member.client_id), out);
            put_text(Some(&member.client_host), out);
            out.extend_from_slice(&member.session_ms.to_le_bytes());
            out.extend_from_slice(&member.rebalance_ms.to_le_bytes());
            put(Some(&member.assignment), out);
            put_u32(member.strategies.len(), out);
            for strategy in &member.strategies {
                put_text(Some(&strategy.name), out);
                put(Some(&strategy.metadata), out);
            }
        }
    }

    pub(crate) fn decode(mut rest: &[u8], now: Moment) -> Option<Self> {
        let rest = &mut rest;
        if get::<1>(rest)? != [VERSION] {
            return None;
        }
        let mut group = Self {
            generation: i32::from_le_bytes(get(rest)?),
            purpose: text(rest)?,
            strategy: text(rest)?,
            leader: text(rest)?.map(Arc::from),
            ..Self::default()
        };
        for _ in 0..get_u32(rest)? {
            let id: Arc<str> = Arc::from(text(rest)??);
            let member = member(rest, now)?;
            if let Some(instance) = &member.instance {
                group.instances.insert(instance.clone(), Arc::clone(&id));
            }
            group.members.insert(id, member);
        }
        let members = group.members.values();
        let longest_ms = members.map(|member| member.rebalance_ms).max();
        if let Some(longest_ms) = longest_ms {
            group.phase = match group.strategy {
                Some(_) => Phase::Stable { until: None },
                // The group came back from the consumer protocol and has no agreement yet: its members have
                // to join.
                None => Phase::Preparing {
                    until: now.after(longest_ms),
                },
            };
        }
        rest.is_empty().then_some(group)
    }
}

fn member(rest: &mut &[u8], now: Moment) -> Option<Member> {
    Some(Member {
        instance: text(rest)?,
        client_id: text(rest)??,
        client_host: text(rest)??,
        session_ms: get_u32(rest)?,
        rebalance_ms: get_u32(rest)?,
        assignment: Bytes::copy_from_slice(bytes(rest)??),
        strategies: (0..get_u32(rest)?)
            .map(|_| strategy(rest))
            .collect::<Option<_>>()?,
        heard: now,
        is_new: false,
        joining: None,
        syncing: None,
        has_synced: true,
    })
}

fn strategy(rest: &mut &[u8]) -> Option<Strategy> {
    Some(Strategy {
        name: text(rest)??,
        metadata: Bytes::copy_from_slice(bytes(rest)??),
    })
}

fn put_u32(number: usize, out: &mut Vec<u8>) {
    let number = u32::try_from(number).expect("groups are bounded");
    out.extend_from_slice(&number.to_le_bytes());
}

fn put(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        Some(bytes) => {
            put_u32(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&NONE.to_le_bytes()),
    }
}

fn put_text(text: Option<&str>, out: &mut Vec<u8>) {
    put(text.map(str::as_bytes), out);
}

fn get<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (front, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*front)
}

fn get_u32(rest: &mut &[u8]) -> Option<u32> {
    get(rest).map(u32::from_le_bytes)
}

#[expect(clippy::option_option, reason = "malformed, none, some")]
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = get_u32(rest)?;
    if length == NONE {
        return Some(None);
    }
    let (front, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(Some(front))
}

#[expect(clippy::option_option, reason = "malformed, none, some")]
fn text(rest: &mut &[u8]) -> Option<Option<Box<str>>> {
    match bytes(rest)? {
        Some(bytes) => Some(Some(std::str::from_utf8(bytes).ok()?.into())),
        None => Some(None),
    }
}
