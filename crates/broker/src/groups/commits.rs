//! The committed offsets of one group, by topic and partition.
//!
//! Made to be small: a group with one commit takes a few hundred bytes, one with a hundred thousand topics no search
//! longer than a lookup. It knows nothing of who may commit.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::topic::TopicId;

/// How far a group has come in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to be read.
    pub offset: i64,
    /// The epoch of the last record read, -1 if it is not known.
    pub leader_epoch: i32,
    /// When it was committed, in ms since 1970.
    pub at: i64,
    /// What the member wrote beside it.
    pub text: Option<Box<str>>,
}

/// All commits of a group.
#[derive(Debug, Default)]
pub struct Commits {
    topics: HashTable<TopicCommits>,
}

#[derive(Debug)]
struct TopicCommits {
    topic: TopicId,
    /// By partition, rising.
    partitions: Vec<(u32, Committed)>,
}

/// Topic ids are random, so they spread by themselves.
#[derive(Debug, Clone, Copy, Default)]
struct Spread;

impl BuildHasher for Spread {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        std::hash::DefaultHasher::new()
    }
}

fn hash(topic: TopicId) -> u64 {
    Spread.hash_one(topic)
}

impl Commits {
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Commits in all partitions.
    pub fn len(&self) -> usize {
        self.topics.iter().map(|topic| topic.partitions.len()).sum()
    }

    pub fn get(&self, topic: TopicId, partition: u32) -> Option<&Committed> {
        let found = self.topics.find(hash(topic), |known| known.topic == topic)?;
        let at = found.place(partition).ok()?;
        found.partitions.get(at).map(|(_, committed)| committed)
    }

    /// The partitions of a topic with a commit, rising.
    pub fn of_topic(&self, topic: TopicId) -> &[(u32, Committed)] {
        self.topics
            .find(hash(topic), |known| known.topic == topic)
            .map_or(&[], |found| found.partitions.as_slice())
    }

    /// The topics with a commit, and their partitions, in no order.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &[(u32, Committed)])> {
        self.topics
            .iter()
            .map(|topic| (topic.topic, topic.partitions.as_slice()))
    }

    pub(crate) fn put(&mut self, topic: TopicId, partition: u32, committed: Committed) {
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

    pub(crate) fn remove(&mut self, topic: TopicId, partition: u32) -> Option<Committed> {
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

    /// Removes and gives what is not to be kept.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(TopicId, &Committed) -> bool,
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

impl TopicCommits {
    fn place(&self, partition: u32) -> Result<usize, usize> {
        self.partitions.binary_search_by_key(&partition, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(offset: i64) -> Committed {
        Committed {
            offset,
            leader_epoch: -1,
            at: 0,
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
