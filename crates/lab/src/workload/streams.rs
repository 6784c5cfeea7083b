//! Which messages came to an audience to which each of them comes once: what is missing, what came twice.
//! What is kept of each stream is in [`super::blocks`].

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::ledger::{Entry, ROOM_BYTES};
use super::message::Received;

/// No stream has so many messages: what says so is not of this load.
pub(super) const SEQUENCE_MAX: u64 = 1 << 53;

/// What came of each stream.
#[derive(Debug)]
pub struct Streams {
    came: BTreeMap<u32, Blocks>,
    /// Bytes that it may take, and each stream of them.
    room: usize,
    room_of_each: usize,
}

/// What came of a stream on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub stream: u32,
    /// A multiple of 64.
    pub first: u64,
    /// All of so many times 64 messages from there on came.
    pub full: u64,
    /// Bits of those behind them.
    pub words: Vec<u64>,
}

impl Piece {
    /// Whether it can be of a load.
    pub fn is_plausible(&self) -> bool {
        let words = self.full.checked_add(self.words.len() as u64);
        words.is_some_and(|words| words <= SEQUENCE_MAX / 64) && self.first <= SEQUENCE_MAX
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self::of_audiences(1)
    }
}

impl Streams {
    /// What one of so many audiences of a role got.
    pub fn of_audiences(audiences: u32) -> Self {
        Self {
            came: BTreeMap::new(),
            room: ROOM_BYTES / usize::try_from(audiences.max(1)).unwrap_or(usize::MAX),
            room_of_each: 0,
        }
    }

    pub fn expect(&mut self, stream: u32) {
        self.came.entry(stream).or_default();
        self.room_of_each = self.room / self.came.len().max(1);
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let room = self.room_of_each;
        let known = self.came.get_mut(&stream).filter(|_| sequence < SEQUENCE_MAX);
        let Some(blocks) = known else {
            return Entry::Foreign;
        };
        match blocks.mark(sequence / 64 * 64, 1 << (sequence % 64), room) {
            0 => Entry::New,
            _ => Entry::Again,
        }
    }

    /// Enters messages, and tells how each stands. Those of a word that come together are looked at once.
    pub fn enter_all(&mut self, received: &[Received], mut tell: impl FnMut(&Received, Entry)) {
        let mut left = received;
        while let Some(first) = left.first() {
            let word = first.sequence / 64;
            let (mut bits, mut count) = (0, 0);
            for message in left {
                let bit = 1 << (message.sequence % 64);
                let is_of_it =
                    message.stream == first.stream && message.sequence / 64 == word && bits & bit == 0;
                if !is_of_it {
                    break;
                }
                bits |= bit;
                count += 1;
            }
            let (together, rest) = left.split_at(count);
            let known = self
                .came
                .get_mut(&first.stream)
                .filter(|_| first.sequence < SEQUENCE_MAX);
            let known = known.map(|blocks| blocks.mark(word * 64, bits, self.room_of_each));
            for message in together {
                let entry = match known {
                    None => Entry::Foreign,
                    Some(known) if known & (1 << (message.sequence % 64)) == 0 => Entry::New,
                    Some(_) => Entry::Again,
                };
                tell(message, entry);
            }
            left = rest;
        }
    }

    /// Takes over what came elsewhere to the same audience; how many messages came before. Streams that are
    /// not expected here are passed over.
    pub fn absorb(&mut self, piece: &Piece) -> u64 {
        let room = self.room_of_each;
        let known = self.came.get_mut(&piece.stream);
        let Some(blocks) = known.filter(|_| piece.is_plausible()) else {
            return 0;
        };
        // What is not a multiple of 64 was not written by a ledger.
        let first = piece.first / 64 * 64;
        let behind = first + piece.full * 64;
        let mut both = blocks.fill(first..behind, room);
        for (word, at) in piece.words.iter().zip((behind..).step_by(64)) {
            both += u64::from(blocks.mark(at, *word, room).count_ones());
        }
        both
    }

