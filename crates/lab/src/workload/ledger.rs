//! Messages that one audience received: which are missing, which came twice.
//!
//! Each message comes once, or to several receivers that are not told apart. Then it is not seen that one
//! receiver got a message twice and another one did not; the sums are exact. [`super::blocks`] keeps each
//! stream.
//!
//! An audience on several hosts has a ledger on each of them. In the end they hand over their pieces, and one
//! ledger absorbs them all.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::blocks::{Blocks, SEQUENCE_MAX};
use super::message::Received;

/// Bytes that the ledgers of a role may take: with two or three of them at their bound the lab stays below
/// 300 MB.
const ROOM_BYTES: usize = 48 << 20;

/// Messages that one audience received.
#[derive(Debug)]
pub struct Ledger {
    /// Deliveries of each message.
    each: u16,
    streams: BTreeMap<u32, Blocks>,
    /// Bytes that it may take, and each stream of them.
    room: usize,
    room_of_each: usize,
}

/// Standing of a message in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    New,
    Again,
    /// From a stream without a sender, or far beyond the last sent number.
    Foreign,
}

/// Some blocks of a stream that came to an audience on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// With fan-out the number of a client, else 0.
    pub audience: u32,
    pub stream: u32,
    pub first: u64,
    /// Blocks from there on of which everything came; 0 if `content` is that of the first.
    pub complete: u64,
    pub content: String,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

impl Ledger {
    /// Creates the ledger of one of `audiences` to which every message comes `each` times.
    pub fn new(each: u16, audiences: u32) -> Self {
        Self {
            each,
            streams: BTreeMap::new(),
            room: ROOM_BYTES / usize::try_from(audiences.max(1)).unwrap_or(usize::MAX),
            room_of_each: 0,
        }
    }

    /// Creates the ledger of those of an audience that are on this host. It misses messages that come to the
    /// others, so it has no bound: beyond one it would not know which messages came.
    pub fn of_part(each: u16) -> Self {
        Self {
            // How often a message is to come here is not known.
            each: if each == 1 { 1 } else { u16::MAX },
            room: usize::MAX,
            ..Self::default()
        }
    }

    /// Counts messages of this stream from now on.
    pub fn expect(&mut self, stream: u32) {
        self.streams.entry(stream).or_default();
        self.room_of_each = self.room / self.streams.len().max(1);
    }

    fn known(&mut self, stream: u32, sequence: u64) -> Option<&mut Blocks> {
        let known = self.streams.get_mut(&stream);
        known.filter(|_| sequence < SEQUENCE_MAX)
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let (each, room) = (self.each, self.room_of_each);
        let Some(blocks) = self.known(stream, sequence) else {
            return Entry::Foreign;
        };
        let again = match each {
            1 => blocks.mark(sequence / 64 * 64, 1 << (sequence % 64), room),
            each => blocks.add(sequence, 1, each, room),
        };
        if again == 0 { Entry::New } else { Entry::Again }
    }

    /// Enters messages, and tells how each stands. Messages of a word that come together are looked at once.
    pub fn enter_all(&mut self, received: &[Received], mut tell: impl FnMut(&Received, Entry)) {
        if self.each > 1 {
            for message in received {
                tell(message, self.enter(message.stream, message.sequence));
            }
            return;
        }
        let room = self.room_of_each;
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
            let known = self.known(first.stream, first.sequence);
            let known = known.map(|blocks| blocks.mark(word * 64, bits, room));
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

    /// Returns all that came, for a ledger of the whole audience.
    pub fn pieces(&self, audience: u32) -> impl Iterator<Item = Piece> + '_ {
        self.streams.iter().flat_map(move |(stream, blocks)| {
            let pieces = blocks.pieces(self.each);
            pieces.map(move |(first, complete, content)| Piece {
                audience,
                stream: *stream,
                first,
                complete,
                content,
            })
        })
    }

    /// Takes over a piece of another host; returns how many deliveries of it were too many. Streams that are
    /// not expected here are passed over.
    pub fn absorb(&mut self, piece: &Piece) -> u64 {
        let blocks = self.streams.get_mut(&piece.stream);
        blocks.map_or(0, |blocks| {
            let content = (piece.first, piece.complete, piece.content.as_str());
            blocks.absorb(content, self.each, self.room_of_each)
        })
    }

