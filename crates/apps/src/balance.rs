//! Shares of workers, and the tasks that each is to have. Pure; the same input gives the same result.
//!
//! The share of a worker is its part of all tasks by weight, rounded down. The rest is given one each
//! to the workers with the largest remainders; of equal ones, to those that hold more, then by name. Equal
//! weights make it the share by count: 13 tasks over 5 workers are 3, 3, 3, 2, 2. A worker keeps the tasks
//! that it has, up to its share, so the fewest possible tasks move.

use crate::task::TaskId;

/// A worker that can be given tasks. Workers stand in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) weight: u32,
    /// Most tasks that it takes.
    pub(crate) tasks_max: Option<u32>,
}

/// A task, its place among the workers, and its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) task: TaskId,
    /// Index of the worker that has it.
    pub(crate) holder: Option<usize>,
    /// Worker to which it is pinned; one of a worker that is not there is not in the list.
    pub(crate) pin: Option<usize>,
}

/// Returns the shares of workers: how many tasks each is to have. Their sum is the number of tasks, unless
/// the workers' own bounds leave some over.
pub(crate) fn shares(workers: &[Candidate], places: &[Place]) -> Vec<u32> {
    let count = |wanted: &dyn Fn(&Place) -> Option<usize>| {
        let mut counts = vec![0_u32; workers.len()];
        for worker in places.iter().filter_map(wanted) {
            if let Some(count) = counts.get_mut(worker) {
                *count += 1;
            }
        }
        counts
    };
    let held = count(&|place| place.holder);
    let pinned = count(&|place| place.pin);
    let mut fixed: Vec<Option<u32>> = vec![None; workers.len()];
    let tasks = u32::try_from(places.len()).unwrap_or(u32::MAX);
    // Each turn fixes one worker at least, or is the last.
    loop {
        let shares = proportional(workers, &fixed, &held, tasks);
        let mut is_settled = true;
        for bound in [Bound::Pins, Bound::Most] {
            for ((worker, share), (fixed, pinned)) in
                workers.iter().zip(&shares).zip(fixed.iter_mut().zip(&pinned))
            {
                let most = worker.tasks_max.unwrap_or(u32::MAX).max(*pinned);
                let limit = match bound {
                    Bound::Pins => (*share < *pinned).then_some(*pinned),
                    Bound::Most => (*share > most).then_some(most),
                };
                if fixed.is_none() && limit.is_some() {
                    *fixed = limit;
                    is_settled = false;
                }
            }
            // A worker with more pins than its share leaves less for the others.
            if !is_settled {
                break;
            }
        }
        if is_settled {
            return shares;
        }
    }
}

/// Reason for which a worker's share differs from its part.
#[derive(Clone, Copy)]
enum Bound {
    Pins,
    Most,
}

/// Shares by weight, with those of some workers fixed.
fn proportional(workers: &[Candidate], fixed: &[Option<u32>], held: &[u32], tasks: u32) -> Vec<u32> {
    let taken: u32 = fixed.iter().flatten().sum();
    let rest = u64::from(tasks.saturating_sub(taken));
    let free = || workers.iter().zip(fixed).filter(|(_, fixed)| fixed.is_none());
    let weights: u64 = free().map(|(worker, _)| u64::from(worker.weight)).sum();
    let part = |worker: &Candidate| {
        let product = rest * u64::from(worker.weight);
        (product / weights.max(1), product % weights.max(1))
    };
    let mut shares: Vec<u32> = workers
        .iter()
        .zip(fixed)
        .map(|(worker, fixed)| fixed.unwrap_or_else(|| u32::try_from(part(worker).0).unwrap_or(u32::MAX)))
        .collect();
    let given: u32 = shares.iter().sum();
    let mut left = if weights == 0 {
        0
    } else {
        tasks.saturating_sub(given)
    };
    let mut order: Vec<usize> = (0..workers.len())
        .filter(|at| fixed.get(*at).is_some_and(Option::is_none))
        .collect();
    let remainder = |at: usize| workers.get(at).map_or(0, |worker| part(worker).1);
    let held = |at: usize| held.get(at).copied().unwrap_or(0);
    order.sort_by_key(|at| (std::cmp::Reverse((remainder(*at), held(*at))), *at));
    for at in order {
        if let Some(share) = shares.get_mut(at).filter(|_| left > 0) {
            *share += 1;
            left -= 1;
        }
    }
    shares
}

