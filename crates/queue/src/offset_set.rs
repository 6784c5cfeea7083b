//! A set of offsets, compressed: at worst a bit per offset between its first and its last.
//!
//! Offsets are kept in chunks of 4,096. A chunk is full, or a few runs, or, once runs would take more, a bit map.

use std::collections::BTreeMap;
use std::ops::Range;

const CHUNK: u64 = 4096;
const WORDS: usize = 64;
/// Runs beyond which a bit map of 512 bytes is smaller.
const RUNS_MAX: usize = 128;

/// A set of offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetSet {
    chunks: BTreeMap<u64, Chunk>,
    len: u64,
}

#[derive(Debug, Clone)]
enum Chunk {
    Full,
    /// Runs `first..behind` within the chunk, in order, with something between any two.
    Runs(Vec<(u16, u16)>),
    Bits(Box<[u64; WORDS]>),
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.runs() == other.runs()
    }
}

impl Eq for Chunk {}

impl Chunk {
    fn len(&self) -> u64 {
        match self {
            Self::Full => CHUNK,
            Self::Runs(runs) => runs.iter().map(|(first, behind)| u64::from(behind - first)).sum(),
            Self::Bits(bits) => bits.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }

    fn contains(&self, at: u16) -> bool {
        match self {
            Self::Full => true,
            Self::Runs(runs) => {
                let behind = runs.partition_point(|(first, _)| *first <= at);
                let run = behind.checked_sub(1).and_then(|index| runs.get(index));
                run.is_some_and(|(_, end)| at < *end)
            }
            Self::Bits(bits) => bits
                .get(usize::from(at / 64))
                .is_some_and(|word| word >> (at % 64) & 1 == 1),
        }
    }

    fn runs(&self) -> Vec<(u16, u16)> {
        let full = u16::try_from(CHUNK).unwrap_or(u16::MAX);
        match self {
            Self::Full => vec![(0, full)],
            Self::Runs(runs) => runs.clone(),
            Self::Bits(_) => {
                let mut runs: Vec<(u16, u16)> = Vec::new();
                for at in (0..full).filter(|at| self.contains(*at)) {
                    match runs.last_mut() {
                        Some((_, behind)) if *behind == at => *behind = at + 1,
                        _ => runs.push((at, at + 1)),
                    }
                }
                runs
            }
        }
    }

    fn insert(&mut self, first: u16, behind: u16) {
        match self {
            Self::Full => return,
            Self::Runs(runs) => insert_run(runs, first, behind),
            Self::Bits(bits) => {
                for at in first..behind {
                    if let Some(word) = bits.get_mut(usize::from(at / 64)) {
                        *word |= 1 << (at % 64);
                    }
                }
            }
        }
        self.settle_form();
    }

    /// Takes the form that is smallest.
    fn settle_form(&mut self) {
        if self.len() == CHUNK {
            *self = Self::Full;
        } else if let Self::Runs(runs) = self
            && runs.len() > RUNS_MAX
        {
            let mut bits = Box::new([0_u64; WORDS]);
            for (first, behind) in runs.iter() {
                for at in *first..*behind {
                    if let Some(word) = bits.get_mut(usize::from(at / 64)) {
                        *word |= 1 << (at % 64);
                    }
                }
            }
            *self = Self::Bits(bits);
        }
    }
}

fn insert_run(runs: &mut Vec<(u16, u16)>, first: u16, behind: u16) {
    // Most runs go on where the last one ends.
    if let Some((_, end)) = runs.last_mut()
        && *end == first
    {
        *end = behind;
        return;
    }
    let from = runs.partition_point(|(_, end)| *end < first);
    let to = runs.partition_point(|(start, _)| *start <= behind);
    let touched = runs.get(from..to).unwrap_or_default();
    let start = touched.first().map_or(first, |(start, _)| first.min(*start));
    let end = touched.last().map_or(behind, |(_, end)| behind.max(*end));
    runs.splice(from..to, [(start, end)]);
}

impl OffsetSet {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn contains(&self, offset: u64) -> bool {
        if self.len == 0 {
            return false;
        }
        self.chunks
            .get(&(offset / CHUNK))
            .is_some_and(|chunk| chunk.contains(within(offset)))
    }

    /// Adds offsets; how many of them were not there yet.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        let mut added = 0;
        let mut at = range.start;
        while at < range.end {
            let number = at / CHUNK;
            let behind = (number + 1).saturating_mul(CHUNK).min(range.end);
            let chunk = self
                .chunks
                .entry(number)
                .or_insert_with(|| Chunk::Runs(Vec::new()));
            let before = chunk.len();
            chunk.insert(within(at), within(behind - 1) + 1);
            added += chunk.len() - before;
            at = behind;
        }
        self.len += added;
        added
    }