    /// As [`super::Ledger::missing`].
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        let blocks = self.came.get(&stream);
        blocks.map_or(0, |blocks| blocks.missing(sent, 1, excused))
    }

    /// As [`super::Ledger::forgotten`].
    pub fn forgotten(&self) -> u64 {
        self.came.values().map(Blocks::forgotten).sum()
    }

    /// The memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.came.values().map(Blocks::bytes).sum()
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
        let mut ledger = Streams::default();
        ledger.expect(1);
        for sequence in 0..10_000 {
            assert_eq!(ledger.enter(1, sequence), Entry::New);
        }
        assert!(ledger.bytes() < 1000, "{}", ledger.bytes());
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
        let mut ledger = Streams::default();
        ledger.expect(1);
        assert_eq!(ledger.enter(2, 0), Entry::Foreign);
        assert_eq!(ledger.enter(1, u64::MAX), Entry::Foreign);
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn what_comes_long_after_a_message_that_never_came_counts_as_what_it_is() {
        // A message of a point of some twenty minutes at two million a second is further than this behind the
        // first.
        let mut ledger = Streams::default();
        ledger.expect(1);
        let far = 1 << 32;
        let piece = Piece {
            stream: 1,
            first: 64,
            full: 1 << 25,
            words: Vec::new(),
        };
        assert_eq!(ledger.absorb(&piece), 0);
        assert_eq!(
            ledger.absorb(&Piece {
                first: 1 << 31,
                ..piece
            }),
            64
        );
        assert_eq!(ledger.enter(1, far), Entry::New);
        assert_eq!(ledger.enter(1, far), Entry::Again);
        assert_eq!(ledger.missing(1, far + 1, |_| 0), 64);
        assert!(ledger.bytes() < 4000, "{}", ledger.bytes());
    }

    #[test]
    fn a_ledger_agrees_with_a_set() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let sent = random.random_range(1..2000_u64);
            let mut arrivals: Vec<u64> = (0..sent).chain((0..sent).filter(|n| n % 7 == 0)).collect();
            arrivals.shuffle(&mut random);
            arrivals.truncate(random.random_range(0..arrivals.len()));
            let mut ledger = Streams::default();
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
    fn messages_that_come_together_are_entered_as_they_are_one_by_one() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut next = [0_u64; 3];
            let mut received = Vec::new();
            for _ in 0..200 {
                let stream: u32 = random.random_range(0..3);
                for _ in 0..random.random_range(1..150) {
                    let next = &mut next[stream as usize];
                    *next = (*next + random.random_range(0..3))
                        .saturating_sub(u64::from(random.random_ratio(1, 20)) * 70);
                    received.push(Received {
                        stream,
                        sequence: *next,
                        ..Received::default()
                    });
                }
            }
            let (mut one_by_one, mut together) = (Streams::default(), Streams::default());
            for ledger in [&mut one_by_one, &mut together] {
                ledger.expect(0);
                ledger.expect(1);
            }
            let enter = |message: &Received| one_by_one.enter(message.stream, message.sequence);
            let expected: Vec<Entry> = received.iter().map(enter).collect();
            let (mut found, mut told) = (Vec::new(), Vec::new());
            for some in received.chunks(97) {
                together.enter_all(some, |message, entry| {
                    told.push(*message);
                    found.push(entry);
                });
            }
            assert_eq!((told, found), (received, expected), "seed {seed}");
        }
    }

    #[test]
    fn a_piece_of_another_load_takes_nothing() {
        let piece = |stream, first, full| Piece {
            stream,
            first,
            full,
            words: vec![u64::MAX],
        };
        let mut ledger = Streams::default();
        assert_eq!(ledger.absorb(&piece(9, 0, 0)), 0);
        ledger.expect(9);
        ledger.enter(9, 70);
        assert_eq!(ledger.absorb(&piece(9, 1 << 40, 5)), 0);
        assert_eq!(ledger.absorb(&piece(9, u64::MAX, 0)), 0);
        assert_eq!(ledger.missing(9, 71, |_| 0), 70);
        assert!(piece(9, 0, 1 << 20).is_plausible());
        for nonsense in [piece(9, u64::MAX, 0), piece(9, 0, 1 << 50), piece(9, 0, u64::MAX)] {
            assert!(!nonsense.is_plausible());
        }
    }
}
