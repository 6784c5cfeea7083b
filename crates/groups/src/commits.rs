//! The committed offsets of one group, by topic and partition.
//!
//! Kept small: a group with one commit takes a few hundred bytes, and in one with a hundred thousand topics a
//! search is one hash lookup. This module does not check permissions.
//!
//! A change is *staged* once the journal has it and *settled* once the journal has decided. Readers see
//! settled changes only: a refused commit is never visible, whatever was staged before or after it. No task
//! is woken to settle; the next reader or stager does it ([`Commits::settle`]).

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use smallvec::SmallVec;
use stafett_journal::TicketView;
use stafett_topics::TopicId;

/// Committed offset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, -1 if unknown.
    pub leader_epoch: i32,
    /// Time of the commit, in ms since 1970.
    pub at: i64,
    /// Place of its request among all commits of the broker: of two commits of a partition, the later request
    /// counts. It depends on no clock. 0 for a commit that was stored without one.
    pub order: u64,
    /// Metadata text of the commit.
    pub text: Option<Box<str>>,
}

/// Sender of a commit.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitSender<'a> {
    /// Member id; empty if the sender is not a member.
    pub member: &'a str,
    pub instance: Option<&'a str>,
    /// Generation, or the member's epoch. Below 0 if the sender is not a member.
    pub epoch: i32,
    /// True for a commit of a transaction, whose coordinator fences producers: it may name no member, and it
    /// counts while members join.
    pub is_transactional: bool,
}

/// All commits of a group.
#[derive(Debug, Default)]
pub struct Commits {
    topics: HashTable<TopicCommits>,
    /// Staged changes, in order.
    staged: VecDeque<Staged>,
}

/// Change of one partition: a new commit, or `None` to delete it.
pub(crate) type PartitionChange = (TopicId, u32, Option<CommittedOffset>);

/// Changes that are stored together.
pub(crate) type Changes = SmallVec<[PartitionChange; 1]>;

#[derive(Debug)]
struct Staged {
    outcome: TicketView,
    changes: Changes,
}

#[derive(Debug)]
struct TopicCommits {
    topic: TopicId,
    /// Commits by partition, ascending.
    partitions: Vec<(u32, CommittedOffset)>,
}

/// Hasher of topic ids. Its keys are fixed, as topic ids are random.
#[derive(Debug, Clone, Copy, Default)]
struct TopicIdHasher;

impl BuildHasher for TopicIdHasher {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        std::hash::DefaultHasher::new()
    }
}

fn hash(topic: TopicId) -> u64 {
    TopicIdHasher.hash_one(topic)
}

