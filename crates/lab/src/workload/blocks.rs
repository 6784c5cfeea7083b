//! Number of times that each of a stream's messages came, where nearly all of them come about in their order,
//! and each is to come a number of times.
//!
//! Messages are kept in blocks of 4,096. A block of which everything came takes no memory of its own, one
//! that is old and misses little only has a list of these, and others hold a bit (or a count) for each
//! message:
//!
//! ```text
//! 0 ── complete ── misses 17 and 300 ── complete ── bits ── complete ── bits ── nothing came
//! ```
//!
//! There is a bound on the memory. Beyond it the oldest block that misses something is *forgotten*: only the
//! number of its missing messages is known from then on.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::runs::Runs;

const BLOCK: u64 = 4096;
const PLACES: usize = 4096;
const WORD: u64 = 64;
/// Bound on the messages of a stream; a number beyond it is not of this load.
pub(super) const SEQUENCE_MAX: u64 = 1 << 53;
const BLOCKS_MAX: u64 = SEQUENCE_MAX / BLOCK;
/// Blocks this far behind the newest one are old: their missing messages are late.
const YOUNG: u64 = 64;
/// Memory of a block beside its cells: its place in the map.
const BLOCK_BYTES: usize = 64;

/// Messages that came of one stream.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    complete: Runs,
    /// A block that is neither complete nor here never came.
    partial: BTreeMap<u64, Block>,
    /// Blocks before this one were looked at when they became old.
    settled: u64,
    bytes: usize,
    /// Deliveries that blocks missed when they were forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Block {
    /// Deliveries that it misses.
    open: u64,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    /// Each comes once: those that came.
    Bits(Box<[u64; 64]>),
    /// Each comes several times: how often it came.
    Counts(Box<[u16]>),
    /// Those that are missing, and how often, in their order.
    Missing(Vec<(u16, u16)>),
}

impl Blocks {
    /// Messages of a word came, which begins with message `first` (a multiple of 64); those of them that had
    /// come before. `room` bounds the memory, in bytes.
    pub(super) fn mark(&mut self, first: u64, bits: u64, room: usize) -> u64 {
        let at = first / BLOCK;
        if let Some(block) = self.partial.get_mut(&at) {
            let before = block.cells.bytes();
            let both = block.mark(first % BLOCK, bits);
            let (after, is_complete) = (block.cells.bytes(), block.open == 0);
            self.changed(at, before, after, is_complete);
            return both;
        }
        if self.complete.contains(at) {
            return bits;
        }
        let block = self.begin(at, 1, room);
        block.mark(first % BLOCK, bits);
        0
    }

