//! How often each message came, where each is to come to several receivers that are not told apart.
//!
//! A count per message between the first that has not come to all and the last that came to any. That one receiver got a
//! message twice and another one did not is seen as neither; the sums are exact otherwise.

use std::collections::{BTreeMap, VecDeque};

use super::ledger::Entry;

/// A stream does not run further ahead of its first missing message than this.
const AHEAD_MAX: u64 = 1 << 24;

/// What the receivers of a role got together.
#[derive(Debug)]
pub struct Tally {
    /// How often every message is to come.
    each: u16,
    streams: BTreeMap<u32, Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// Every message before this one came as often as it should.
    base: u64,
    counts: VecDeque<u16>,
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
        let place = usize::try_from(ahead).unwrap_or(usize::MAX);
        if place >= window.counts.len() {
            window.counts.resize(place + 1, 0);
        }
        let Some(count) = window.counts.get_mut(place) else {
            return Entry::Foreign;
        };
        if *count >= self.each {
            return Entry::Again;
        }
        *count += 1;
        while window.counts.front().is_some_and(|count| *count >= self.each) {
            window.counts.pop_front();
            window.base += 1;
        }
        Entry::New
    }

    /// How many deliveries of the first `sent` messages are missing, but for messages of which `is_excused` is told.
    pub fn missing(&self, stream: u32, sent: u64, mut is_excused: impl FnMut(u64) -> bool) -> u64 {
        let Some(window) = self.streams.get(&stream) else {
            return 0;
        };
        let mut missing = 0;
        for sequence in window.base..sent {
            let place = usize::try_from(sequence - window.base).unwrap_or(usize::MAX);
            let came = window.counts.get(place).copied().unwrap_or(0);
            if came < self.each && !is_excused(sequence) {
                missing += u64::from(self.each - came);
            }
        }
        missing
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
        assert!(
            tally.streams[&1].counts.len() == 2,
            "what is complete takes no memory"
        );
        assert_eq!(tally.enter(1, 0), Entry::Again);
        assert_eq!(tally.missing(1, 5, |_| false), 3 + 2);
        assert_eq!(tally.missing(1, 5, |sequence| sequence == 3), 2);
        assert_eq!(tally.missing(1, 3, |_| false), 0);
        assert_eq!(tally.enter(2, 0), Entry::Foreign);
        assert_eq!(tally.enter(1, u64::MAX), Entry::Foreign);
    }
}
