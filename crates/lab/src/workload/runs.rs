//! Numbers as runs of them: little memory where most of them follow each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// Numbers, as runs that do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runs {
    /// The first of each run, and where it ends.
    runs: BTreeMap<u64, u64>,
}

impl Runs {
    /// Adds the numbers of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        while let Some((first, behind)) = self.last_up_to(end) {
            if behind < start {
                break;
            }
            self.runs.remove(&first);
            (start, end) = (start.min(first), end.max(behind));
        }
        self.runs.insert(start, end);
    }

    fn last_up_to(&self, number: u64) -> Option<(u64, u64)> {
        let last = self.runs.range(..=number).next_back();
        last.map(|(first, behind)| (*first, *behind))
    }

    pub fn contains(&self, number: u64) -> bool {
        self.last_up_to(number).is_some_and(|(_, behind)| number < behind)
    }

    /// Returns how many numbers of a range are in it.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let before = self.last_up_to(range.start);
        let first = before.map_or(range.start, |(first, _)| first);
        let touched = self.runs.range(first..range.end);
        touched
            .map(|(first, behind)| {
                let (from, to) = (range.start.max(*first), range.end.min(*behind));
                to.saturating_sub(from)
            })
            .sum()
    }

    /// Returns the number of runs.
    pub fn pieces(&self) -> usize {
        self.runs.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(first, behind)| *first..*behind)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    #[test]
    fn runs_agree_with_a_set() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
            for _ in 0..100 {
                let start = random.random_range(0..500_u64);
                let range = start..start + random.random_range(0..20);
                runs.insert(range.clone());
                set.extend(range);
                let asked = random.random_range(0..300)..random.random_range(300..600);
                assert_eq!(runs.count_in(asked.clone()), set.range(asked).count() as u64);
                let number = random.random_range(0..600);
                assert_eq!(runs.contains(number), set.contains(&number));
            }
            let all: Vec<u64> = runs.iter().flatten().collect();
            assert_eq!(all, set.into_iter().collect::<Vec<_>>());
            let touching = runs.iter().zip(runs.iter().skip(1));
            assert!(touching.into_iter().all(|(one, next)| one.end < next.start));
        }
    }

    #[test]
    fn what_follows_takes_one_run() {
        let mut runs = Runs::default();
        for number in (0..1000).rev() {
            runs.insert(number..number + 1);
        }
        assert_eq!((runs.pieces(), runs.count_in(0..u64::MAX)), (1, 1000));
        assert_eq!(runs.count_in(5..5), 0);
    }
}
