//! Uniform assignment when members want different topics. Partitions stay with their members where possible;
//! free ones go to the subscriber with the fewest. Then single partitions move from members with more to
//! members with less, until no move improves the balance.

#![expect(
    clippy::indexing_slicing,
    reason = "members, topics and partitions are indexed by the task's own numbers"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::{Numbering, Task};
use crate::consumer::partitions::{Partition, Partitions};

/// Bound on the balancing passes over all topics.
const PASSES_MAX: usize = 64;

pub(super) fn assign(task: &Task<'_>) -> Vec<Partitions> {
    let mut plan = Plan::of(task);
    plan.keep(task);
    plan.hand_out();
    for _ in 0..PASSES_MAX {
        let moves: usize = (0..plan.topics.len()).map(|topic| plan.balance(topic)).sum();
        if moves == 0 {
            break;
        }
    }
    plan.shares(task)
}

struct Plan {
    topics: Vec<TopicPlan>,
    /// Number of partitions of each member.
    loads: Vec<usize>,
    numbering: Numbering,
}

struct TopicPlan {
    subscribers: Vec<usize>,
    /// Owner of each partition.
    owners: Vec<Option<usize>>,
}

impl Plan {
    fn of(task: &Task<'_>) -> Self {
        let mut topics: Vec<_> = task
            .topics
            .iter()
            .map(|topic| TopicPlan {
                subscribers: Vec::new(),
                owners: vec![None; topic.partitions as usize],
            })
            .collect();
        for (member, applicant) in task.members.iter().enumerate() {
            for topic in applicant.wants.iter() {
                topics[*topic as usize].subscribers.push(member);
            }
        }
        Self {
            topics,
            loads: vec![0; task.members.len()],
            numbering: Numbering::of(&task.topics),
        }
    }

    /// Lets each member keep the partitions that it had and still wants.
    fn keep(&mut self, task: &Task<'_>) {
        for (member, applicant) in task.members.iter().enumerate() {
            for partition in applicant.before.as_slice() {
                let Some((_, topic)) = self.numbering.number(*partition) else {
                    continue;
                };
                let owner = &mut self.topics[topic as usize].owners[partition.index as usize];
                if owner.is_none() && applicant.wants.binary_search(&topic).is_ok() {
                    *owner = Some(member);
                    self.loads[member] += 1;
                }
            }
        }
    }

    /// Assigns the free partitions. Topics with few subscribers come first: they have the least choice.
    fn hand_out(&mut self) {
        let mut order: Vec<usize> = (0..self.topics.len()).collect();
        order.sort_by_key(|topic| (self.topics[*topic].subscribers.len(), *topic));
        for topic in order {
            let topic = &mut self.topics[topic];
            let mut least: BinaryHeap<_> = topic
                .subscribers
                .iter()
                .map(|member| Reverse((self.loads[*member], *member)))
                .collect();
            for owner in topic.owners.iter_mut().filter(|owner| owner.is_none()) {
                let Some(Reverse((load, member))) = least.pop() else {
                    break;
                };
                *owner = Some(member);
                self.loads[member] = load + 1;
                least.push(Reverse((load + 1, member)));
            }
        }
    }

    /// Moves partitions of one topic to subscribers that have at least two fewer. Returns the number of
    /// moves.
    fn balance(&mut self, topic: usize) -> usize {
        let topic = &mut self.topics[topic];
        let most = topic
            .owners
            .iter()
            .flatten()
            .map(|owner| self.loads[*owner])
            .max();
        let least = topic.subscribers.iter().map(|member| self.loads[*member]).min();
        let (Some(most), Some(least)) = (most, least) else {
            return 0;
        };
        if most < least + 2 {
            return 0;
        }
        let mut owners_by_load: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut by_load: BTreeSet<(usize, usize)> = topic
            .subscribers
            .iter()
            .map(|member| (self.loads[*member], *member))
            .collect();
        let mut lists: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (partition, owner) in topic.owners.iter().enumerate() {
            let Some(owner) = owner else { continue };
            owners_by_load.insert((self.loads[*owner], *owner));
            lists.entry(*owner).or_default().push(partition);
        }
        let mut moves = 0;
        while let (Some((most, giver)), Some((least, taker))) =
            (owners_by_load.last().copied(), by_load.first().copied())
        {
            if most < least + 2 {
                break;
            }
            let given = lists.get_mut(&giver);
            let Some((partition, left)) = given.and_then(|list| Some((list.pop()?, list.len()))) else {
                break;
            };
            topic.owners[partition] = Some(taker);
            lists.entry(taker).or_default().push(partition);
            owners_by_load.remove(&(most, giver));
            by_load.remove(&(most, giver));
            owners_by_load.remove(&(least, taker));
            by_load.remove(&(least, taker));
            self.loads[giver] -= 1;
            self.loads[taker] += 1;
            by_load.insert((most - 1, giver));
            by_load.insert((least + 1, taker));
            owners_by_load.insert((least + 1, taker));
            if left > 0 {
                owners_by_load.insert((most - 1, giver));
            }
            moves += 1;
        }
        moves
    }

    fn shares(self, task: &Task<'_>) -> Vec<Partitions> {
        let mut shares: Vec<Vec<Partition>> =
            self.loads.iter().map(|load| Vec::with_capacity(*load)).collect();
        for (shape, topic) in task.topics.iter().zip(&self.topics) {
            for (index, owner) in (0..).zip(&topic.owners) {
                if let Some(owner) = owner {
                    shares[*owner].push(Partition {
                        topic: shape.id,
                        index,
                    });
                }
            }
        }
        shares.into_iter().map(Partitions::from_iter).collect()
    }
}
