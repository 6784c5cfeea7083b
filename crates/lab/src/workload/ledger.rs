//! Messages that one audience received: which are missing, which came twice.
//!
//! Each message comes once, or to several receivers that are not told apart. Then it is not seen that one
//! receiver got a message twice and another one did not; the sums are exact. Messages that follow each other
//! take next to no memory; others take a bit each, or two bytes where each comes several times.
//!
//! An audience on several hosts has a ledger on each of them. In the end they hand over their pieces, and one
//! ledger absorbs them all.

mod counts;

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use self::counts::Counts;
use super::message::Received;

/// Bound on the messages of a stream; a number beyond it is not of this load.
const SEQUENCE_MAX: u64 = 1 << 53;
/// Messages whose counts lie together.
const CHUNK: u64 = 4096;
/// Messages of a stream after which those that follow each other are put together.
const TIDIED_EVERY: u64 = 1 << 20;
/// Messages in a row that are looked at together: fewer are faster one by one.
const RUN_MIN: usize = 32;

/// Messages that one audience received.
#[derive(Debug)]
pub struct Ledger {
    /// Deliveries of each message.
    each: u16,
    streams: BTreeMap<u32, Stream>,
}

/// Standing of a message in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    New,
    Again,
    /// From a stream without a sender, or far beyond the last sent number.
    Foreign,
}

/// Messages that came of a stream.
#[derive(Debug)]
enum Stream {
    /// Each comes once: those that came.
    Once { came: RoaringTreemap, tidied: u64 },
    /// Each comes several times.
    Often(Counts),
}

/// Messages of a stream that came to an audience on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// With fan-out the number of a client, else 0.
    pub audience: u32,
    pub stream: u32,
    /// Where each message comes several times, the number of the chunk.
    pub chunk: u64,
    /// In Base64: the numbers as a Roaring bitmap (its portable format for 64 bits), or how often each
    /// message of the chunk came, as 16 bits each, little-endian.
    pub content: String,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Ledger {
    /// Creates the ledger of an audience to which every message comes `each` times.
    pub fn new(each: u16) -> Self {
        Self {
            each,
            streams: BTreeMap::new(),
        }
    }

    /// Creates the ledger of those of an audience that are on this host.
    pub fn of_part(each: u16) -> Self {
        // How often a message is to come here is not known.
        Self::new(if each == 1 { 1 } else { u16::MAX })
    }

    /// Counts messages of this stream from now on.
    pub fn expect(&mut self, stream: u32) {
        let empty = if self.each == 1 {
            Stream::Once {
                came: RoaringTreemap::new(),
                tidied: 0,
            }
        } else {
            Stream::Often(Counts::default())
        };
        self.streams.entry(stream).or_insert(empty);
    }

    fn known(&mut self, stream: u32, sequence: u64) -> Option<&mut Stream> {
        let known = self.streams.get_mut(&stream);
        known.filter(|_| sequence < SEQUENCE_MAX)
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        let each = self.each;
        let is_new = match self.known(stream, sequence) {
            None => return Entry::Foreign,
            Some(Stream::Once { came, tidied }) => {
                tidy(came, tidied, sequence);
                came.insert(sequence)
            }
            Some(Stream::Often(counts)) => counts.enter(sequence, each),
        };
        if is_new { Entry::New } else { Entry::Again }
    }

    /// Enters messages, and tells how each stands. Messages that follow each other are looked at together.
    pub fn enter_all(&mut self, received: &[Received], mut tell: impl FnMut(&Received, Entry)) {
        let follows = |one: &Received, next: &Received| {
            one.stream == next.stream && one.sequence.checked_add(1) == Some(next.sequence)
        };
        for run in received.chunk_by(follows) {
            let are_new = run.len() >= RUN_MIN && self.enter_new(run);
            for message in run {
                let entry = if are_new {
                    Entry::New
                } else {
                    self.enter(message.stream, message.sequence)
                };
                tell(message, entry);
            }
        }
    }

    /// Enters messages that follow each other, if each of them comes once and none has come; else none.
    fn enter_new(&mut self, run: &[Received]) -> bool {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return false;
        };
        let Some(Stream::Once { came, tidied }) = self.known(first.stream, last.sequence) else {
            return false;
        };
        let range = first.sequence..=last.sequence;
        let are_new = came.range_cardinality(range.clone()) == 0;
        if are_new {
            tidy(came, tidied, last.sequence);
            came.insert_range(range);
        }
        are_new
    }

    /// Returns all that came, for a ledger of the whole audience.
    pub fn pieces(&self, audience: u32) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (stream, content) in &self.streams {
            let piece = |chunk, content| Piece {
                audience,
                stream: *stream,
                chunk,
                content,
            };
            match content {
                Stream::Once { came, .. } => pieces.push(piece(0, encode(came))),
                Stream::Often(counts) => {
                    pieces.extend(
                        counts
                            .partial
                            .iter()
                            .map(|(at, chunk)| piece(*at, chunk.encode())),
                    );
                }
            }
        }
        pieces
    }

    /// Takes over a piece of another host; returns how many deliveries of it were too many. Streams that are
    /// not expected here are passed over, as is content that cannot be read.
    pub fn absorb(&mut self, piece: &Piece) -> u64 {
        match self.streams.get_mut(&piece.stream) {
            None => 0,
            Some(Stream::Once { came, .. }) => {
                let other = decode(&piece.content);
                let again = came.intersection_len(&other);
                *came |= other;
                again
            }
            Some(Stream::Often(counts)) => counts.absorb(piece, self.each),
        }
    }

    /// Returns how many deliveries of the first `sent` messages of a stream are missing, without those of
    /// messages that were given up.
    pub fn missing(&self, stream: u32, sent: u64, given_up: &RoaringTreemap) -> u64 {
        match self.streams.get(&stream) {
            None => 0,
            Some(Stream::Once { came, .. }) => {
                let excused = given_up - came;
                sent - came.range_cardinality(..sent) - excused.range_cardinality(..sent)
            }
            Some(Stream::Often(counts)) => {
                let due = (sent - given_up.range_cardinality(..sent)).saturating_mul(self.each.into());
                due - counts.came(sent, self.each, given_up)
            }
        }
    }
}

