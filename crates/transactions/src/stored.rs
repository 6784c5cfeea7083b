//! Stored format of transactional producers, as items of keyed state.
//!
//! ```text
//! space 13: key    transactional id
//!           value  u8 version = 1, i64 producer id, i16 epoch, u32 timeout in ms, u8 state (0 no transaction
//!                  yet, 1 committed, 2 aborted), i64 time of the change (ms since 1970), u8 has a producer
//!                  before: i64 id, i16 epoch; version 2, while other cells lack the control batches of the
//!                  end: and i64 producer id, i16 epoch of these, their partitions; version 3, while other
//!                  cells lack commits of their groups: and u32 their number, each: u32 cell, group and the
//!                  rest of commits that wait
//!           delta  commits that wait for the end of the transaction: u8 version = 2, group, i64 time of the
//!                  request, u64 its order among all commits (not in version 1: 0), u32 commits, each: topic
//!                  id (16, big-endian), u32 partition, i64 offset, i32 leader epoch, u8 has text, text;
//!                  or commits that wait no more: u8 version = 3, group, their partitions; or partitions in
//!                  other cells that the transaction may append to: u8 version = 4, these; or commits of a
//!                  group of another cell: u8 version = 5, u32 cell, the rest as version 2
//! ```
//!
//! Partitions are u32 their number, each: topic id (16, big-endian), u32 partition.
//! Numbers are little-endian, texts have a length of 4 bytes in front. That a transaction is open is said by
//! its batches in the logs, and by its partitions in other cells.

use std::collections::HashSet;

use bytes::Bytes;
use stafett_groups::{NewCommit, PendingCommits};
use stafett_model::codec::{get, get_text, put_text};
use stafett_model::{ProducerId, TransactionEnd};
use stafett_topics::TopicId;

use crate::cells::Owed;
use crate::producer::{Instance, Place, Producer, Status};

const VERSION: u8 = 1;
/// Version of producers with an end that other cells do not know.
const OWED_VERSION: u8 = 2;
/// Version of producers with commits that other cells do not know.
const OWED_COMMITS_VERSION: u8 = 3;
/// Version of pending commits.
const PENDING_VERSION: u8 = 2;
/// Version of withdrawals.
const WITHDRAWAL: u8 = 3;
/// Version of partitions in other cells.
const ELSEWHERE: u8 = 4;
/// Version of pending commits of a group of another cell.
const PENDING_ELSEWHERE: u8 = 5;

/// Change of an open transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Pending(PendingCommits),
    /// Group, and the partitions whose commits wait no more.
    Withdrawal(Box<str>, HashSet<Place>),
    /// Partitions in other cells.
    Elsewhere(Vec<Place>),
}

/// Encodes a producer without an open transaction.
pub(crate) fn encode(
    (instance, before): (Instance, Option<Instance>),
    timeout_ms: u32,
    status: Status,
    at: i64,
    owed: Option<&Owed>,
) -> Bytes {
    let mut out = vec![match owed {
        Some(owed) if !owed.commits.is_empty() => OWED_COMMITS_VERSION,
        Some(_) => OWED_VERSION,
        None => VERSION,
    }];
    put_instance(instance, &mut out);
    out.extend_from_slice(&timeout_ms.to_le_bytes());
    out.push(match status {
        Status::Ended(TransactionEnd::Commit) => 1,
        Status::Ended(TransactionEnd::Abort) => 2,
        Status::Empty | Status::Ongoing | Status::Ending(_) | Status::Gone => 0,
    });
    out.extend_from_slice(&at.to_le_bytes());
    out.push(before.is_some().into());
    if let Some(before) = before {
        put_instance(before, &mut out);
    }
    if let Some(owed) = owed {
        put_instance(owed.by, &mut out);
        put_places(owed.places.iter().copied(), &mut out);
        if !owed.commits.is_empty() {
            let count = u32::try_from(owed.commits.len()).expect("their number is bounded");
            out.extend_from_slice(&count.to_le_bytes());
            for pending in &owed.commits {
                out.extend_from_slice(&pending.cell.to_le_bytes());
                put_pending(pending, &mut out);
            }
        }
    }
    out.into()
}

