//! Range assignment: each topic's partitions in contiguous ranges, in the order of the members. Topics with
//! equal partition counts and equal subscribers are cut alike, so a member gets the same partitions of each.

use super::Task;
use crate::consumer::partitions::{Partition, Partitions};

pub(super) fn assign(task: &Task<'_>) -> Vec<Partitions> {
    // Static members first, by instance name, so that a restart changes nothing.
    let mut order: Vec<usize> = (0..task.members.len()).collect();
    order.sort_by_key(|index| {
        task.members
            .get(*index)
            .map(|member| (member.instance.is_none(), member.instance, member.id))
    });
    let mut subscribers: Vec<Vec<usize>> = vec![Vec::new(); task.topics.len()];
    for index in order {
        for topic in task
            .members
            .get(index)
            .into_iter()
            .flat_map(|member| member.wants.iter())
        {
            if let Some(list) = subscribers.get_mut(*topic as usize) {
                list.push(index);
            }
        }
    }
    let mut shares: Vec<Vec<Partition>> = vec![Vec::new(); task.members.len()];
    for (topic, subscribers) in task.topics.iter().zip(&subscribers) {
        let Ok(count) = u32::try_from(subscribers.len()) else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let (share, larger_shares) = (topic.partitions / count, topic.partitions % count);
        let mut next = 0;
        for (place, member) in (0..).zip(subscribers) {
            let end = next + share + u32::from(place < larger_shares);
            if let Some(list) = shares.get_mut(*member) {
                list.extend((next..end).map(|index| Partition {
                    topic: topic.id,
                    index,
                }));
            }
            next = end;
        }
    }
    shares.into_iter().map(Partitions::from_iter).collect()
}