/// Puts numbers that follow each other together now and then, when a stream has come up to `sequence`.
fn tidy(came: &mut RoaringTreemap, tidied: &mut u64, sequence: u64) {
    if sequence >= *tidied + TIDIED_EVERY {
        came.optimize();
        *tidied = sequence;
    }
}

/// Numbers as a text, for another host.
pub(crate) fn encode(numbers: &RoaringTreemap) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = numbers.serialize_into(&mut bytes);
    STANDARD.encode(bytes)
}

/// Numbers that [`encode`] wrote; none, if it did not.
pub(crate) fn decode(text: &str) -> RoaringTreemap {
    let bytes = STANDARD.decode(text).map_err(io::Error::other);
    let numbers = bytes.and_then(|bytes| RoaringTreemap::deserialize_from(bytes.as_slice()));
    numbers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom as _;
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    fn expecting(each: u16) -> Ledger {
        let mut ledger = Ledger::new(each);
        ledger.expect(1);
        ledger
    }

    fn none() -> RoaringTreemap {
        RoaringTreemap::new()
    }

    /// About the memory that it takes.
    fn bytes(ledger: &Ledger) -> usize {
        let of_stream = |stream: &Stream| match stream {
            Stream::Once { came, .. } => came.serialized_size(),
            Stream::Often(counts) => counts.partial.len() * 8192,
        };
        ledger.streams.values().map(of_stream).sum()
    }

    #[test]
    fn order_takes_no_memory_and_repetition_is_seen() {
        let mut ledger = expecting(1);
        let message = |sequence| Received {
            stream: 1,
            sequence,
            ..Received::default()
        };
        let received: Vec<Received> = (0..3 << 20).map(message).collect();
        for some in received.chunks(500) {
            ledger.enter_all(some, |_, entry| assert_eq!(entry, Entry::New));
        }
        // Those since it was tidied take a bit each.
        assert!(bytes(&ledger) < 150_000, "{}", bytes(&ledger));
        assert_eq!(ledger.enter(1, 0), Entry::Again);
        assert_eq!(ledger.enter(1, (3 << 20) - 1), Entry::Again);
        assert_eq!(ledger.missing(1, 3 << 20, &none()), 0);
        let given_up = RoaringTreemap::from_iter([(3 << 20) + 1]);
        assert_eq!(ledger.missing(1, (3 << 20) + 5, &given_up), 4);
    }

    #[test]
    fn what_is_not_of_this_load_takes_nothing() {
        for each in [1, 3] {
            let mut ledger = expecting(each);
            let before = bytes(&ledger);
            assert_eq!(ledger.enter(2, 0), Entry::Foreign);
            assert_eq!(ledger.enter(1, u64::MAX), Entry::Foreign);
            let piece = |chunk, content: &str| Piece {
                audience: 0,
                stream: 1,
                chunk,
                content: content.to_owned(),
            };
            assert_eq!(ledger.absorb(&piece(u64::MAX, "AAAA")), 0);
            assert_eq!(ledger.absorb(&piece(1 << 50, "no Base64")), 0);
            assert_eq!(bytes(&ledger), before);
        }
    }

    #[test]
    fn what_comes_long_after_a_message_that_never_came_counts_as_what_it_is() {
        // A message of a point of some twenty minutes at two million a second is further than this behind the
        // first.
        let mut ledger = expecting(1);
        let far = 1 << 32;
        let others = RoaringTreemap::from_iter([0, far]);
        let piece = Piece {
            audience: 0,
            stream: 1,
            chunk: 0,
            content: encode(&others),
        };
        assert_eq!(ledger.absorb(&piece), 0);
        assert_eq!(ledger.absorb(&piece), 2);
        assert_eq!(ledger.enter(1, far + 1), Entry::New);
        assert_eq!(ledger.enter(1, far), Entry::Again);
        assert_eq!(ledger.missing(1, far + 2, &none()), far - 1);
    }

    #[test]
    fn a_ledger_agrees_with_a_count_of_each_message() {
        for seed in 0..30 {
            let mut random = SmallRng::seed_from_u64(seed);
            let each: u16 = random.random_range(1..4);
            let sent = random.random_range(1..70_000_u64);
            // In about their order, with gaps and repetitions; some much later than the others.
            let mut arrivals: Vec<u64> = (0..500).map(|_| random.random_range(0..sent)).collect();
            let start = random.random_range(0..sent);
            arrivals.extend((start..sent.min(start + 20_000)).filter(|number| number % 997 != 0));
            if random.random() {
                arrivals.shuffle(&mut random);
            }
            let (mut ledger, mut model) = (expecting(each), BTreeMap::<u64, u16>::new());
            for number in arrivals {
                let known = model.entry(number).or_default();
                let expected = if *known < each { Entry::New } else { Entry::Again };
                *known = each.min(*known + 1);
                assert_eq!(ledger.enter(1, number), expected, "seed {seed}, message {number}");
            }
            let missing = |number: u64| u64::from(each - model.get(&number).copied().unwrap_or(0));
            let expected: u64 = (0..sent).map(missing).sum();
            assert_eq!(ledger.missing(1, sent, &none()), expected, "seed {seed}");
            let given_up: RoaringTreemap = (0..sent + 50).filter(|number| number % 5 == 0).collect();
            let expected: u64 = (0..sent).filter(|number| number % 5 != 0).map(missing).sum();
            assert_eq!(ledger.missing(1, sent, &given_up), expected, "seed {seed}");
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
                    *next += u64::from(!random.random_ratio(1, 100));
                    *next = next.saturating_sub(u64::from(random.random_ratio(1, 100)) * 70);
                    received.push(Received {
                        stream,
                        sequence: *next,
                        ..Received::default()
                    });
                }
            }
            for each in [1, 3] {
                let (mut one_by_one, mut together) = (Ledger::new(each), Ledger::new(each));
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
        let mut ledger = expecting(3);
        for sequence in [0, 2, 1, 0, 1, 2, 0, 1, 2, 4] {
            assert_eq!(ledger.enter(1, sequence), Entry::New);
        }
        assert_eq!(ledger.enter(1, 0), Entry::Again);
        assert_eq!(ledger.missing(1, 5, &none()), 3 + 2);
        assert_eq!(ledger.missing(1, 5, &RoaringTreemap::from_iter([3])), 2);
        assert_eq!(ledger.missing(1, 3, &none()), 0);
    }

    #[test]
    fn parts_that_are_put_together_are_the_whole() {
        for seed in 0..30 {
            let mut random = SmallRng::seed_from_u64(seed);
            let each: u16 = random.random_range(1..4);
            let (mut whole, mut merged) = (expecting(each), expecting(each));
            let mut parts = [Ledger::of_part(each), Ledger::of_part(each)];
            for part in &mut parts {
                part.expect(1);
            }
            let mut again: i64 = 0;
            for _ in 0..20 {
                let (start, part) = (random.random_range(0..50_000), random.random_range(0..2_usize));
                for number in start..start + random.random_range(0..9000) {
                    again += i64::from(whole.enter(1, number) == Entry::Again);
                    again -= i64::from(parts[part].enter(1, number) == Entry::Again);
                }
            }
            let pieces = parts.iter().flat_map(|part| part.pieces(0));
            let too_many: u64 = pieces.map(|piece| merged.absorb(&piece)).sum();
            assert_eq!(i64::try_from(too_many), Ok(again), "seed {seed}");
            for sent in [60_000, 10_000] {
                assert_eq!(merged.missing(1, sent, &none()), whole.missing(1, sent, &none()));
            }
        }
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
            ledger.pieces(0)
        };
        let mut ledger = expecting(3);
        let absorb = |ledger: &mut Ledger, pieces: Vec<Piece>| -> u64 {
            pieces.iter().map(|piece| ledger.absorb(piece)).sum()
        };
        assert_eq!(absorb(&mut ledger, of_host(&[1, 3, 0, 2])), 0);
        assert_eq!(
            absorb(&mut ledger, of_host(&[2, 2, 0, 1])),
            2,
            "one came five times"
        );
        assert_eq!(ledger.missing(1, 10, &none()), 3 + 6 * 3);
        let given_up = RoaringTreemap::from_iter([2]);
        assert_eq!(ledger.missing(1, 10, &given_up), 6 * 3);
        assert_eq!(ledger.missing(1, 1 << 52, &none()), 3 + 3 * ((1 << 52) - 4));
        let mut other = Ledger::new(3);
        other.expect(2);
        assert_eq!(absorb(&mut other, of_host(&[1])), 0);
        assert_eq!(bytes(&other), 0, "it is of a stream of another load");
    }
}