pub(crate) fn decode(mut bytes: &[u8]) -> Option<Producer> {
    let rest = &mut bytes;
    let [version @ VERSION..=OWED_COMMITS_VERSION] = get(rest)? else {
        return None;
    };
    let mut producer = Producer::new(get_instance(rest)?, 0);
    producer.timeout_ms = u32::from_le_bytes(get(rest)?);
    producer.status = match get(rest)? {
        [0] => Status::Empty,
        [1] => Status::Ended(TransactionEnd::Commit),
        [2] => Status::Ended(TransactionEnd::Abort),
        _ => return None,
    };
    producer.changed_at = i64::from_le_bytes(get(rest)?);
    producer.before = match get(rest)? {
        [0] => None,
        [1] => Some(get_instance(rest)?),
        _ => return None,
    };
    if version >= OWED_VERSION {
        let by = get_instance(rest)?;
        let mut owed = Owed::new(by, producer.status, get_places(rest)?);
        if version == OWED_COMMITS_VERSION {
            for _ in 0..u32::from_le_bytes(get(rest)?) {
                let cell = u32::from_le_bytes(get(rest)?);
                let pending = get_pending(PENDING_VERSION, rest)?;
                owed.commits.push(PendingCommits { cell, ..pending });
            }
        }
        producer.owed = Some(owed);
    }
    rest.is_empty().then_some(producer)
}

pub(crate) fn encode_pending(pending: &PendingCommits) -> Bytes {
    let mut out = Vec::new();
    if pending.cell == 0 {
        out.push(PENDING_VERSION);
    } else {
        out.push(PENDING_ELSEWHERE);
        out.extend_from_slice(&pending.cell.to_le_bytes());
    }
    put_pending(pending, &mut out);
    out.into()
}

fn put_pending(pending: &PendingCommits, out: &mut Vec<u8>) {
    put_text(&pending.group, out);
    out.extend_from_slice(&pending.at.to_le_bytes());
    out.extend_from_slice(&pending.order.to_le_bytes());
    let count = u32::try_from(pending.commits.len()).expect("their number is bounded");
    out.extend_from_slice(&count.to_le_bytes());
    for commit in &pending.commits {
        out.extend_from_slice(&commit.topic.0.to_be_bytes());
        out.extend_from_slice(&commit.partition.to_le_bytes());
        out.extend_from_slice(&commit.offset.to_le_bytes());
        out.extend_from_slice(&commit.leader_epoch.to_le_bytes());
        out.push(commit.text.is_some().into());
        if let Some(text) = &commit.text {
            put_text(text, out);
        }
    }
}

pub(crate) fn encode_withdrawal(group: &str, places: &[Place]) -> Bytes {
    let mut out = vec![WITHDRAWAL];
    put_text(group, &mut out);
    put_places(places.iter().copied(), &mut out);
    out.into()
}

pub(crate) fn encode_elsewhere(places: &[Place]) -> Bytes {
    let mut out = vec![ELSEWHERE];
    put_places(places.iter().copied(), &mut out);
    out.into()
}

fn put_places(places: impl ExactSizeIterator<Item = Place>, out: &mut Vec<u8>) {
    let count = u32::try_from(places.len()).expect("their number is bounded");
    out.extend_from_slice(&count.to_le_bytes());
    for (topic, partition) in places {
        out.extend_from_slice(&topic.0.to_be_bytes());
        out.extend_from_slice(&partition.to_le_bytes());
    }
}

fn get_places<C: FromIterator<Place>>(rest: &mut &[u8]) -> Option<C> {
    let count = u32::from_le_bytes(get(rest)?);
    let place = |_| {
        let topic = TopicId(u128::from_be_bytes(get(rest)?));
        Some((topic, u32::from_le_bytes(get(rest)?)))
    };
    (0..count).map(place).collect()
}

pub(crate) fn decode_delta(mut bytes: &[u8]) -> Option<Delta> {
    let rest = &mut bytes;
    let delta = match get(rest)? {
        [version @ 1..=PENDING_VERSION] => Delta::Pending(get_pending(version, rest)?),
        [PENDING_ELSEWHERE] => {
            let cell = u32::from_le_bytes(get(rest)?);
            let pending = get_pending(PENDING_VERSION, rest)?;
            Delta::Pending(PendingCommits { cell, ..pending })
        }
        [WITHDRAWAL] => {
            let group = get_text(rest)?.into();
            Delta::Withdrawal(group, get_places(rest)?)
        }
        [ELSEWHERE] => Delta::Elsewhere(get_places(rest)?),
        _ => return None,
    };
    rest.is_empty().then_some(delta)
}

fn get_pending(version: u8, rest: &mut &[u8]) -> Option<PendingCommits> {
    let group = get_text(rest)?.into();
    let at = i64::from_le_bytes(get(rest)?);
    let order = if version == 1 {
        0
    } else {
        u64::from_le_bytes(get(rest)?)
    };
    let mut commits = Vec::new();
    for _ in 0..u32::from_le_bytes(get(rest)?) {
        commits.push(NewCommit {
            topic: TopicId(u128::from_be_bytes(get(rest)?)),
            partition: u32::from_le_bytes(get(rest)?),
            offset: i64::from_le_bytes(get(rest)?),
            leader_epoch: i32::from_le_bytes(get(rest)?),
            text: match get(rest)? {
                [0] => None,
                [1] => Some(get_text(rest)?.into()),
                _ => return None,
            },
        });
    }
    Some(PendingCommits {
        group,
        cell: 0,
        commits,
        at,
        order,
    })
}

