//! Which messages came: what is missing, what came twice.
//!
//! For each stream, one bit per message between the first that is missing and the last that came; below that everything
//! came. So a stream that arrives in order takes no memory to speak of.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::arrivals::{Arrivals, Arrived};
use super::tally::Tally;

/// A stream does not run further ahead of its first missing message than this: what does is not of this load.
const AHEAD_MAX: u64 = 1 << 31;

/// What one audience received.
#[derive(Debug)]
pub enum Ledger {
    /// Every message comes to it once.
    Once(Streams),
    /// Every message comes so many times.
    Several(Tally),
    /// Of such an audience those on this host.
    Part(Arrivals),
}

/// What came of each stream.
#[derive(Debug, Default)]
pub struct Streams(BTreeMap<u32, Window>);

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

impl Default for Ledger {
    fn default() -> Self {
        Self::Once(Streams::default())
    }
}

impl Ledger {
    /// Of an audience to which every message comes `each` times; `is_part`: others of it are on other hosts.
    pub fn of_several(each: u16, is_part: bool) -> Self {
        match (each, is_part) {
            (1, _) => Self::default(),
            (_, true) => Self::Part(Arrivals::default()),
            (_, false) => Self::Several(Tally::new(each)),
        }
    }

    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        match self {
            Self::Once(streams) => streams.expect(stream),
            Self::Several(tally) => tally.expect(stream),
            Self::Part(arrivals) => arrivals.expect(stream),
        }
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        match self {
            Self::Once(streams) => streams.enter(stream, sequence),
            Self::Several(tally) => tally.enter(stream, sequence),
            Self::Part(arrivals) => arrivals.enter(stream, sequence),
        }
    }

    /// What came, for the ledger of another host to take over; a part of an audience tells it bit by bit instead.
    pub fn image(&self) -> Vec<StreamImage> {
        match self {
            Self::Once(streams) => streams.image(),
            Self::Several(_) | Self::Part(_) => Vec::new(),
        }
    }

    /// Of a part of an audience: what came since this was asked last.
    pub fn take_arrived(&mut self) -> Vec<Arrived> {
        match self {
            Self::Part(arrivals) => arrivals.take(),
            Self::Once(_) | Self::Several(_) => Vec::new(),
        }
    }

    /// How many of the first `sent` messages of a stream did not come, but for those of which `excused` says how many there
    /// are in a range.
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        match self {
            Self::Once(streams) => streams.missing(stream, sent, excused),
            Self::Several(tally) => tally.missing(stream, sent, excused),
            Self::Part(_) => 0,
        }
    }
}

impl Streams {
    pub fn expect(&mut self, stream: u32) {
        self.0.entry(stream).or_default();
    }

    fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let Some(window) = self.0.get_mut(&stream) else {
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
        window.pass();
        Entry::New
    }

    fn image(&self) -> Vec<StreamImage> {
        let image = |(stream, window): (&u32, &Window)| StreamImage {
            stream: *stream,
            base: window.base,
            words: window.words.iter().copied().collect(),
        };
        let some = self
            .0
            .iter()
            .filter(|(_, window)| window.base > 0 || !window.words.is_empty());
        some.map(image).collect()
    }

    /// Takes over what came elsewhere to the same audience; how many messages came to both. Streams that are not expected
    /// here are passed over.
    pub fn absorb(&mut self, images: &[StreamImage]) -> u64 {
        let mut both = 0_u64;
        for image in images {
            if let Some(window) = self.0.get_mut(&image.stream) {
                both = both.saturating_add(window.absorb(image));
            }
        }
        both
    }

    /// As [`Ledger::missing`].
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        let Some(window) = self.0.get(&stream) else {
            return 0;
        };
        let mut missing = 0;
        for (word, at) in window.words.iter().zip((window.base..sent).step_by(64)) {
            if *word == u64::MAX {
                continue;
            }
            let open = (0..64).filter(|bit| word & (1 << bit) == 0);
            let due = open.map(|bit| at + bit).filter(|sequence| *sequence < sent);
            missing += due
                .map(|sequence| 1_u64.saturating_sub(excused(sequence..sequence + 1)))
                .sum::<u64>();
        }
        let rest = window.end().min(sent)..sent;
        missing + (rest.end - rest.start).saturating_sub(excused(rest))
    }
}