    /// The first offset at or behind `from` that is not in the set.
    pub fn first_missing(&self, from: u64) -> u64 {
        let mut at = from;
        while self.len > 0
            && let Some(chunk) = self.chunks.get(&(at / CHUNK))
        {
            let chunk_end = (at / CHUNK + 1) * CHUNK;
            let end = match chunk {
                Chunk::Full => chunk_end,
                Chunk::Runs(runs) => {
                    let behind = runs.partition_point(|(first, _)| *first <= within(at));
                    let run = behind.checked_sub(1).and_then(|index| runs.get(index));
                    match run {
                        Some((_, end)) if within(at) < *end => at - at % CHUNK + u64::from(*end),
                        _ => at,
                    }
                }
                Chunk::Bits(_) => (at..chunk_end)
                    .find(|at| !chunk.contains(within(*at)))
                    .unwrap_or(chunk_end),
            };
            if end == at {
                return at;
            }
            at = end;
            if !at.is_multiple_of(CHUNK) {
                return at;
            }
        }
        at
    }

    /// The first offset at or behind `from` that is in the set, below `to`.
    pub fn first_present(&self, from: u64, to: u64) -> Option<u64> {
        self.runs_from(from)
            .map(|run| run.start.max(from))
            .next()
            .filter(|at| *at < to)
    }

    /// How many of a range are in the set.
    pub fn count(&self, range: Range<u64>) -> u64 {
        if self.len == 0 {
            return 0;
        }
        self.runs_from(range.start)
            .take_while(|run| run.start < range.end)
            .map(|run| run.end.min(range.end).saturating_sub(run.start.max(range.start)))
            .sum()
    }

    /// Forgets all below an offset.
    pub fn remove_below(&mut self, offset: u64) {
        while let Some(entry) = self.chunks.first_entry()
            && entry.key() * CHUNK < offset
        {
            let number = *entry.key();
            let chunk = entry.remove();
            self.len -= chunk.len();
            if (number + 1) * CHUNK > offset {
                let kept = chunk
                    .runs()
                    .into_iter()
                    .filter_map(|(first, behind)| {
                        let first = first.max(within(offset));
                        (first < behind).then_some((first, behind))
                    })
                    .collect::<Vec<_>>();
                if !kept.is_empty() {
                    let mut chunk = Chunk::Runs(kept);
                    chunk.settle_form();
                    self.len += chunk.len();
                    self.chunks.insert(number, chunk);
                }
                return;
            }
        }
    }

    /// The runs of the set, in order; two may touch where chunks do.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs_from(0)
    }

    /// The runs that end behind `from`.
    fn runs_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        self.chunks
            .range(from / CHUNK..)
            .flat_map(|(number, chunk)| {
                let base = number * CHUNK;
                chunk
                    .runs()
                    .into_iter()
                    .map(move |(first, behind)| base + u64::from(first)..base + u64::from(behind))
            })
            .filter(move |run| run.end > from)
    }
}

fn within(offset: u64) -> u16 {
    u16::try_from(offset % CHUNK).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_plain_set_does(
            steps in prop::collection::vec((0..12_000_u64, 1..5000_u64, 0..4_u8), 1..40),
        ) {
            let (mut set, mut naive) = (OffsetSet::default(), BTreeSet::new());
            for (first, count, what) in steps {
                match what {
                    0 => {
                        set.remove_below(first);
                        naive.retain(|at| *at >= first);
                    }
                    1 => {
                        for at in (first..first + count).step_by(3) {
                            prop_assert_eq!(set.insert(at..at + 1), u64::from(naive.insert(at)));
                        }
                    }
                    _ => {
                        let added = (first..first + count).filter(|at| naive.insert(*at)).count();
                        prop_assert_eq!(set.insert(first..first + count), added as u64);
                    }
                }
                prop_assert_eq!(set.len(), naive.len() as u64);
                let missing = (first..=20_000).find(|at| !naive.contains(at));
                prop_assert_eq!(Some(set.first_missing(first)), missing);
                let present = naive.range(first..first + count).next().copied();
                prop_assert_eq!(set.first_present(first, first + count), present);
                let within = naive.range(first..first + count).count() as u64;
                prop_assert_eq!(set.count(first..first + count), within);
                prop_assert_eq!(set.contains(first), naive.contains(&first));
            }
            let all: Vec<u64> = set.runs().flatten().collect();
            prop_assert_eq!(all, naive.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_ragged_set_takes_no_more_than_a_bit_each() {
        let mut set = OffsetSet::default();
        for at in (0..CHUNK * 4).step_by(2) {
            set.insert(at..at + 1);
        }
        assert!(set.chunks.values().all(|chunk| matches!(chunk, Chunk::Bits(_))));
        set.insert(0..CHUNK * 4);
        assert!(set.chunks.values().all(|chunk| matches!(chunk, Chunk::Full)));
    }
}
