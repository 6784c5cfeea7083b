//! Share sessions (KIP-932): partitions that a member of a share group fetches, so that it sends only
//! changes.
//!
//! A member has one session. It ends with its last request (epoch -1) or with the connection that opened it;
//! then the records that the member holds come again. Other connections may go on with it, as some clients
//! acknowledge over one of their own; but not one that opened an earlier session of the member: its requests
//! come late.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use stafett_kafka_wire::ErrorCode;
use stafett_model::Lock;
use stafett_topics::TopicId;

/// Bound on the sessions of all connections together.
const SESSIONS_MAX: usize = 2000;
/// Bound on the partitions of one session.
const PARTITIONS_MAX: usize = 100_000;
/// Epoch of a request that opens a session.
pub(crate) const EPOCH_OPEN: i32 = 0;
/// Epoch of a request that closes the session.
pub(crate) const EPOCH_CLOSE: i32 = -1;

/// A member of a share group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShareMember {
    pub group: Arc<str>,
    pub id: Arc<str>,
}

/// A partition of a topic.
pub(crate) type PartitionId = (TopicId, i32);

#[derive(Debug, Default)]
pub(crate) struct ShareSessions {
    inner: Lock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<ShareMember, Session>,
    last_number: u64,
}

/// A session that was opened on a connection. Another one of the same member has another number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenedSession {
    pub member: ShareMember,
    pub number: u64,
}

#[derive(Debug)]
struct Session {
    number: u64,
    /// Epoch that the next request must have.
    epoch: i32,
    partitions: BTreeSet<PartitionId>,
    /// First partition of the last fetch; the next one begins behind it.
    first: Option<PartitionId>,
}

impl Session {
    /// False for a connection whose last session of the member was an earlier one.
    fn is_open_to(&self, member: &ShareMember, opened: &[OpenedSession]) -> bool {
        let last = opened.iter().rev().find(|one| one.member == *member);
        last.is_none_or(|one| one.number == self.number)
    }

    /// Adds and removes partitions. Returns them in the order of this fetch; the next one begins with
    /// another.
    fn update(&mut self, added: &[PartitionId], forgotten: &[PartitionId]) -> Vec<PartitionId> {
        for partition in forgotten {
            self.partitions.remove(partition);
        }
        let room = PARTITIONS_MAX.saturating_sub(self.partitions.len());
        self.partitions.extend(added.iter().take(room));
        let after = self.first.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.partitions.range((after, Bound::Unbounded));
        let before = self.partitions.iter();
        let in_turn = behind.chain(before).copied().take(self.partitions.len());
        let in_turn: Vec<_> = in_turn.collect();
        self.first = in_turn.first().copied();
        in_turn
    }
}

