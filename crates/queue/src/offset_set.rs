//! A compressed set of offsets: at worst one bit per offset between its first and its last.
//!
//! Offsets are kept in chunks of 4,096. A chunk is full, or a few runs, or, once runs would be larger, a
//! bitmap.

use std::collections::BTreeMap;
use std::ops::Range;

const CHUNK: u64 = 4096;
/// The same, as the end of a range within a chunk.
const CHUNK_END: u16 = 4096;
const WORDS: usize = 64;
/// Most runs of a chunk; beyond, a bitmap of 512 bytes is smaller.
const RUNS_MAX: usize = 128;

/// A set of offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetSet {
    chunks: BTreeMap<u64, Chunk>,
    len: u64,
}

#[derive(Debug, Clone)]
struct Chunk {
    len: u16,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Full,
    /// Runs `first..behind` within the chunk, in order, with gaps between them.
    Runs(Vec<(u16, u16)>),
    Bits(Box<[u64; WORDS]>),
}

impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.runs_from(0).eq(other.runs_from(0))
    }
}

impl Eq for Chunk {}

impl Chunk {
    fn empty() -> Self {
        Self {
            len: 0,
            form: Form::Runs(Vec::new()),
        }
    }

    /// Returns the first run that ends behind `at`; it may begin before it.
    fn run_from(&self, at: u16) -> Option<(u16, u16)> {
        match &self.form {
            Form::Full => (at < CHUNK_END).then_some((0, CHUNK_END)),
            Form::Runs(runs) => runs
                .get(runs.partition_point(|(_, behind)| *behind <= at))
                .copied(),
            Form::Bits(bits) => {
                let first = first_bit(bits, at, 0)?;
                Some((first, first_bit(bits, first, u64::MAX).unwrap_or(CHUNK_END)))
            }
        }
    }

    /// Iterates over the runs from `at` on; the first may begin before it if the chunk holds runs.
    fn runs_from(&self, at: u16) -> impl Iterator<Item = (u16, u16)> {
        std::iter::successors(self.run_from(at), |(_, behind)| self.run_from(*behind))
    }

    fn contains(&self, at: u16) -> bool {
        match &self.form {
            Form::Full => true,
            Form::Runs(_) => self.run_from(at).is_some_and(|(first, _)| first <= at),
            Form::Bits(bits) => bits
                .get(usize::from(at / 64))
                .is_some_and(|word| word >> (at % 64) & 1 == 1),
        }
    }

    /// Adds a run; returns the number of new offsets.
    fn insert(&mut self, first: u16, behind: u16) -> u16 {
        let added = match &mut self.form {
            Form::Full => return 0,
            Form::Runs(runs) => insert_run(runs, first, behind),
            Form::Bits(bits) => set_bits(bits, first, behind),
        };
        self.len += added;
        if self.len == CHUNK_END {
            self.form = Form::Full;
        } else if let Form::Runs(runs) = &self.form
            && runs.len() > RUNS_MAX
        {
            let mut bits = Box::new([0_u64; WORDS]);
            for (first, behind) in runs {
                set_bits(&mut bits, *first, *behind);
            }
            self.form = Form::Bits(bits);
        }
        added
    }

    /// Removes the offsets below `at`.
    fn remove_below(&mut self, at: u16) {
        match &mut self.form {
            Form::Full => {
                self.form = Form::Runs(vec![(at, CHUNK_END)]);
                self.len = CHUNK_END - at;
            }
            Form::Runs(runs) => {
                runs.drain(..runs.partition_point(|(_, behind)| *behind <= at));
                if let Some((first, _)) = runs.first_mut() {
                    *first = at.max(*first);
                }
                self.len = runs.iter().map(|(first, behind)| behind - first).sum();
            }
            Form::Bits(bits) => {
                for (word, mask) in words_of(bits, 0, at) {
                    self.len -= count_ones(*word & mask);
                    *word &= !mask;
                }
            }
        }
    }
}

/// Returns the first set bit at or behind `at`, after an XOR with `flip`.
fn first_bit(bits: &[u64; WORDS], at: u16, flip: u64) -> Option<u16> {
    let mut mask = u64::MAX << (at % 64);
    for (number, word) in (at / 64..).zip(bits.get(usize::from(at / 64)..)?) {
        let word = (word ^ flip) & mask;
        if word != 0 {
            return Some(number * 64 + u16::try_from(word.trailing_zeros()).unwrap_or(0));
        }
        mask = u64::MAX;
    }
    None
}

