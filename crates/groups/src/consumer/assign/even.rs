//! Uniform assignment when all members want the same topics: shares differ by at most one partition, and the
//! fewest possible partitions move.

use super::{Numbering, Task, all};
use crate::consumer::partitions::{Partition, Partitions};

pub(super) fn assign(task: &Task<'_>) -> Vec<Partitions> {
    let members = task.members.len();
    let numbering = Numbering::of(&task.topics);
    let share = numbering.count / members;
    let mut larger_shares = numbering.count % members;
    let mut is_taken = vec![false; numbering.count];
    let mut shares: Vec<Vec<Partition>> = Vec::with_capacity(members);
    for member in &task.members {
        let mut kept = Vec::new();
        for partition in member.before.as_slice() {
            let Some((number, _)) = numbering.number(*partition) else {
                continue;
            };
            let is_full = kept.len() > share || (kept.len() == share && larger_shares == 0);
            if is_full {
                break;
            }
            let Some(taken) = is_taken.get_mut(number).filter(|taken| !**taken) else {
                continue;
            };
            *taken = true;
            if kept.len() == share {
                larger_shares -= 1;
            }
            kept.push(*partition);
        }
        shares.push(kept);
    }
    let mut free = all(&task.topics)
        .zip(&is_taken)
        .filter(|(_, taken)| !**taken)
        .map(|(partition, _)| partition)
        .peekable();
    // Round-robin, so that the partitions of one topic spread over the members.
    while free.peek().is_some() {
        let before = shares.iter().map(Vec::len).sum::<usize>();
        for kept in &mut shares {
            if kept.len() < share {
                kept.extend(free.next());
            }
        }
        if shares.iter().map(Vec::len).sum::<usize>() == before {
            break;
        }
    }
    for kept in shares.iter_mut().filter(|kept| kept.len() <= share) {
        kept.extend(free.next());
    }
    shares.into_iter().map(Partitions::from_iter).collect()
}
