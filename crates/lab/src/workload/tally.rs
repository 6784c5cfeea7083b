//! How often each message came, where each is to come to several receivers that are not told apart.
//!
//! A count per message ([`super::blocks`]). That one receiver got a message twice and another one did not is
//! seen as neither; the sums are exact otherwise.

use std::collections::BTreeMap;
use std::ops::Range;

use super::arrivals::Arrived;
use super::blocks::Blocks;
use super::ledger::{Entry, ROOM_BYTES};
use super::streams::SEQUENCE_MAX;

/// What the receivers of a role got together.
#[derive(Debug)]
pub struct Tally {
    /// How often every message is to come.
    each: u16,
    streams: BTreeMap<u32, Blocks>,
}

impl Tally {
    pub fn new(each: u16) -> Self {
        Self {
            each,
            streams: BTreeMap::new(),
        }
    }

    /// Messages of this stream count.
    pub fn expect(&mut self, stream: u32) {
        self.streams.entry(stream).or_default();
    }

    /// Takes over what came elsewhere: how many of the messages came more often than they should have. What
    /// is of a stream that nobody sends, or far beyond what was sent, is passed over.
    pub fn absorb(&mut self, arrived: &Arrived) -> u64 {
        let mut again = 0;
        for (ahead, count) in (0..).zip(&arrived.counts) {
            if let Some(sequence) = arrived.first.checked_add(ahead).filter(|_| *count > 0) {
                again += self.add(arrived.stream, sequence, *count).unwrap_or(0);
            }
        }
        again
    }

    /// A message came so often; how often of that was too often.
    fn add(&mut self, stream: u32, sequence: u64, came: u16) -> Option<u64> {
        let room = ROOM_BYTES / self.streams.len().max(1);
        let known = self.streams.get_mut(&stream).filter(|_| sequence < SEQUENCE_MAX);
        Some(known?.add(sequence, came, self.each, room))
    }

    pub fn enter(&mut self, stream: u32, sequence: u64) -> Entry {
        match self.add(stream, sequence, 1) {
            None => Entry::Foreign,
            Some(0) => Entry::New,
            Some(_) => Entry::Again,
        }
    }

    /// How many deliveries of the first `sent` messages are missing, but for messages of which `excused` says
    /// how many there are in a range.
    pub fn missing(&self, stream: u32, sent: u64, excused: impl Fn(Range<u64>) -> u64) -> u64 {
        let blocks = self.streams.get(&stream);
        blocks.map_or(0, |blocks| blocks.missing(sent, self.each, excused))
    }

    /// As [`super::Ledger::forgotten`].
    pub fn forgotten(&self) -> u64 {
        self.streams.values().map(Blocks::forgotten).sum()
    }

    /// The memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.streams.values().map(Blocks::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_less_or_more_often_than_it_should_is_counted() {
        let mut tally = Tally::new(3);
        tally.expect(1);
        for sequence in [0, 2, 1, 0, 1, 2, 0, 1, 2, 4] {
            assert_eq!(tally.enter(1, sequence), Entry::New);
        }
        assert_eq!(tally.enter(1, 0), Entry::Again);
        assert_eq!(tally.missing(1, 5, |_| 0), 3 + 2);
        assert_eq!(tally.missing(1, 5, |range| u64::from(range.contains(&3))), 2);
        assert_eq!(tally.missing(1, 3, |_| 0), 0);
        assert_eq!(tally.enter(2, 0), Entry::Foreign);
        assert_eq!(tally.enter(1, u64::MAX), Entry::Foreign);
    }

    #[test]
    fn what_came_on_two_hosts_makes_what_came() {
        let arrived = |stream, first, counts: &[u16]| Arrived {
            stream,
            first,
            counts: counts.to_vec(),
        };
        let mut tally = Tally::new(3);
        tally.expect(1);
        assert_eq!(tally.absorb(&arrived(1, 0, &[1, 3, 0, 2])), 0);
        assert_eq!(
            tally.absorb(&arrived(1, 0, &[2, 2, 0, 1])),
            2,
            "the second one came five times"
        );
        assert_eq!(tally.missing(1, 10, |_| 0), 3 + 6 * 3);
        assert_eq!(tally.missing(1, 10, |range| u64::from(range.contains(&2))), 6 * 3);
        assert_eq!(
            tally.missing(1, 10, |range| 10_u64
                .min(range.end)
                .saturating_sub(9.max(range.start))),
            3 + 5 * 3
        );
        assert_eq!(tally.missing(1, 1 << 60, |_| 0), 3 + 3 * ((1 << 60) - 4));
        assert_eq!(tally.absorb(&arrived(1, 0, &[1])), 1, "it is long complete");
        let before = tally.bytes();
        for foreign in [
            arrived(2, 0, &[1]),
            arrived(1, 1 << 60, &[1]),
            arrived(1, u64::MAX, &[1, 1]),
        ] {
            assert_eq!(tally.absorb(&foreign), 0);
        }
        assert_eq!(tally.bytes(), before, "what is not of this load takes nothing");
    }
}