    /// Returns how many deliveries of the first `sent` messages of a stream are missing, without messages of
    /// which `excused` returns how many there are in a range.
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        let blocks = self.streams.get(&stream);
        blocks.map_or(0, |blocks| blocks.missing(sent, self.each, excused))
    }

    /// Returns how many deliveries are known to be missing without their messages: there were too many to
    /// remember. One of these that comes after all counts as lost, and as having come twice.
    pub fn forgotten(&self) -> u64 {
        self.streams.values().map(Blocks::forgotten).sum()
    }

    /// Returns about the memory that it takes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.streams.values().map(Blocks::bytes).sum()
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
        for each in [1, 3] {
            let mut ledger = Ledger::new(each, 1);
            ledger.expect(1);
            assert_eq!(ledger.enter(2, 0), Entry::Foreign);
            assert_eq!(ledger.enter(1, u64::MAX), Entry::Foreign);
            assert_eq!(ledger.bytes(), 0);
        }
    }

    #[test]
    fn what_comes_long_after_a_message_that_never_came_counts_as_what_it_is() {
        // A message of a point of some twenty minutes at two million a second is further than this behind the
        // first.
        let mut ledger = Ledger::default();
        ledger.expect(1);
        let far = 1 << 32;
        let piece = |first, complete| Piece {
            audience: 0,
            stream: 1,
            first,
            complete,
            content: String::new(),
        };
        assert_eq!(ledger.absorb(&piece(1, 1 << 19)), 0);
        assert_eq!(ledger.absorb(&piece(1 << 19, 1 << 19)), 4096);
        assert_eq!(ledger.enter(1, far), Entry::New);
        assert_eq!(ledger.enter(1, far), Entry::Again);
        assert_eq!(ledger.missing(1, far + 1, |_| 0), 4096);
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
            for each in [1, 3] {
                let (mut one_by_one, mut together) = (Ledger::new(each, 1), Ledger::new(each, 1));
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
                assert_eq!((&told, &found), (&received, &expected), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_came_less_or_more_often_than_it_should_is_counted() {
        let mut ledger = Ledger::new(3, 1);
        ledger.expect(1);
        for sequence in [0, 2, 1, 0, 1, 2, 0, 1, 2, 4] {
            assert_eq!(ledger.enter(1, sequence), Entry::New);
        }
        assert_eq!(ledger.enter(1, 0), Entry::Again);
        assert_eq!(ledger.missing(1, 5, |_| 0), 3 + 2);
        assert_eq!(ledger.missing(1, 5, |range| u64::from(range.contains(&3))), 2);
        assert_eq!(ledger.missing(1, 3, |_| 0), 0);
    }

    #[test]
    fn what_came_on_two_hosts_makes_what_came() {
        let of_host = |counts: &[u64]| {
            let mut ledger = Ledger::of_part(3);
            ledger.expect(1);
            for (sequence, count) in (0..).zip(counts) {
                for _ in 0..*count {
                    assert_eq!(
                        ledger.enter(1, sequence),
                        Entry::New,
                        "others may have got it, too"
                    );
                }
            }
            ledger.pieces(0).collect::<Vec<_>>()
        };
        let mut ledger = Ledger::new(3, 1);
        ledger.expect(1);
        let absorb = |ledger: &mut Ledger, pieces: Vec<Piece>| -> u64 {
            pieces.iter().map(|piece| ledger.absorb(piece)).sum()
        };
        assert_eq!(absorb(&mut ledger, of_host(&[1, 3, 0, 2])), 0);
        assert_eq!(
            absorb(&mut ledger, of_host(&[2, 2, 0, 1])),
            2,
            "one came five times"
        );
        assert_eq!(ledger.missing(1, 10, |_| 0), 3 + 6 * 3);
        assert_eq!(
            ledger.missing(1, 10, |range| u64::from(range.contains(&2))),
            6 * 3
        );
        assert_eq!(ledger.missing(1, 1 << 52, |_| 0), 3 + 3 * ((1 << 52) - 4));
        let mut other = Ledger::new(3, 1);
        other.expect(2);
        assert_eq!(absorb(&mut other, of_host(&[1])), 0);
        assert_eq!(other.bytes(), 0, "it is of a stream of another load");
    }
}