/// Iterates over the words that a run touches, each with a mask of the run's bits.
fn words_of(bits: &mut [u64; WORDS], first: u16, behind: u16) -> impl Iterator<Item = (&mut u64, u64)> {
    let touched = usize::from(first / 64)..usize::from(behind).div_ceil(64);
    let words = bits.get_mut(touched).unwrap_or_default();
    (first / 64 * 64..)
        .step_by(64)
        .zip(words)
        .map(move |(base, word)| {
            let from = u64::MAX << first.saturating_sub(base).min(63);
            let below = (behind - base).min(64);
            (word, from & (u64::MAX >> (64 - below)))
        })
}

/// Sets the bits of a run; returns how many were not set before.
fn set_bits(bits: &mut [u64; WORDS], first: u16, behind: u16) -> u16 {
    words_of(bits, first, behind)
        .map(|(word, mask)| {
            let added = count_ones(mask & !*word);
            *word |= mask;
            added
        })
        .sum()
}

fn count_ones(word: u64) -> u16 {
    u16::try_from(word.count_ones()).unwrap_or(0)
}

/// Adds a run to runs; returns the number of new offsets.
fn insert_run(runs: &mut Vec<(u16, u16)>, first: u16, behind: u16) -> u16 {
    // Common case: the run continues the last one.
    if let Some((_, end)) = runs.last_mut()
        && *end == first
    {
        *end = behind;
        return behind - first;
    }
    let from = runs.partition_point(|(_, end)| *end < first);
    let to = runs.partition_point(|(start, _)| *start <= behind);
    let touched = runs.get(from..to).unwrap_or_default();
    let start = touched.first().map_or(first, |(start, _)| first.min(*start));
    let end = touched.last().map_or(behind, |(_, end)| behind.max(*end));
    let had: u16 = touched.iter().map(|(start, end)| end - start).sum();
    runs.splice(from..to, [(start, end)]);
    end - start - had
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

    /// Adds a range; returns the number of new offsets.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        let mut added = 0;
        let mut at = range.start;
        while at < range.end {
            let number = at / CHUNK;
            let behind = (number + 1).saturating_mul(CHUNK).min(range.end);
            let chunk = self.chunks.entry(number).or_insert_with(Chunk::empty);
            added += u64::from(chunk.insert(within(at), within(behind - 1) + 1));
            at = behind;
        }
        self.len += added;
        added
    }

    /// Returns the first offset at or behind `from` that is not in the set.
    pub fn first_missing(&self, from: u64) -> u64 {
        let mut at = from;
        while self.len > 0
            && let Some(chunk) = self.chunks.get(&(at / CHUNK))
        {
            match chunk.run_from(within(at)) {
                Some((first, behind)) if first <= within(at) => at = at - at % CHUNK + u64::from(behind),
                _ => return at,
            }
            if !at.is_multiple_of(CHUNK) {
                return at;
            }
        }
        at
    }

    /// Returns the first offset at or behind `from` and below `to` that is in the set.
    pub fn first_present(&self, from: u64, to: u64) -> Option<u64> {
        self.runs_from(from)
            .map(|run| run.start.max(from))
            .next()
            .filter(|at| *at < to)
    }

    /// Returns how many offsets of a range are in the set.
    pub fn count(&self, range: Range<u64>) -> u64 {
        if self.len == 0 {
            return 0;
        }
        self.runs_from(range.start)
            .take_while(|run| run.start < range.end)
            .map(|run| run.end.min(range.end).saturating_sub(run.start.max(range.start)))
            .sum()
    }

    /// Removes all offsets below `offset`.
    pub fn remove_below(&mut self, offset: u64) {
        while let Some(mut entry) = self.chunks.first_entry()
            && entry.key() * CHUNK < offset
        {
            let before = entry.get().len;
            let wholly = (entry.key() + 1) * CHUNK <= offset;
            if !wholly {
                entry.get_mut().remove_below(within(offset));
            }
            let left = if wholly { 0 } else { entry.get().len };
            self.len -= u64::from(before - left);
            if left == 0 {
                entry.remove();
            }
            if !wholly {
                return;
            }
        }
    }

    /// Iterates over the runs of the set, in order; two may touch at a chunk boundary.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs_from(0)
    }

    /// Iterates over the runs that end behind `from`.
    fn runs_from(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        self.chunks
            .range(from / CHUNK..)
            .flat_map(move |(number, chunk)| {
                let base = number * CHUNK;
                // Only the first chunk can begin before `from`.
                let at = if base < from { within(from) } else { 0 };
                chunk
                    .runs_from(at)
                    .map(move |(first, behind)| base + u64::from(first)..base + u64::from(behind))
            })
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
        assert!(
            set.chunks
                .values()
                .all(|chunk| matches!(chunk.form, Form::Bits(_)))
        );
        set.insert(0..CHUNK * 4);
        assert!(set.chunks.values().all(|chunk| matches!(chunk.form, Form::Full)));
    }
}
