//! Deletion of groups and of their commits: those that wait for the end of a transaction go with them.
//!
//! The deletion is staged first, and the withdrawals behind it under the locks of their producers, so that no
//! end comes in between. A crash between the two leaves a deletion that was not acknowledged, as if it had
//! been before the commits.

use std::sync::Arc;

use stafett_groups::{CommitTicket, DeletionTicket, Group, GroupError};
use stafett_journal::{Change, Ticket};
use stafett_model::LockGuard;
use stafett_store::spaces;
use stafett_topics::TopicId;

use crate::producer::{Producer, Status};
use crate::registry::{Entry, Transactions};
use crate::stored;

impl Transactions {
    /// Deletes a group without members, and its commits. A group that has only commits that wait is there.
    pub fn delete_group(&self, group: &str) -> Result<DeletionTicket, GroupError> {
        let waiting = self.waiting(group);
        let mut locked = lock(&waiting, group);
        let ticket = match self.groups.delete(group) {
            Err(GroupError::NoSuchGroup) if !locked.is_empty() => DeletionTicket::default(),
            deleted => deleted?,
        };
        if ticket.is_refused() {
            return Ok(ticket);
        }
        Ok(ticket.and(self.withdraw(&mut locked, group, |_| true)))
    }

    /// Deletes the commits that `is_allowed` permits, as [`stafett_groups::Groups::delete_commits`] does.
    pub fn delete_commits(
        &self,
        group: &str,
        commits: &[(TopicId, u32)],
        is_allowed: impl FnOnce(&Group) -> Result<Vec<bool>, GroupError>,
    ) -> Result<(Vec<bool>, CommitTicket), GroupError> {
        let waiting = self.waiting(group);
        let mut locked = lock(&waiting, group);
        let (allowed, ticket) = match self.groups.delete_commits(group, commits, is_allowed) {
            Err(GroupError::NoSuchGroup) if !locked.is_empty() => {
                (vec![true; commits.len()], CommitTicket::default())
            }
            deleted => deleted?,
        };
        if ticket.is_refused() {
            return Ok((allowed, ticket));
        }
        let gone = |place: &(TopicId, u32)| {
            let mut pairs = commits.iter().zip(&allowed);
            pairs.any(|(known, allowed)| *allowed && known == place)
        };
        let withdrawn = self.withdraw(&mut locked, group, gone);
        Ok((allowed, ticket.and(withdrawn)))
    }

    /// Returns the producers with commits of a group that wait, by id.
    fn waiting(&self, group: &str) -> Vec<(Arc<str>, Entry)> {
        if !self.has_pending() {
            return Vec::new();
        }
        let mut waiting = self.open_entries();
        waiting.retain(|(_, entry)| entry.lock().has_commits_of(group));
        waiting.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        waiting
    }

    /// Withdraws the commits of a group that `is_gone` names. `None` if there is none.
    fn withdraw(
        &self,
        locked: &mut [(&str, LockGuard<'_, Producer>)],
        group: &str,
        is_gone: impl Fn(&(TopicId, u32)) -> bool,
    ) -> Option<Ticket> {
        let mut frames = Vec::new();
        for (id, producer) in &mut *locked {
            let mut places = producer.places_of(group);
            places.retain(&is_gone);
            if !places.is_empty() {
                let change = Change::Delta(stored::encode_withdrawal(group, &places));
                frames.push(spaces::TRANSACTIONS.change(id.as_bytes().to_vec(), change));
            }
        }
        if frames.is_empty() {
            return None;
        }
        let ticket = self.append_state(frames);
        if ticket.glance().committed() != Some(false) {
            for (_, producer) in locked {
                producer.withdraw(group, &is_gone);
                if producer.pending_count() == 0 {
                    self.commits_ended();
                }
            }
        }
        Some(ticket)
    }
}

/// Locks the producers, in the order of their ids, that still have commits of the group that wait.
fn lock<'a>(waiting: &'a [(Arc<str>, Entry)], group: &str) -> Vec<(&'a str, LockGuard<'a, Producer>)> {
    let locked = waiting.iter().map(|(id, entry)| (&**id, entry.lock()));
    locked
        .filter(|(_, producer)| producer.status == Status::Ongoing && producer.has_commits_of(group))
        .collect()
}
