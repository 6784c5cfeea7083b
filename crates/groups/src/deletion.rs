//! Deleting groups.
//!
//! A deleted group disappears at once, and is restored if the journal does not store the deletion: memory
//! always matches the result of a restart.

use std::sync::Arc;

use stafett_journal::{Frame, Ticket, TicketView};
use stafett_store::{NotStored, spaces};
use tokio::sync::oneshot;

use super::commit::frame;
use super::error::GroupError;
use super::group::Group;
use super::registry::Groups;

/// Deletion in progress.
#[derive(Debug, Default)]
#[must_use]
pub struct DeletionTicket {
    /// `None` if nothing of the group is stored.
    stored: Option<(TicketView, oneshot::Receiver<Result<(), NotStored>>)>,
    /// Changes that are stored behind it.
    behind: Option<Ticket>,
}

impl DeletionTicket {
    /// Returns true if the deletion is refused already.
    pub fn is_refused(&self) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|(view, _)| view.committed() == Some(false))
    }

    /// Waits for `behind`, too, which was staged behind the deletion.
    pub fn and(self, behind: Option<Ticket>) -> Self {
        Self { behind, ..self }
    }

    /// Waits until the deletion is as durable as commits are.
    pub async fn durable(self) -> Result<(), NotStored> {
        if let Some((_, outcome)) = self.stored {
            outcome.await.unwrap_or(Err(NotStored::Unknown))?;
        }
        match self.behind {
            Some(ticket) => stafett_store::all_outcomes(&ticket.await),
            None => Ok(()),
        }
    }
}

impl Groups {
    /// Deletes a group without members, and its commits.
    pub fn delete(self: &Arc<Self>, name: &str) -> Result<DeletionTicket, GroupError> {
        let mut shard = self.lock(self.shard(name));
        let group = shard.get(name).ok_or(GroupError::NoSuchGroup)?;
        if !group.kind.is_empty() {
            return Err(GroupError::NotEmpty);
        }
        let frames = removal_frames(group);
        let stored = (!frames.is_empty()).then(|| self.stage(frames));
        let Some((ticket, group)) = stored.zip(self.remove(&mut shard, name)) else {
            return Ok(DeletionTicket::default());
        };
        let view = ticket.glance();
        let (sender, receiver) = oneshot::channel();
        let groups = Arc::clone(self);
        // The task runs on even if the caller stops waiting.
        self.tasks.spawn(async move {
            let outcome = stafett_store::all_outcomes(&ticket.await);
            if outcome.is_err() {
                groups.bring_back(group);
            }
            let _ = sender.send(outcome);
        });
        Ok(DeletionTicket {
            stored: Some((view, receiver)),
            behind: None,
        })
    }

    /// Restores a group. If a new one has its name, that gets the commits that it lacks.
    fn bring_back(&self, mut old: Group) {
        let mut shard = self.lock(self.shard(&old.name));
        let Some(new) = shard.get_mut(&old.name) else {
            self.insert(&mut shard, old);
            return;
        };
        new.is_stored |= old.is_stored;
        old.commits.settle();
        for (topic, partitions) in old.commits.topics() {
            for (partition, committed) in partitions {
                if !new.commits.may_have(topic, *partition) {
                    new.commits.put(topic, *partition, committed.clone());
                }
            }
        }
    }
}

/// Returns the frames that delete a group and its commits from the journal.
pub(super) fn removal_frames(group: &Group) -> Vec<Frame> {
    let state = group.is_stored.then(|| {
        let key = bytes::Bytes::copy_from_slice(group.name.as_bytes());
        spaces::GROUPS.delete(key)
    });
    let settled = group.commits.topics().flat_map(|(topic, partitions)| {
        let index = partitions.iter().map(|(index, _)| *index);
        index.map(move |index| (topic, index))
    });
    let places = settled.chain(group.commits.staged_places());
    let commits = places.map(|(topic, partition)| frame(&group.name, &(topic, partition, None)));
    state.into_iter().chain(commits).collect()
}