    /// Returns everything that came: the first of some blocks, and how many are complete from there on; if
    /// none is, the content of that block.
    pub(super) fn pieces(&self, each: u16) -> impl Iterator<Item = (u64, u64, String)> + '_ {
        let complete = self.complete.iter();
        let complete = complete.map(|run| (run.start, run.end - run.start, String::new()));
        let partial = self.partial.iter();
        complete.chain(partial.map(move |(at, block)| (*at, 0, block.cells.encode(each))))
    }

    /// Takes over a piece of another ledger; returns how many deliveries of it were too many.
    pub(super) fn absorb(
        &mut self,
        (first, complete, content): (u64, u64, &str),
        each: u16,
        room: usize,
    ) -> u64 {
        let end = first.saturating_add(complete);
        if end >= BLOCKS_MAX {
            return 0;
        }
        if complete > 0 {
            return if each == 1 { self.fill(first..end) } else { 0 };
        }
        let bytes = STANDARD.decode(content).unwrap_or_default();
        let first = first * BLOCK;
        if each == 1 {
            let (words, _) = bytes.as_chunks();
            let words = words.iter().take(PLACES / 64).zip((first..).step_by(64));
            return words
                .map(|(word, at)| self.mark(at, u64::from_le_bytes(*word), room))
                .map(|known| u64::from(known.count_ones()))
                .sum();
        }
        let (counts, _) = bytes.as_chunks();
        let counts = counts.iter().take(PLACES).map(|count| u16::from_le_bytes(*count));
        let came = counts.zip(first..).filter(|(count, _)| *count > 0);
        came.map(|(count, number)| self.add(number, count, each, room))
            .sum()
    }

    /// Completes blocks; returns how many of their messages had come before.
    fn fill(&mut self, blocks: Range<u64>) -> u64 {
        let mut both = self.complete.count_in(blocks.clone()) * BLOCK;
        let known: Vec<u64> = self.partial.range(blocks.clone()).map(|(at, _)| *at).collect();
        for at in known {
            if let Some(block) = self.partial.remove(&at) {
                both += BLOCK - block.open;
                self.bytes -= block.cells.bytes() + BLOCK_BYTES;
            }
        }
        self.complete.insert(blocks);
        both
    }

    /// A message that is to come `each` times came so often; how often of that was too often.
    pub(super) fn add(&mut self, number: u64, came: u16, each: u16, room: usize) -> u64 {
        let at = number / BLOCK;
        let block = match self.partial.get_mut(&at) {
            Some(block) => block,
            None if self.complete.contains(at) => return came.into(),
            None => self.begin(at, each, room),
        };
        let before = block.cells.bytes();
        let taken = block.add(number % BLOCK, came, each);
        let (after, is_complete) = (block.cells.bytes(), block.open == 0);
        self.changed(at, before, after, is_complete);
        u64::from(came - taken)
    }

    fn begin(&mut self, at: u64, each: u16, room: usize) -> &mut Block {
        let old = at.saturating_sub(YOUNG);
        if old > self.settled {
            for (_, block) in self.partial.range_mut(self.settled..old) {
                let before = block.cells.bytes();
                block.cells.settle(each);
                self.bytes = (self.bytes + block.cells.bytes()).saturating_sub(before);
            }
            self.settled = old;
        }
        let block = Block::new(each);
        self.bytes += block.cells.bytes() + BLOCK_BYTES;
        while self.bytes > room {
            let Some((oldest, _)) = self.partial.first_key_value() else {
                break;
            };
            self.forget(*oldest);
        }
        self.partial.entry(at).or_insert(block)
    }

    fn forget(&mut self, at: u64) {
        if let Some(block) = self.partial.remove(&at) {
            self.bytes -= block.cells.bytes() + BLOCK_BYTES;
            self.forgotten += block.open;
            self.complete.insert(at..at + 1);
        }
    }

    /// Corrects the memory for a block whose cells took `before` bytes and take `after` now.
    #[inline]
    fn changed(&mut self, at: u64, before: usize, after: usize, is_complete: bool) {
        self.bytes = (self.bytes + after).saturating_sub(before);
        if is_complete {
            self.forget(at);
        }
    }

    /// Returns how many deliveries of the first `sent` messages are missing, `each` of every message, without
    /// messages of which `excused` returns how many there are in a range. Forgotten ones are not excused.
    pub(super) fn missing(&self, sent: u64, each: u16, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        let end = sent.div_ceil(BLOCK);
        let mut complete = self.complete.iter().peekable();
        let mut partial = self.partial.iter().peekable();
        let (mut at, mut missing) = (0, self.forgotten);
        while at < end {
            let next_complete = complete.peek().map_or(end, |run| run.start);
            let next_partial = partial.peek().map_or(end, |(at, _)| **at);
            let known = next_complete.min(next_partial).min(end);
            if known > at {
                let range = at * BLOCK..known.saturating_mul(BLOCK).min(sent);
                let none_came = (range.end - range.start).saturating_sub(excused(range));
                missing += none_came.saturating_mul(each.into());
                at = known;
            } else if next_complete == at {
                at = complete.next().map_or(end, |run| run.end);
            } else if let Some((_, block)) = partial.next() {
                missing += block.missing(at * BLOCK, sent, each, &excused);
                at += 1;
            }
        }
        missing
    }

    /// Deliveries that are known to be missing, and not of which messages.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns about the memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.complete.pieces() * BLOCK_BYTES
    }
}

impl Block {
    fn new(each: u16) -> Self {
        let cells = if each == 1 {
            Cells::Bits(Box::new([0; 64]))
        } else {
            Cells::Counts(vec![0; PLACES].into_boxed_slice())
        };
        Self {
            open: BLOCK * u64::from(each),
            cells,
        }
    }

    /// As [`Blocks::mark`]; `first` is within the block.
    fn mark(&mut self, first: u64, bits: u64) -> u64 {
        if let Cells::Bits(words) = &mut self.cells {
            let word = usize::try_from(first / WORD).ok();
            let Some(word) = word.and_then(|word| words.get_mut(word)) else {
                return 0;
            };
            let both = *word & bits;
            *word |= bits;
            self.open -= u64::from((bits & !both).count_ones());
            return both;
        }
        let came = (0..WORD).filter(|bit| bits & (1 << bit) != 0);
        let known = came.filter(|bit| self.add(first + bit, 1, 1) == 0);
        known.fold(0, |known, bit| known | 1 << bit)
    }