impl Commits {
    /// Returns true if there are no commits, settled or staged.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.staged.is_empty()
    }

    /// Returns true if a change is staged and not settled.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Returns true if the partition has a commit, or will have one if the staged changes are stored.
    pub(crate) fn may_have(&self, topic: TopicId, partition: u32) -> bool {
        self.get(topic, partition).is_some() || self.staged_places().any(|place| place == (topic, partition))
    }

    /// Returns true if the partition has a commit, settled or staged, whose request came after `order`. A
    /// staged one is either stored, or the journal has failed.
    pub(crate) fn has_later(&self, (topic, partition): (TopicId, u32), order: u64) -> bool {
        let staged = self.staged.iter().flat_map(|staged| &staged.changes);
        let staged = staged.filter(|(other, number, _)| (*other, *number) == (topic, partition));
        let staged = staged.filter_map(|(_, _, committed)| committed.as_ref());
        let mut known = staged.chain(self.get(topic, partition));
        known.any(|committed| committed.order > order)
    }

    /// Returns the partitions of all staged changes, possibly repeated.
    pub(crate) fn staged_places(&self) -> impl Iterator<Item = (TopicId, u32)> {
        let changes = self.staged.iter().flat_map(|staged| &staged.changes);
        changes.map(|(topic, partition, _)| (*topic, *partition))
    }

    /// Adds staged changes, to be settled when the journal has decided.
    pub(crate) fn stage(&mut self, outcome: TicketView, changes: Changes) {
        while let Some(committed) = self.staged.front().and_then(|staged| staged.outcome.committed()) {
            self.settle_first(committed);
        }
        self.staged.push_back(Staged { outcome, changes });
    }

    fn settle_first(&mut self, committed: bool) {
        if let Some(staged) = self.staged.pop_front()
            && committed
        {
            for change in staged.changes {
                self.apply(change);
            }
        }
    }

    /// Applies the staged changes that are stored, and drops those that were refused.
    pub(crate) fn settle(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // Outcomes are read newest first: if the journal decides in order, all changes before a decided one
        // are decided too.
        let mut verdicts: SmallVec<[Option<bool>; 8]> = self
            .staged
            .iter()
            .rev()
            .map(|staged| staged.outcome.committed())
            .collect();
        let mut waiting = VecDeque::new();
        for staged in std::mem::take(&mut self.staged) {
            match verdicts.pop().flatten() {
                None => waiting.push_back(staged),
                Some(false) => {}
                Some(true) => {
                    for change in staged.changes {
                        // An undecided change of the same partition was staged earlier and is superseded.
                        for older in &mut waiting {
                            older.forget(&change);
                        }
                        self.apply(change);
                    }
                }
            }
        }
        self.staged = waiting;
    }

    fn apply(&mut self, (topic, partition, committed): PartitionChange) {
        match committed {
            Some(committed) => self.put(topic, partition, committed),
            None => drop(self.remove(topic, partition)),
        }
    }

    /// Returns the number of commits.
    pub fn len(&self) -> usize {
        self.topics.iter().map(|topic| topic.partitions.len()).sum()
    }

    pub fn get(&self, topic: TopicId, partition: u32) -> Option<&CommittedOffset> {
        let found = self.topics.find(hash(topic), |known| known.topic == topic)?;
        let at = found.place(partition).ok()?;
        found.partitions.get(at).map(|(_, committed)| committed)
    }

    /// Returns the commits of a topic, by ascending partition.
    pub fn of_topic(&self, topic: TopicId) -> &[(u32, CommittedOffset)] {
        self.topics
            .find(hash(topic), |known| known.topic == topic)
            .map_or(&[], |found| found.partitions.as_slice())
    }

    /// Returns the topics with commits and their partitions, in no order.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &[(u32, CommittedOffset)])> {
        self.topics
            .iter()
            .map(|topic| (topic.topic, topic.partitions.as_slice()))
    }

    pub(crate) fn put(&mut self, topic: TopicId, partition: u32, committed: CommittedOffset) {
        let entry = self.topics.entry(
            hash(topic),
            |known| known.topic == topic,
            |known| hash(known.topic),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(mut entry) => {
                let partitions = &mut entry.get_mut().partitions;
                match partitions.binary_search_by_key(&partition, |(at, _)| *at) {
                    Ok(at) => {
                        if let Some((_, known)) = partitions.get_mut(at) {
                            *known = committed;
                        }
                    }
                    Err(at) => partitions.insert(at, (partition, committed)),
                }
            }
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(TopicCommits {
                    topic,
                    partitions: vec![(partition, committed)],
                });
            }
        }
    }

    pub(crate) fn remove(&mut self, topic: TopicId, partition: u32) -> Option<CommittedOffset> {
        let mut entry = self
            .topics
            .find_entry(hash(topic), |known| known.topic == topic)
            .ok()?;
        let at = entry.get().place(partition).ok()?;
        let (_, removed) = entry.get_mut().partitions.remove(at);
        if entry.get().partitions.is_empty() {
            entry.remove();
        }
        Some(removed)
    }

    /// Removes the commits that `keep` rejects, and returns their partitions.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(TopicId, &CommittedOffset) -> bool,
    ) -> Vec<(TopicId, u32)> {
        let mut removed = Vec::new();
        self.topics.retain(|found| {
            let topic = found.topic;
            found.partitions.retain(|(partition, committed)| {
                let kept = keep(topic, committed);
                if !kept {
                    removed.push((topic, *partition));
                }
                kept
            });
            !found.partitions.is_empty()
        });
        removed
    }
}

impl Staged {
    /// Drops its change of the partition that another change sets.
    fn forget(&mut self, (topic, partition, _): &PartitionChange) {
        self.changes
            .retain(|(other, index, _)| (*other, *index) != (*topic, *partition));
    }
}

impl TopicCommits {
    fn place(&self, partition: u32) -> Result<usize, usize> {
        self.partitions.binary_search_by_key(&partition, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(offset: i64) -> CommittedOffset {
        CommittedOffset {
            offset,
            leader_epoch: -1,
            at: 0,
            order: 0,
            text: None,
        }
    }

    #[test]
    fn the_last_commit_of_a_partition_is_what_counts() {
        let mut commits = Commits::default();
        for (topic, partition, offset) in [(1, 5, 10), (1, 2, 20), (2, 0, 30), (1, 5, 40)] {
            commits.put(TopicId(topic), partition, committed(offset));
        }
        assert_eq!(commits.len(), 3);
        assert_eq!(commits.get(TopicId(1), 5), Some(&committed(40)));
        assert_eq!(
            commits.of_topic(TopicId(1)),
            [(2, committed(20)), (5, committed(40))]
        );
        assert_eq!(commits.get(TopicId(3), 0), None);
        assert_eq!(commits.remove(TopicId(2), 0), Some(committed(30)));
        assert_eq!(commits.remove(TopicId(2), 0), None);
        assert_eq!(commits.topics().count(), 1);
    }

    #[test]
    fn what_is_not_kept_is_named() {
        let mut commits = Commits::default();
        for partition in 0..4 {
            commits.put(TopicId(1), partition, committed(i64::from(partition)));
        }
        commits.put(TopicId(2), 9, committed(0));
        let removed = commits.retain(|_, committed| committed.offset % 2 == 1);
        assert_eq!(commits.len(), 2);
        assert_eq!(removed.len(), 3);
        assert!(removed.contains(&(TopicId(2), 9)));
    }
}