impl ShareSessions {
    /// Opens a member's session, in place of the one that it may have. Returns its partitions, and adds it to
    /// `opened`, without those that have ended.
    pub(crate) fn open(
        &self,
        member: &ShareMember,
        added: &[PartitionId],
        opened: &mut Vec<OpenedSession>,
    ) -> Result<Vec<PartitionId>, ErrorCode> {
        let mut inner = self.inner.lock();
        let Inner {
            sessions,
            last_number,
        } = &mut *inner;
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(member) {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        *last_number += 1;
        let mut session = Session {
            number: *last_number,
            epoch: EPOCH_OPEN + 1,
            partitions: BTreeSet::new(),
            first: None,
        };
        let partitions = session.update(added, &[]);
        sessions.insert(member.clone(), session);
        let number_of = |member: &ShareMember| sessions.get(member).map(|session| session.number);
        opened.retain(|one| number_of(&one.member) == Some(one.number));
        opened.push(OpenedSession {
            member: member.clone(),
            number: *last_number,
        });
        Ok(partitions)
    }

    /// Continues a session for a connection that has opened these. Returns its partitions.
    pub(crate) fn go_on(
        &self,
        member: &ShareMember,
        epoch: i32,
        (added, forgotten): (&[PartitionId], &[PartitionId]),
        opened: &[OpenedSession],
    ) -> Result<Vec<PartitionId>, ErrorCode> {
        let mut inner = self.inner.lock();
        let session = inner.sessions.get_mut(member);
        let session = session.filter(|session| session.is_open_to(member, opened));
        let session = session.ok_or(ErrorCode::ShareSessionNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        session.epoch = epoch.checked_add(1).unwrap_or(EPOCH_OPEN + 1);
        Ok(session.update(added, forgotten))
    }

    /// Returns the session of a member, for a connection that has opened these.
    pub(crate) fn find(
        &self,
        member: &ShareMember,
        opened: &[OpenedSession],
    ) -> Result<OpenedSession, ErrorCode> {
        let inner = self.inner.lock();
        let session = inner.sessions.get(member);
        let session = session.filter(|session| session.is_open_to(member, opened));
        let number = session.ok_or(ErrorCode::ShareSessionNotFound)?.number;
        Ok(OpenedSession {
            member: member.clone(),
            number,
        })
    }

    /// Ends a session, unless its member has opened another one since. False if there is none.
    pub(crate) fn close(&self, opened: &OpenedSession) -> bool {
        let mut inner = self.inner.lock();
        let session = inner.sessions.get(&opened.member);
        let is_last = session.is_some_and(|session| session.number == opened.number);
        is_last && inner.sessions.remove(&opened.member).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str) -> ShareMember {
        ShareMember {
            group: "g".into(),
            id: id.into(),
        }
    }

    #[test]
    fn a_session_goes_on_with_its_epoch_and_ends_once() {
        let sessions = ShareSessions::default();
        let (one, topic) = (member("one"), TopicId(7));
        let all = [(topic, 0), (topic, 1)];
        let not_found = Err(ErrorCode::ShareSessionNotFound);
        let mut opened = Vec::new();
        assert_eq!(sessions.go_on(&one, 1, (&[], &[]), &opened), not_found);
        assert_eq!(sessions.open(&one, &all, &mut opened).unwrap(), all);
        let turned = [(topic, 1), (topic, 0)];
        assert_eq!(sessions.go_on(&one, 1, (&all, &[]), &opened).unwrap(), turned);
        assert_eq!(sessions.go_on(&one, 2, (&all, &[]), &opened).unwrap(), all);
        for epoch in [1, 2, 4] {
            let wrong = Err(ErrorCode::InvalidShareSessionEpoch);
            assert_eq!(sessions.go_on(&one, epoch, (&[], &[]), &opened), wrong);
        }
        assert_eq!(
            sessions.go_on(&one, 3, (&[], &[(topic, 0)]), &opened).unwrap(),
            [(topic, 1)]
        );
        let last = sessions.find(&one, &opened).unwrap();
        assert!(sessions.close(&last) && !sessions.close(&last));
        assert_eq!(sessions.go_on(&one, 4, (&[], &[]), &opened), not_found);
    }

    #[test]
    fn sessions_are_bounded_and_a_member_may_open_its_own_again() {
        let sessions = ShareSessions::default();
        let mut opened = Vec::new();
        for number in 0..SESSIONS_MAX {
            let member = member(&number.to_string());
            sessions.open(&member, &[], &mut opened).unwrap();
        }
        let refused = sessions.open(&member("more"), &[], &mut opened);
        assert_eq!(refused, Err(ErrorCode::ShareSessionLimitReached));
        assert!(sessions.open(&member("7"), &[], &mut opened).is_ok());
    }

    #[test]
    fn a_connection_ends_the_sessions_that_are_still_its_own() {
        let sessions = ShareSessions::default();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for id in ["a", "b"] {
            sessions.open(&member(id), &[], &mut first).unwrap();
        }
        sessions.open(&member("a"), &[], &mut second).unwrap();
        let not_found = Err(ErrorCode::ShareSessionNotFound);
        let ended: Vec<_> = first.iter().map(|one| sessions.close(one)).collect();
        assert_eq!(ended, [false, true]);
        let (a, b) = (member("a"), member("b"));
        assert!(sessions.find(&a, &second).is_ok());
        assert_eq!(sessions.find(&b, &first), not_found);
        // Requests of the first connection that come late are none of the session of the second.
        assert_eq!(sessions.find(&a, &first), not_found);
        let refused = sessions.go_on(&a, 1, (&[], &[]), &first);
        assert_eq!(refused, Err(ErrorCode::ShareSessionNotFound));
        assert!(sessions.go_on(&a, 1, (&[], &[]), &second).is_ok());
        // A connection for acknowledgements alone has opened none.
        assert!(sessions.find(&a, &[]).is_ok() && sessions.go_on(&a, 2, (&[], &[]), &[]).is_ok());
        sessions.open(&member("c"), &[], &mut first).unwrap();
        assert_eq!(first.len(), 1, "ended ones are forgotten");
    }
}