    /// Adds `came` deliveries of a message; returns how many of them were missing.
    fn add(&mut self, place: u64, came: u16, each: u16) -> u16 {
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        let taken = match &mut self.cells {
            Cells::Bits(_) => {
                let bit = 1 << (place % WORD);
                return u16::from(self.mark(place / WORD * WORD, bit) == 0);
            }
            Cells::Counts(counts) => {
                let Some(count) = counts.get_mut(at) else { return 0 };
                let taken = came.min(each.saturating_sub(*count));
                *count += taken;
                taken
            }
            Cells::Missing(missing) => {
                let found = missing.binary_search_by_key(&place, |(place, _)| u64::from(*place));
                let Some((found, row)) = found
                    .ok()
                    .and_then(|found| Some((found, missing.get_mut(found)?)))
                else {
                    return 0;
                };
                let taken = came.min(row.1);
                row.1 -= taken;
                if row.1 == 0 {
                    missing.remove(found);
                }
                taken
            }
        };
        self.open -= u64::from(taken);
        taken
    }

    fn missing(&self, first: u64, sent: u64, each: u16, excused: &impl Fn(Range<u64>) -> u64) -> u64 {
        let range = first..first.saturating_add(BLOCK);
        if range.end <= sent && excused(range) == 0 {
            return self.open;
        }
        let is_due = |place: u16| {
            let number = first + u64::from(place);
            number < sent && excused(number..number + 1) == 0
        };
        let missing = self.cells.missing(each).into_iter();
        let due = missing.filter(|(place, _)| is_due(*place));
        due.map(|(_, missing)| u64::from(missing)).sum()
    }
}

impl Cells {
    fn bytes(&self) -> usize {
        match self {
            Self::Bits(words) => size_of_val(&**words),
            Self::Counts(counts) => size_of_val(&**counts),
            Self::Missing(missing) => missing.capacity() * size_of::<(u16, u16)>(),
        }
    }

    /// Returns the content in Base64: a bit or a count of 16 bits for each message, little-endian.
    fn encode(&self, each: u16) -> String {
        let mut came = vec![each; PLACES];
        for (place, missing) in self.missing(each) {
            if let Some(came) = came.get_mut(usize::from(place)) {
                *came -= missing;
            }
        }
        if each > 1 {
            let counts = came.iter().flat_map(|count| count.to_le_bytes());
            return STANDARD.encode(counts.collect::<Vec<u8>>());
        }
        let bytes = came.chunks(8).map(|bits| {
            let bits = bits.iter().rev();
            bits.fold(0, |byte, bit| byte << 1 | u8::from(*bit > 0))
        });
        STANDARD.encode(bytes.collect::<Vec<u8>>())
    }

    fn missing(&self, each: u16) -> Vec<(u16, u16)> {
        match self {
            Self::Bits(words) => {
                let words = (0..).step_by(64).zip(words.iter());
                let open = words.filter(|(_, word)| **word != u64::MAX);
                let bits = open.flat_map(|(first, word)| {
                    let missing = (0..64_u16).filter(move |bit| word & (1 << bit) == 0);
                    missing.map(move |bit| (first + bit, 1))
                });
                bits.collect()
            }
            Self::Counts(counts) => (0..)
                .zip(counts)
                .filter(|(_, count)| **count < each)
                .map(|(place, count)| (place, each - count))
                .collect(),
            Self::Missing(missing) => missing.clone(),
        }
    }