fn put_instance(instance: Instance, out: &mut Vec<u8>) {
    out.extend_from_slice(&instance.producer.0.to_le_bytes());
    out.extend_from_slice(&instance.epoch.to_le_bytes());
}

fn get_instance(rest: &mut &[u8]) -> Option<Instance> {
    Some(Instance {
        producer: ProducerId(i64::from_le_bytes(get(rest)?)),
        epoch: i16::from_le_bytes(get(rest)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: Instance = Instance {
        producer: ProducerId(7),
        epoch: 3,
    };

    #[test]
    fn producers_read_back_and_cut_ones_do_not() {
        let instance = INSTANCE;
        for before in [None, Some(Instance { epoch: 2, ..instance })] {
            let status = Status::Ended(TransactionEnd::Abort);
            let owed = Owed::new(instance, status, [(TopicId(9), 2), (TopicId(10), 0)].into());
            let row = encode((instance, before), 60_000, status, 5, Some(&owed));
            let read = decode(&row).unwrap();
            let read_owed = read.owed.unwrap();
            assert_eq!((read.instance, read.before), (instance, before));
            assert_eq!((read_owed.by, read_owed.after), (owed.by, owed.after));
            assert_eq!(
                (read_owed.end, read_owed.places),
                (TransactionEnd::Abort, owed.places)
            );
            for cut in 0..row.len() {
                assert!(decode(&row[..cut]).is_none());
            }
            let row = encode((instance, before), 60_000, status, 5, None);
            let read = decode(&row).unwrap();
            assert_eq!(
                (read.instance, read.before, read.status),
                (instance, before, status)
            );
            assert_eq!((read.timeout_ms, read.changed_at), (60_000, 5));
            for cut in 0..row.len() {
                assert!(decode(&row[..cut]).is_none());
            }
        }
    }

    fn pending() -> PendingCommits {
        let commit = |text: Option<&str>| NewCommit {
            topic: TopicId(9),
            partition: 2,
            offset: 77,
            leader_epoch: -1,
            text: text.map(Into::into),
        };
        PendingCommits {
            group: "ä".into(),
            cell: 0,
            commits: vec![commit(None), commit(Some("text"))],
            at: 7,
            order: 3,
        }
    }

    #[test]
    fn pending_commits_read_back_and_cut_ones_do_not() {
        let pending = pending();
        let row = encode_pending(&pending);
        for cut in 0..row.len() {
            assert_eq!(decode_delta(&row[..cut]), None);
        }
        let at = 1 + 4 + pending.group.len() + 8;
        let before = [&[1], &row[1..at], &row[at + 8..]].concat();
        let first = PendingCommits {
            order: 0,
            ..pending.clone()
        };
        assert_eq!(decode_delta(&before), Some(Delta::Pending(first)), "of version 1");
        assert_eq!(decode_delta(&row), Some(Delta::Pending(pending.clone())));
        let places = [(TopicId(9), 2), (TopicId(1), 0)];
        let elsewhere = PendingCommits { cell: 3, ..pending };
        let row = encode_pending(&elsewhere);
        for cut in 0..row.len() {
            assert_eq!(decode_delta(&row[..cut]), None);
        }
        assert_eq!(decode_delta(&row), Some(Delta::Pending(elsewhere.clone())));
        let mut owed = Owed::new(INSTANCE, Status::Ended(TransactionEnd::Commit), places.into());
        owed.commits.push(elsewhere);
        let row = encode((INSTANCE, None), 1, owed.after, 5, Some(&owed));
        for cut in 0..row.len() {
            assert!(decode(&row[..cut]).is_none());
        }
        let read = decode(&row).unwrap().owed.unwrap();
        assert_eq!((read.commits, read.places), (owed.commits, owed.places));
        let row = encode_withdrawal("ä", &places);
        for cut in 0..row.len() {
            assert_eq!(decode_delta(&row[..cut]), None);
        }
        let read = Delta::Withdrawal("ä".into(), places.into());
        assert_eq!(decode_delta(&row), Some(read));
        let row = encode_elsewhere(&places);
        for cut in 0..row.len() {
            assert_eq!(decode_delta(&row[..cut]), None);
        }
        assert_eq!(decode_delta(&row), Some(Delta::Elsewhere(places.into())));
    }
}
