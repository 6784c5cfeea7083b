//! Sets of partitions, as sorted lists.
//!
//! A list of 100,000 costs 3 MB and is compared, split and merged in one pass.

use std::cmp::Ordering;

use stafett_topics::TopicId;

/// One partition of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub topic: TopicId,
    pub index: u32,
}

/// Sorted partitions without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions(Vec<Partition>);

/// A partition that a member has, with the epoch at which it got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedPartition {
    pub partition: Partition,
    pub since: i32,
}

/// Sorted held partitions without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedPartitions(Vec<OwnedPartition>);

impl Partitions {
    pub fn as_slice(&self) -> &[Partition] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, partition: Partition) -> bool {
        self.0.binary_search(&partition).is_ok()
    }

    /// Returns the partitions grouped by topic.
    pub fn by_topic(&self) -> impl Iterator<Item = &[Partition]> {
        self.0.chunk_by(|a, b| a.topic == b.topic)
    }
}

impl FromIterator<Partition> for Partitions {
    fn from_iter<I: IntoIterator<Item = Partition>>(partitions: I) -> Self {
        let mut list: Vec<_> = partitions.into_iter().collect();
        list.sort_unstable();
        list.dedup();
        Self(list)
    }
}

impl OwnedPartitions {
    pub fn as_slice(&self) -> &[OwnedPartition] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the epoch at which the member got the partition, or `None` if it does not hold it.
    pub fn since(&self, partition: Partition) -> Option<i32> {
        let at = self.0.binary_search_by_key(&partition, |held| held.partition);
        self.0.get(at.ok()?).map(|held| held.since)
    }

    pub fn partitions(&self) -> Partitions {
        Partitions(self.0.iter().map(|held| held.partition).collect())
    }

    /// Returns true if all of `partitions` are held.
    pub fn covers(&self, partitions: &Partitions) -> bool {
        partitions.0.iter().all(|one| self.since(*one).is_some())
    }

    /// Returns true if any of `partitions` is held.
    pub fn touches(&self, partitions: &Partitions) -> bool {
        self.0.iter().any(|held| partitions.contains(held.partition))
    }

    /// Splits into partitions in `wanted` and others, and finds those of `wanted` that are missing.
    pub(crate) fn against(&self, wanted: &Partitions) -> Split {
        let mut split = Split::default();
        let (mut held, mut wanted) = (self.0.iter().peekable(), wanted.0.iter().peekable());
        loop {
            let order = match (held.peek(), wanted.peek()) {
                (None, None) => return split,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(held), Some(wanted)) => held.partition.cmp(wanted),
            };
            match order {
                Ordering::Less => split.surplus.0.extend(held.next()),
                Ordering::Equal => {
                    wanted.next();
                    split.kept.0.extend(held.next());
                }
                Ordering::Greater => split.missing.extend(wanted.next()),
            }
        }
    }

    /// Adds partitions, which must not be held yet.
    pub(super) fn add(&mut self, partitions: &[Partition], since: i32) {
        let more = partitions.iter().map(|partition| OwnedPartition {
            partition: *partition,
            since,
        });
        self.0.extend(more);
        self.0.sort_unstable_by_key(|held| held.partition);
    }
}

impl FromIterator<OwnedPartition> for OwnedPartitions {
    fn from_iter<I: IntoIterator<Item = OwnedPartition>>(held: I) -> Self {
        let mut list: Vec<_> = held.into_iter().collect();
        list.sort_by_key(|held| held.partition);
        list.dedup_by_key(|held| held.partition);
        Self(list)
    }
}

/// Comparison of held with wanted partitions.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub kept: OwnedPartitions,
    pub surplus: OwnedPartitions,
    pub missing: Vec<Partition>,
}