/// Returns the worker that each task is to have. A worker keeps its tasks up to its share.
pub(crate) fn assign(workers: &[Candidate], places: &[Place]) -> Vec<Option<usize>> {
    let mut room = shares(workers, places);
    let mut assigned: Vec<Option<usize>> = vec![None; places.len()];
    let take = |room: &mut Vec<u32>, worker: Option<usize>| {
        let worker = worker?;
        let left = room.get_mut(worker).filter(|left| **left > 0)?;
        *left -= 1;
        Some(worker)
    };
    for (place, assigned) in places.iter().zip(&mut assigned) {
        *assigned = take(&mut room, place.pin);
    }
    let unpinned = |place: &Place| place.pin.is_none();
    for (place, assigned) in places
        .iter()
        .zip(&mut assigned)
        .filter(|(place, _)| unpinned(place))
    {
        *assigned = take(&mut room, place.holder);
    }
    let mut next = 0;
    let open = places.iter().zip(&mut assigned);
    for (_, assigned) in open.filter(|(place, assigned)| unpinned(place) && assigned.is_none()) {
        // In turn, so that neighbouring partitions spread over the workers.
        let worker = (0..room.len())
            .map(|step| (next + step) % room.len())
            .find(|worker| room.get(*worker).is_some_and(|left| *left > 0));
        *assigned = take(&mut room, worker);
        next = worker.map_or(next, |worker| worker + 1);
    }
    assigned
}

