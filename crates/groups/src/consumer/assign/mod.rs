//! Assignment of partitions to members. Pure functions of the subscriptions and the previous targets.
//!
//! - [`even`]: all members want the same topics: balanced within one, with the fewest moves
//! - [`uneven`]: members want different topics: as balanced as single moves make it, sticky
//! - [`simple`]: partitions may have several members
//! - [`range`]: neighbouring partitions of each topic, the same ones of topics with as many

mod even;
mod range;
mod simple;
mod uneven;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use stafett_topics::TopicShape;

use super::partitions::{Partition, Partitions};

/// Strategy of assigning partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Assignor {
    #[default]
    Uniform,
    Range,
    /// Every partition and every member has at least one of the other; for groups that share partitions.
    Simple,
}

impl Assignor {
    /// Assignors that members may ask for.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
            Self::Simple => "simple",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }
}

/// Input of an assignment.
#[derive(Debug)]
pub(super) struct Task<'a> {
    /// Topics, each once, wanted by at least one member.
    pub topics: Vec<TopicShape>,
    pub members: Vec<Applicant<'a>>,
}

/// A member that wants partitions.
#[derive(Debug)]
pub(super) struct Applicant<'a> {
    pub id: &'a str,
    pub instance: Option<&'a str>,
    /// Indexes of the topics that it wants, ascending. Members with the same subscription share one list.
    pub wants: Arc<[u32]>,
    /// Its previous target.
    pub before: &'a Partitions,
}

/// Returns the target of each member, in the order of the members.
pub(super) fn assign(assignor: Assignor, task: &Task<'_>) -> Vec<Partitions> {
    let Some(first) = task.members.first() else {
        return Vec::new();
    };
    let is_even = task
        .members
        .iter()
        .all(|member| Arc::ptr_eq(&member.wants, &first.wants) || member.wants == first.wants);
    match assignor {
        Assignor::Range => range::assign(task),
        Assignor::Simple => simple::assign(task),
        Assignor::Uniform if is_even => even::assign(task),
        Assignor::Uniform => uneven::assign(task),
    }
}

/// Numbers of the partitions of a task's topics, from 0, as indexes of vectors.
struct Numbering {
    /// Topics by id: id, first number, number of partitions, and index.
    topics: Vec<(stafett_topics::TopicId, usize, u32, u32)>,
    count: usize,
}

impl Numbering {
    fn of(topics: &[TopicShape]) -> Self {
        let mut count = 0;
        let mut list = Vec::with_capacity(topics.len());
        for (index, topic) in (0..).zip(topics) {
            list.push((topic.id, count, topic.partitions, index));
            count += topic.partitions as usize;
        }
        list.sort_unstable_by_key(|(id, ..)| *id);
        Self { topics: list, count }
    }

    /// Returns the number of a partition and the index of its topic, or `None` if it does not exist.
    fn number(&self, partition: Partition) -> Option<(usize, u32)> {
        let at = self
            .topics
            .binary_search_by_key(&partition.topic, |(id, ..)| *id)
            .ok()?;
        let (_, base, partitions, index) = self.topics.get(at)?;
        (partition.index < *partitions).then_some((base + partition.index as usize, *index))
    }
}

fn all(topics: &[TopicShape]) -> impl Iterator<Item = Partition> {
    topics.iter().flat_map(|topic| {
        (0..topic.partitions).map(|index| Partition {
            topic: topic.id,
            index,
        })
    })
}
