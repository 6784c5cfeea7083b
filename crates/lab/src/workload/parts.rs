//! Which messages came to a part of an audience to which each of them comes once.
//!
//! It misses what comes to the others. What it knows of a while ago it tells who sees all parts
//! ([`super::streams`]), and forgets:
//!
//! ```text
//! 0 ── came ── gap ── told, and forgotten ── told ── came ── base ── a bit each ── end
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::ledger::Entry;
use super::streams::Piece;

/// A stream does not run further ahead of what was told than this: what does is not of this load.
const AHEAD_MAX: u64 = 1 << 27;
/// So many words a part of an audience remembers of a stream: a million messages. What comes later than that
/// is not known to come again before it is put together.
const WORDS_KEPT: usize = 1 << 14;

/// What came of each stream.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<u32, Window>);

#[derive(Debug)]
struct Window {
    /// Every message before this one is known to have come, or was told; a multiple of 64.
    base: u64,
    /// Bits from `base` on.
    words: VecDeque<u64>,
    /// Everything before this one was told.
    told: u64,
    /// The first that was told and did not come.
    gap: u64,
    /// What came between the two since it was asked last: bits, by the first message of their word.
    late: BTreeMap<u64, u64>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            base: 0,
            words: VecDeque::new(),
            told: 0,
            gap: u64::MAX,
            late: BTreeMap::new(),
        }
    }
}

impl Parts {
    pub fn expect(&mut self, stream: u32) {
        self.0.entry(stream).or_default();
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let Some(window) = self.0.get_mut(&stream) else {
            return Entry::Foreign;
        };
        let (at, bit) = (sequence / 64 * 64, 1 << (sequence % 64));
        if sequence >= window.gap && sequence < window.told {
            let word = window.late.entry(at).or_default();
            let is_known = *word & bit != 0;
            *word |= bit;
            return if is_known { Entry::Again } else { Entry::New };
        }
        match window.set(at, bit) {
            None => Entry::Foreign,
            Some(0) => {
                window.pass();
                Entry::New
            }
            Some(_) => Entry::Again,
        }
    }

    /// Of a part of an audience: what is to be told of a while ago.
    pub fn take_old(&mut self) -> Vec<Piece> {
        self.take(WORDS_KEPT)
    }

    /// Of a part of an audience: all that was not told yet.
    pub fn take_all(&mut self) -> Vec<Piece> {
        self.take(0)
    }

    fn take(&mut self, kept: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (stream, window) in &mut self.0 {
            window.take(*stream, kept, &mut pieces);
        }
        pieces
    }
}

impl Window {
    /// What came without a gap takes no memory.
    fn pass(&mut self) {
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += 64;
        }
    }

    /// Messages of a word came; how many of them had come before. `None` if that is far beyond what was sent.
    fn set(&mut self, at: u64, word: u64) -> Option<u64> {
        let Some(ahead) = at.checked_sub(self.base) else {
            return Some(word.count_ones().into());
        };
        if ahead >= AHEAD_MAX {
            return None;
        }
        let place = usize::try_from(ahead / 64).ok()?;
        if place >= self.words.len() {
            self.words.resize(place + 1, 0);
        }
        let known = self.words.get_mut(place)?;
        let both = *known & word;
        *known |= word;
        Some(both.count_ones().into())
    }

    /// Tells all but the last `kept` words, once there are more than that.
    fn take(&mut self, stream: u32, kept: usize, pieces: &mut Vec<Piece>) {
        for (first, word) in std::mem::take(&mut self.late) {
            pieces.push(Piece {
                stream,
                first,
                full: 0,
                words: vec![word],
            });
        }
        if self.words.len() <= kept && (kept > 0 || self.told == self.base && self.words.is_empty()) {
            return;
        }
        // Half of them, so that this is not for every word.
        let old = self.words.len() - kept / 2;
        let words: Vec<u64> = self.words.drain(..old).collect();
        let piece = Piece {
            stream,
            first: self.told,
            full: (self.base - self.told) / 64,
            words,
        };
        if self.gap == u64::MAX && piece.words.iter().any(|word| *word != u64::MAX) {
            self.gap = self.base;
        }
        self.base += 64 * old as u64;
        self.told = self.base;
        self.pass();
        pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::super::streams::Streams;
    use super::*;

    /// How far the bits of a stream reach.
    fn words(parts: &Parts) -> usize {
        parts.0[&1].words.len()
    }

    /// Messages that come to some hosts, in about their order, and some of them twice.
    fn arrivals(random: &mut SmallRng, sent: u64) -> Vec<u64> {
        let mut arrivals: Vec<u64> = (0..sent).collect();
        arrivals.extend((0..sent).filter(|_| random.random_ratio(1, 10)));
        arrivals.retain(|_| !random.random_ratio(1, 20));
        arrivals.sort_by_cached_key(|sequence| sequence + random.random_range(0..500));
        arrivals
    }

    #[test]
    fn what_came_to_the_parts_of_an_audience_makes_what_came_whenever_they_tell_it() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let sent = random.random_range(1..5000_u64);
            let hosts = random.random_range(1..4_usize);
            let mut parts: Vec<Parts> = (0..hosts).map(|_| Parts::default()).collect();
            for part in &mut parts {
                part.expect(1);
            }
            let mut whole = Streams::default();
            whole.expect(1);
            let (mut came, mut again, mut all) = (BTreeSet::new(), 0, 0);
            for sequence in arrivals(&mut random, sent) {
                let host = random.random_range(0..hosts);
                again += u64::from(parts[host].enter(1, sequence) == Entry::Again);
                all += 1;
                came.insert(sequence);
                if random.random_ratio(1, 50) {
                    let told = parts[host].take(4);
                    again += told.iter().map(|piece| whole.absorb(piece)).sum::<u64>();
                    assert!(words(&parts[host]) <= 4, "what was told is forgotten");
                }
            }
            for part in &mut parts {
                again += part
                    .take_all()
                    .iter()
                    .map(|piece| whole.absorb(piece))
                    .sum::<u64>();
                assert!(part.take_all().is_empty(), "all is told once");
            }
            assert_eq!(again, all - came.len() as u64, "seed {seed}");
            assert_eq!(
                whole.missing(1, sent, |_| 0),
                sent - came.len() as u64,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_stream_in_order_on_one_host_is_told_in_a_few_words() {
        let (mut part, mut whole) = (Parts::default(), Streams::default());
        part.expect(1);
        whole.expect(1);
        for sequence in 0..100_010 {
            part.enter(1, sequence);
            assert!(sequence % 1000 != 0 || part.take_old().is_empty());
        }
        let told = part.take_all();
        assert_eq!(
            (told.len(), told[0].full, told[0].words.len()),
            (1, 100_010 / 64, 1)
        );
        assert_eq!(whole.absorb(&told[0]), 0);
        assert_eq!(whole.missing(1, 100_020, |_| 0), 10);
        assert_eq!(part.enter(1, 5), Entry::Again);
    }

    #[test]
    fn what_is_not_of_this_load_takes_nothing() {
        let mut part = Parts::default();
        part.expect(1);
        assert_eq!(part.enter(2, 0), Entry::Foreign);
        assert_eq!(part.enter(1, u64::MAX), Entry::Foreign);
        assert_eq!(words(&part), 0);
    }
}