/// Returns the one move by load that takes a tenth or more off the worker with the highest load by weight:
/// the index of the task, and the worker to which it goes.
pub(crate) fn move_by_load(workers: &[Candidate], places: &[Place], loads: &[u64]) -> Option<(usize, usize)> {
    let mut sums = vec![0_u128; workers.len()];
    for (place, load) in places.iter().zip(loads) {
        if let Some(sum) = place.holder.and_then(|holder| sums.get_mut(holder)) {
            *sum += u128::from(*load);
        }
    }
    // Loads by weight are compared as whole numbers.
    let scaled = |worker: usize, load: u128| {
        let weight = workers.get(worker).map_or(1, |worker| worker.weight.max(1));
        load * 1_000_000 / u128::from(weight)
    };
    let level = |worker: usize| scaled(worker, sums.get(worker).copied().unwrap_or(0));
    let fullest = (0..workers.len()).max_by_key(|worker| (level(*worker), std::cmp::Reverse(*worker)))?;
    let emptiest = (0..workers.len()).min_by_key(|worker| (level(*worker), *worker))?;
    let before = level(fullest);
    let (from, to) = (sums.get(fullest).copied()?, sums.get(emptiest).copied()?);
    let movable = places.iter().zip(loads).enumerate();
    let after = movable
        .filter(|(_, (place, _))| place.holder == Some(fullest) && place.pin.is_none())
        .map(|(at, (_, load))| {
            let load = u128::from(*load);
            (scaled(fullest, from - load).max(scaled(emptiest, to + load)), at)
        })
        .min()?;
    (fullest != emptiest && after.0 * 10 <= before * 9 && before > 0).then_some((after.1, emptiest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(count: usize) -> Vec<Candidate> {
        let worker = Candidate {
            weight: 1,
            tasks_max: None,
        };
        vec![worker; count]
    }

    fn free(tasks: u32) -> Vec<Place> {
        let place = |partition| Place {
            task: TaskId::whole(partition),
            holder: None,
            pin: None,
        };
        (0..tasks).map(place).collect()
    }

    fn counts(workers: usize, assigned: &[Option<usize>]) -> Vec<u32> {
        let mut counts = vec![0; workers];
        for worker in assigned.iter().flatten() {
            counts[*worker] += 1;
        }
        counts
    }

    fn hold(places: &mut [Place], assigned: &[Option<usize>]) {
        for (place, holder) in places.iter_mut().zip(assigned) {
            place.holder = *holder;
        }
    }

    #[test]
    fn thirteen_tasks_over_five_workers() {
        assert_eq!(shares(&equal(5), &free(13)), [3, 3, 3, 2, 2]);
        assert_eq!(shares(&equal(5), &free(12)), [3, 3, 2, 2, 2]);
        assert_eq!(shares(&equal(3), &free(288)), [96, 96, 96]);
    }

    /// Least number of moves from `held` to shares that differ by one at most.
    fn moves_at_least(held: &[u32], tasks: u32) -> u32 {
        let workers = u32::try_from(held.len()).unwrap();
        let (share, mut more) = (tasks / workers, tasks % workers);
        let mut held = held.to_vec();
        held.sort_unstable_by(|one, other| other.cmp(one));
        let mut kept = 0;
        for held in held {
            let own = if more > 0 { share + 1 } else { share };
            more = more.saturating_sub(1);
            kept += held.min(own);
        }
        tasks - kept
    }

    #[test]
    fn shares_differ_by_one_at_most_and_moves_are_fewest() {
        for tasks in 0..=50 {
            for before in 1..=20 {
                let mut places = free(tasks);
                let first = assign(&equal(before), &places);
                hold(&mut places, &first);
                for after in 1..=20 {
                    // Workers behind the last leave, or new ones come.
                    let mut places = places.clone();
                    for place in &mut places {
                        place.holder = place.holder.filter(|holder| *holder < after);
                    }
                    let held: Vec<_> = places.iter().map(|place| place.holder).collect();
                    let then = assign(&equal(after), &places);
                    let counts_then = counts(after, &then);
                    let (least, most) = (
                        counts_then.iter().min().unwrap(),
                        counts_then.iter().max().unwrap(),
                    );
                    assert!(most - least <= 1, "{tasks} over {after}: {counts_then:?}");
                    assert!(then.iter().all(Option::is_some));
                    let moved = held.iter().zip(&then).filter(|(was, is)| was != is).count();
                    let fewest = moves_at_least(&counts(after, &held), tasks);
                    assert_eq!(
                        u32::try_from(moved).unwrap(),
                        fewest,
                        "{tasks}: {before} to {after}"
                    );
                }
            }
        }
    }

    #[test]
    fn weights_are_shared_by_the_largest_remainder() {
        let weighted = |weights: &[u32]| -> Vec<Candidate> {
            let worker = |weight: &u32| Candidate {
                weight: *weight,
                tasks_max: None,
            };
            weights.iter().map(worker).collect()
        };
        // 10 * 4/7, 2/7, 1/7 = 5.71, 2.86, 1.43.
        assert_eq!(shares(&weighted(&[4, 2, 1]), &free(10)), [6, 3, 1]);
        assert_eq!(shares(&weighted(&[1, 0]), &free(3)), [3, 0]);
        assert_eq!(shares(&weighted(&[0, 0]), &free(3)), [0, 0]);
        for tasks in 0..=50_u32 {
            for weights in [[1, 2, 3, 4], [7, 7, 1, 1], [100, 1, 1, 1], [5, 0, 5, 3]] {
                let given = shares(&weighted(&weights), &free(tasks));
                assert_eq!(given.iter().sum::<u32>(), tasks);
                let all: u32 = weights.iter().sum();
                for (weight, share) in weights.iter().zip(&given) {
                    let (product, share) = (tasks * weight, share * all);
                    assert!(share.abs_diff(product) < all, "{tasks} by {weights:?}: {given:?}");
                }
            }
        }
    }

    #[test]
    fn bounds_and_pins_leave_the_rest_to_others() {
        let mut workers = equal(3);
        workers[0].tasks_max = Some(2);
        assert_eq!(shares(&workers, &free(12)), [2, 5, 5]);
        workers[1].tasks_max = Some(1);
        workers[2].tasks_max = Some(1);
        assert_eq!(
            shares(&workers, &free(12)),
            [2, 1, 1],
            "some tasks have no worker"
        );
        let mut places = free(12);
        for place in &mut places[..8] {
            place.pin = Some(2);
        }
        assert_eq!(shares(&equal(3), &places), [2, 2, 8]);
        let assigned = assign(&equal(3), &places);
        assert!(assigned[..8].iter().all(|worker| *worker == Some(2)));
        assert_eq!(counts(3, &assigned), [2, 2, 8]);
    }

    #[test]
    fn a_move_by_load_takes_a_tenth_off_the_fullest() {
        let mut places = free(4);
        hold(&mut places, &[Some(0), Some(0), Some(0), Some(1)]);
        assert_eq!(move_by_load(&equal(2), &places, &[50, 30, 10, 20]), Some((1, 1)));
        assert_eq!(move_by_load(&equal(2), &places, &[50, 1, 1, 50]), None, "2 of 52");
        assert_eq!(move_by_load(&equal(2), &places, &[0, 0, 0, 0]), None);
        places[1].pin = Some(0);
        assert_eq!(move_by_load(&equal(2), &places, &[50, 30, 10, 20]), Some((0, 1)));
        let mut workers = equal(2);
        workers[0].weight = 9;
        let back = move_by_load(&workers, &places, &[50, 30, 10, 20]);
        assert_eq!(back, Some((3, 0)), "the first is nine times as strong");
    }
}
