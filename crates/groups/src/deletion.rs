//! Deleting groups.
//!
//! A deleted group disappears at once, and is restored if the journal does not store the deletion: memory
//! always matches the result of a restart.

use std::sync::Arc;

use stafett_journal::Frame;
use stafett_store::{NotStored, spaces};
use tokio::sync::oneshot;

use super::commit::frame;
use super::error::GroupError;
use super::group::Group;
use super::registry::Groups;

/// Deletion in progress.
#[derive(Debug)]
#[must_use]
pub struct DeletionTicket(Option<oneshot::Receiver<Result<(), NotStored>>>);

impl DeletionTicket {
    /// Waits until the deletion is as durable as commits are.
    pub async fn durable(self) -> Result<(), NotStored> {
        match self.0 {
            Some(outcome) => outcome.await.unwrap_or(Err(NotStored::Unknown)),
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
            return Ok(DeletionTicket(None));
        };
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
        Ok(DeletionTicket(Some(receiver)))
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
