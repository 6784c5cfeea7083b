//! Which messages came: what is missing, what came twice.
//!
//! For each stream, one bit per message between the first that is missing and the last that came; below that everything
//! came. So a stream that arrives in order takes no memory to speak of.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::tally::Tally;

/// A stream does not run further ahead of its first missing message than this: what does is not of this load.
const AHEAD_MAX: u64 = 1 << 31;

/// What one audience received.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<u32, Window>,
    /// Instead, where every message comes to several.
    tally: Option<Tally>,
}

#[derive(Debug, Default)]
struct Window {
    /// Every message before this one came; a multiple of 64.
    base: u64,
    /// Bits from `base` on.
    words: VecDeque<u64>,
}

/// A stream of a ledger, as another host sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamImage {
    pub stream: u32,
    /// Every message before this one came; a multiple of 64.
    pub base: u64,
    /// Bits from `base` on.
    pub words: Vec<u64>,
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
    /// Of an audience to which every message comes so many times.
    pub fn of_several(each: u16) -> Self {
        Self {
            streams: BTreeMap::new(),
            tally: (each != 1).then(|| Tally::new(each)),
        }
    }

    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        if let Some(tally) = &mut self.tally {
            return tally.expect(stream);
        }
        self.streams.entry(stream).or_default();
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        if let Some(tally) = &mut self.tally {
            return tally.enter(stream, sequence);
        }
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

    /// What came, for the ledger of another host to take over.
    pub fn image(&self) -> Vec<StreamImage> {
        let image = |(stream, window): (&u32, &Window)| StreamImage {
            stream: *stream,
            base: window.base,
            words: window.words.iter().copied().collect(),
        };
        let some = self
            .streams
            .iter()
            .filter(|(_, window)| window.base > 0 || !window.words.is_empty());
        some.map(image).collect()
    }

    /// Takes over what came elsewhere to the same audience; how many messages came to both. Streams that are not expected
    /// here are passed over.
    pub fn absorb(&mut self, images: &[StreamImage]) -> u64 {
        let mut both = 0;
        for image in images {
            if let Some(window) = self.streams.get_mut(&image.stream) {
                both += window.absorb(image);
            }
        }
        both
    }

    /// How many of the first `sent` messages of a stream did not come, but for those of which `is_excused` is told.
    pub fn missing(&self, stream: u32, sent: u64, mut is_excused: impl FnMut(u64) -> bool) -> u64 {
        if let Some(tally) = &self.tally {
            return tally.missing(stream, sent, is_excused);
        }
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

impl Window {
    /// The word of the 64 messages from `at` on.
    fn word(base: u64, words: impl Fn(usize) -> Option<u64>, at: u64) -> u64 {
        match at.checked_sub(base) {
            None => u64::MAX,
            Some(ahead) => usize::try_from(ahead / 64).ok().and_then(words).unwrap_or(0),
        }
    }

    fn absorb(&mut self, image: &StreamImage) -> u64 {
        // What is not a multiple of 64 was not written by a ledger.
        let theirs = image.base / 64 * 64;
        let (low, high) = (self.base.min(theirs), self.base.max(theirs));
        let end = |base: u64, words: usize| base + 64 * words as u64;
        let last = end(self.base, self.words.len()).max(end(theirs, image.words.len()));
        let mut both = low;
        let mut union = VecDeque::new();
        let mut at = low;
        while at < last.max(high) {
            let ours = Self::word(self.base, |place| self.words.get(place).copied(), at);
            let other = Self::word(theirs, |place| image.words.get(place).copied(), at);
            both += u64::from((ours & other).count_ones());
            if at >= high {
                union.push_back(ours | other);
            }
            at += 64;
        }
        (self.base, self.words) = (high, union);
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += 64;
        }
        both
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
            let mut arrivals: Vec<u64> = (0..sent).chain((0..sent).filter(|n| n % 7 == 0)).collect();
            arrivals.shuffle(&mut random);
            arrivals.truncate(random.random_range(0..arrivals.len()));
            let mut ledger = Ledger::default();
            ledger.expect(1);
            let mut came = BTreeSet::new();
            for sequence in arrivals {
                let expected = if came.insert(sequence) {
                    Entry::New
                } else {
                    Entry::Again
                };
                assert_eq!(ledger.enter(1, sequence), expected);
            }
            let missing = (0..sent).filter(|sequence| !came.contains(sequence)).count();
            assert_eq!(
                ledger.missing(1, sent, |_| false),
                u64::try_from(missing).unwrap()
            );
        }
    }

    #[test]
    fn ledgers_of_two_hosts_make_one() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let sent = random.random_range(1..1000_u64);
            let mut ledgers = [Ledger::default(), Ledger::default()];
            let mut came = [BTreeSet::new(), BTreeSet::new()];
            for (ledger, came) in ledgers.iter_mut().zip(&mut came) {
                ledger.expect(1);
                let all = random.random_range(0..sent);
                for sequence in 0..sent {
                    if sequence < all || random.random_range(0..3) == 0 {
                        ledger.enter(1, sequence);
                        came.insert(sequence);
                    }
                }
            }
            let [mut one, other] = ledgers;
            let both = one.absorb(&other.image());
            let union: BTreeSet<u64> = came[0].union(&came[1]).copied().collect();
            assert_eq!(both, came[0].intersection(&came[1]).count() as u64);
            assert_eq!(one.missing(1, sent, |_| false), sent - union.len() as u64);
            assert!(
                union
                    .iter()
                    .all(|sequence| one.enter(1, *sequence) == Entry::Again)
            );
        }
    }

    #[test]
    fn a_ledger_of_a_stream_that_nobody_expects_is_passed_over() {
        let mut ledger = Ledger::default();
        let foreign = StreamImage {
            stream: 9,
            base: 63,
            words: vec![u64::MAX],
        };
        assert_eq!(ledger.absorb(std::slice::from_ref(&foreign)), 0);
        ledger.expect(9);
        assert_eq!(ledger.absorb(&[foreign]), 0);
        assert_eq!(ledger.missing(9, 70, |_| false), 6);
    }
}
