//! Assignment in groups that share partitions: a uniform assignment, and one shared partition for each member
//! that got none. So every partition and every member has at least one of the other, if any member wants it.

use super::{Assignor, Numbering, Task, assign as assign_by};
use crate::consumer::partitions::{Partition, Partitions};

pub(super) fn assign(task: &Task<'_>) -> Vec<Partitions> {
    let mut targets = assign_by(Assignor::Uniform, task);
    let numbering = Numbering::of(&task.topics);
    let mut sharers = vec![0_u32; numbering.count];
    for partition in targets.iter().flat_map(Partitions::as_slice) {
        if let Some((number, _)) = numbering.number(*partition)
            && let Some(count) = sharers.get_mut(number)
        {
            *count += 1;
        }
    }
    for (member, target) in task.members.iter().zip(&mut targets) {
        if !target.is_empty() {
            continue;
        }
        let wanted = member
            .wants
            .iter()
            .filter_map(|index| task.topics.get(*index as usize));
        let candidates = wanted.flat_map(|topic| {
            (0..topic.partitions).filter_map(|index| {
                let partition = Partition {
                    topic: topic.id,
                    index,
                };
                let (number, _) = numbering.number(partition)?;
                Some((
                    *sharers.get(number)?,
                    !member.before.contains(partition),
                    number,
                    partition,
                ))
            })
        });
        // The one with the fewest members; among equals the one that the member had.
        let Some((_, _, number, partition)) =
            candidates.min_by_key(|(sharers, is_new, number, _)| (*sharers, *is_new, *number))
        else {
            continue;
        };
        if let Some(count) = sharers.get_mut(number) {
            *count += 1;
        }
        *target = Partitions::from_iter([partition]);
    }
    targets
}