impl Window {
    /// Nothing is known to have come from here on.
    fn end(&self) -> u64 {
        self.base.saturating_add(64 * self.words.len() as u64)
    }

    /// What came without a gap takes no memory.
    fn pass(&mut self) {
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += 64;
        }
    }

    /// Takes as long as both have words, whatever an image says of itself.
    fn absorb(&mut self, image: &StreamImage) -> u64 {
        let (mut low, mut high) = (
            std::mem::take(self),
            Self {
                // What is not a multiple of 64 was not written by a ledger.
                base: image.base / 64 * 64,
                words: image.words.iter().copied().collect(),
            },
        );
        if low.base > high.base {
            std::mem::swap(&mut low, &mut high);
        }
        let ones = |word: u64| u64::from(word.count_ones());
        // Below the higher base everything came to the one, and to the other what its words say.
        let ahead = usize::try_from((high.base - low.base) / 64).unwrap_or(usize::MAX);
        let passed = low.words.len().min(ahead);
        let mut both = low.base + low.words.drain(..passed).map(ones).sum::<u64>();
        if high.words.len() < low.words.len() {
            high.words.resize(low.words.len(), 0);
        }
        for (word, other) in high.words.iter_mut().zip(low.words) {
            both += ones(*word & other);
            *word |= other;
        }
        high.pass();
        *self = high;
        both
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::seq::SliceRandom as _;
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    fn words(ledger: &Ledger) -> &VecDeque<u64> {
        let Ledger::Once(streams) = ledger else {
            panic!("{ledger:?}");
        };
        &streams.0[&1].words
    }

    fn absorb(ledger: &mut Ledger, images: &[StreamImage]) -> u64 {
        match ledger {
            Ledger::Once(streams) => streams.absorb(images),
            Ledger::Several(_) | Ledger::Part(_) => panic!("{ledger:?}"),
        }
    }

    #[test]
    fn order_takes_no_memory_and_repetition_is_seen() {
        let mut ledger = Ledger::default();
        ledger.expect(1);
        for sequence in 0..10_000 {
            assert_eq!(ledger.enter(1, sequence), Entry::New);
        }
        assert!(words(&ledger).len() <= 1);
        assert_eq!(ledger.enter(1, 0), Entry::Again);
        assert_eq!(ledger.enter(1, 9_999), Entry::Again);
        assert_eq!(ledger.missing(1, 10_000, |_| 0), 0);
        assert_eq!(
            ledger.missing(1, 10_005, |range| u64::from(range.contains(&10_001))),
            4
        );
    }

    #[test]
    fn what_is_not_of_this_load_takes_nothing() {
        let mut ledger = Ledger::default();
        ledger.expect(1);
        assert_eq!(ledger.enter(2, 0), Entry::Foreign);
        assert_eq!(ledger.enter(1, u64::MAX), Entry::Foreign);
        assert!(words(&ledger).is_empty());
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
            assert_eq!(ledger.missing(1, sent, |_| 0), u64::try_from(missing).unwrap());
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
            let both = absorb(&mut one, &other.image());
            let union: BTreeSet<u64> = came[0].union(&came[1]).copied().collect();
            assert_eq!(both, came[0].intersection(&came[1]).count() as u64);
            assert_eq!(one.missing(1, sent, |_| 0), sent - union.len() as u64);
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
        assert_eq!(absorb(&mut ledger, std::slice::from_ref(&foreign)), 0);
        ledger.expect(9);
        assert_eq!(absorb(&mut ledger, &[foreign]), 0);
        assert_eq!(ledger.missing(9, 70, |_| 0), 6);
    }

    #[test]
    fn an_image_takes_no_longer_than_it_is_long() {
        let mut ledger = Ledger::default();
        ledger.expect(1);
        for sequence in 0..100 {
            ledger.enter(1, sequence);
        }
        let far = StreamImage {
            stream: 1,
            base: 1 << 60,
            words: vec![1],
        };
        assert_eq!(absorb(&mut ledger, std::slice::from_ref(&far)), 100);
        assert_eq!(ledger.missing(1, (1 << 60) + 64, |_| 0), 63);
        assert_eq!(absorb(&mut ledger, &[far]), (1 << 60) + 1);
    }
}