    /// Keeps a list of the missing messages, if that is shorter.
    fn settle(&mut self, each: u16) {
        if matches!(self, Self::Missing(_)) {
            return;
        }
        let mut missing = Self::Missing(self.missing(each));
        if let Self::Missing(missing) = &mut missing {
            missing.shrink_to_fit();
        }
        if missing.bytes() < self.bytes() / 2 {
            *self = missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::seq::SliceRandom as _;
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    const ROOM: usize = 1 << 30;

    #[test]
    fn blocks_agree_with_a_count_of_each_message() {
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
            let (mut blocks, mut model) = (Blocks::default(), BTreeMap::<u64, u16>::new());
            for number in arrivals {
                let known = model.entry(number).or_default();
                let too_often = u64::from(*known >= each);
                *known = each.min(*known + 1);
                let found = if each == 1 {
                    u64::from(blocks.mark(number / 64 * 64, 1 << (number % 64), ROOM) != 0)
                } else {
                    blocks.add(number, 1, each, ROOM)
                };
                assert_eq!(found, too_often, "seed {seed}, message {number}");
            }
            let came: u64 = model.values().map(|count| u64::from(*count)).sum();
            let due = sent * u64::from(each);
            assert_eq!(blocks.missing(sent, each, |_| 0), due - came, "seed {seed}");
            let excused = |range: Range<u64>| (range.start..range.end).filter(|n| n % 5 == 0).count() as u64;
            let missing = |number: u64| u64::from(each - model.get(&number).copied().unwrap_or(0));
            let expected: u64 = (0..sent).filter(|number| number % 5 != 0).map(missing).sum();
            assert_eq!(blocks.missing(sent, each, excused), expected, "seed {seed}");
        }
    }

    #[test]
    fn parts_that_are_put_together_are_the_whole() {
        for seed in 0..30 {
            let mut random = SmallRng::seed_from_u64(seed);
            let each: u16 = random.random_range(1..4);
            let of_part = if each == 1 { 1 } else { u16::MAX };
            let mut parts = [Blocks::default(), Blocks::default()];
            let mut whole = Blocks::default();
            let mut again = 0;
            for _ in 0..20 {
                let (start, part) = (random.random_range(0..50_000), random.random_range(0..2));
                for number in start..start + random.random_range(0..9000) {
                    let came = |blocks: &mut Blocks, each| {
                        if each == 1 {
                            u64::from(blocks.mark(number / 64 * 64, 1 << (number % 64), ROOM) != 0)
                        } else {
                            blocks.add(number, 1, each, ROOM)
                        }
                    };
                    again += came(&mut whole, each);
                    again -= came(&mut parts[part], of_part);
                }
            }
            let mut merged = Blocks::default();
            let mut too_many = 0;
            for (first, complete, content) in parts.iter().flat_map(|part| part.pieces(of_part)) {
                too_many += merged.absorb((first, complete, &content), each, ROOM);
            }
            assert_eq!(too_many, again, "seed {seed}");
            for sent in [60_000, 10_000] {
                assert_eq!(
                    merged.missing(sent, each, |_| 0),
                    whole.missing(sent, each, |_| 0)
                );
            }
        }
    }

    #[test]
    fn a_piece_that_cannot_be_takes_nothing() {
        for each in [1, 3] {
            let mut blocks = Blocks::default();
            for (first, complete) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 50, 1)] {
                assert_eq!(blocks.absorb((first, complete, "AAAA"), each, ROOM), 0);
            }
            assert_eq!(blocks.absorb((0, 0, "no Base64"), each, ROOM), 0);
            assert_eq!(blocks.bytes(), 0);
        }
    }

    #[test]
    fn a_message_that_never_comes_takes_next_to_no_memory_however_many_come_after_it() {
        for (each, every) in [(1, 600_000), (1, 5000), (3, 5000)] {
            let mut blocks = Blocks::default();
            let sent = 600_000;
            let mut most = 0;
            for number in (0..sent).filter(|number| number % every != 17) {
                if each == 1 {
                    blocks.mark(number / 64 * 64, 1 << (number % 64), ROOM);
                } else {
                    blocks.add(number, each, each, ROOM);
                }
                most = most.max(blocks.bytes());
            }
            let lost = (0..sent).filter(|number| number % every == 17).count() as u64;
            assert_eq!(blocks.missing(sent, each, |_| 0), lost * u64::from(each));
            let lost = usize::try_from(lost).unwrap();
            // The young blocks are whole.
            let young = 65 * (if each == 1 { 512 } else { 8192 } + BLOCK_BYTES);
            assert!(most < young + 200 * lost, "{most} bytes at most");
        }
    }

    #[test]
    fn beyond_its_room_it_counts_what_is_missing_and_forgets_which() {
        let mut blocks = Blocks::default();
        let sent = 1_000_000_u64;
        for number in (0..sent).filter(|number| number % 2 == 0) {
            blocks.mark(number / 64 * 64, 1 << (number % 64), 16 << 10);
            assert!(blocks.bytes() < 20 << 10);
        }
        assert_eq!(blocks.missing(sent, 1, |_| 0), sent / 2);
        assert!(blocks.forgotten() > sent / 4);
        assert_eq!(
            blocks.mark(0, 2, 16 << 10),
            2,
            "it cannot be told from one that came"
        );
        assert_eq!(blocks.mark(sent / 64 * 64 - 64, 2, 16 << 10), 0);
        assert_eq!(blocks.missing(sent, 1, |_| 0), sent / 2 - 1);
    }
}
