//! Which messages came: what is missing, what came twice.
//!
//! For each stream, one bit per message between the first that is missing and the last that came; below that everything
//! came. So a stream that arrives in order takes no memory to speak of.

use std::collections::{BTreeMap, VecDeque};

/// A stream does not run further ahead of its first missing message than this: what does is not of this load.
const AHEAD_MAX: u64 = 1 << 31;

/// What one audience received.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<u32, Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// Every message before this one came; a multiple of 64.
    base: u64,
    /// Bits from `base` on.
    words: VecDeque<u64>,
}

/// How a message stands in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    New,
    Again,
    /// From a stream that nobody sends, or far beyond what was sent.
    Foreign,
}

impl Ledger {
    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        self.streams.entry(stream).or_default();
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let Some(window) = self.streams.get_mut(&stream) else {
            return Entry::Foreign;
        };
        let Some(ahead) = sequence.checked_sub(window.base) else {
            return Entry::Again;
        };
        if ahead >= AHEAD_MAX {
            return Entry::Foreign;
        }
        let place = usize::try_from(ahead / 64).unwrap_or(usize::MAX);
        if place >= window.words.len() {
            window.words.resize(place + 1, 0);
        }
        let Some(word) = window.words.get_mut(place) else {
            return Entry::Foreign;
        };
        let bit = 1 << (ahead % 64);
        if *word & bit != 0 {
            return Entry::Again;
        }
        *word |= bit;
        while window.words.front() == Some(&u64::MAX) {
            window.words.pop_front();
            window.base += 64;
        }
        Entry::New
    }

    /// How many of the first `sent` messages of a stream did not come, but for those of which `is_excused` is told.
    pub fn missing(&self, stream: u32, sent: u64, mut is_excused: impl FnMut(u64) -> bool) -> u64 {
        let Some(window) = self.streams.get(&stream) else {
            return 0;
        };
        let mut missing = 0;
        let mut at = window.base;
        for word in &window.words {
            if *word != u64::MAX {
                for bit in 0..64 {
                    let sequence = at + bit;
                    missing += u64::from(word & (1 << bit) == 0 && sequence < sent && !is_excused(sequence));
                }
            }
            at += 64;
        }
        while at < sent {
            missing += u64::from(!is_excused(at));
            at += 1;
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::seq::SliceRandom as _;
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    #[test]
    fn order_takes_no_memory_and_repetition_is_seen() {
        let mut ledger = Ledger::default();
        ledger.expect(1);
        for sequence in 0..10_000 {
            assert_eq!(ledger.enter(1, sequence), Entry::New);
        }
        assert!(ledger.streams[&1].words.len() <= 1);
        assert_eq!(ledger.enter(1, 0), Entry::Again);
        assert_eq!(ledger.enter(1, 9_999), Entry::Again);
        assert_eq!(ledger.missing(1, 10_000, |_| false), 0);
        assert_eq!(ledger.missing(1, 10_005, |sequence| sequence == 10_001), 4);
    }

    #[test]
    fn what_is_not_of_this_load_takes_nothing() {
        let mut ledger = Ledger::default();
        ledger.expect(1);
        assert_eq!(ledger.enter(2, 0), Entry::Foreign);
        assert_eq!(ledger.enter(1, u64::MAX), Entry::Foreign);
        assert!(ledger.streams[&1].words.is_empty());
    }

    #[test]
    fn a_ledger_agrees_with_a_set() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let sent = random.random_range(1..2000_u64);
            let mut messages: Vec<u64> = (0..sent).chain((0..sent).filter(|n| n % 7 == 0)).collect();
            messages.shuffle(&mut random);
            messages.truncate(random.random_range(0..messages.len()));
            let mut ledger = Ledger::default();
            ledger.expect(1);
            let mut set = BTreeSet::new();
            for sequence in messages {
                let expected = if set.insert(sequence) {
                    Entry::New
                } else {
                    Entry::Again
                };
                assert_eq!(ledger.enter(1, sequence), expected);
            }
            let missing = (0..sent).filter(|sequence| !set.contains(sequence)).count();
            assert_eq!(
                ledger.missing(1, sent, |_| false),
                u64::try_from(missing).unwrap()
            );
        }
    }
}
