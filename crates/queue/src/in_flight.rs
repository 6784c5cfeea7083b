//! Messages in flight of a lane, by offset.
//!
//! Messages are delivered in order and mostly settled in order. Those form a line: settled entries are popped
//! at its front and left as gaps in its middle, until there are too many. Redelivered messages are kept
//! beside it.

use std::collections::{BTreeMap, VecDeque};

use crate::consumers::ConsumerKey;
use crate::lane::InFlight;

/// Length of the line up to which gaps are kept.
const GAPS_MIN: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InFlightSet {
    line: VecDeque<(u64, Option<InFlight>)>,
    in_line: usize,
    beside: BTreeMap<u64, InFlight>,
}

impl InFlightSet {
    pub(crate) fn len(&self) -> usize {
        self.in_line + self.beside.len()
    }

    pub(crate) fn insert(&mut self, at: u64, entry: InFlight) {
        if self.line.back().is_none_or(|(last, _)| *last < at) {
            self.line.push_back((at, Some(entry)));
            self.in_line += 1;
        } else {
            self.beside.insert(at, entry);
        }
    }

    pub(crate) fn get(&self, at: u64) -> Option<InFlight> {
        if let Some(entry) = self.place(at).and_then(|index| self.line.get(index)?.1) {
            return Some(entry);
        }
        self.beside.get(&at).copied()
    }

    /// Clears the consumer of a message and returns it.
    pub(crate) fn disown(&mut self, at: u64) -> Option<ConsumerKey> {
        self.entry_mut(at)?.consumer.take()
    }

    fn entry_mut(&mut self, at: u64) -> Option<&mut InFlight> {
        match self.place(at) {
            // Separate look-ups, as a borrow may not end in one arm only.
            Some(index) if self.line.get(index).is_some_and(|(_, entry)| entry.is_some()) => {
                self.line.get_mut(index)?.1.as_mut()
            }
            Some(_) | None => self.beside.get_mut(&at),
        }
    }

    /// Gives a message to another consumer. False if it is not in flight.
    pub(crate) fn give_to(&mut self, at: u64, consumer: ConsumerKey) -> bool {
        let entry = self.entry_mut(at);
        if let Some(entry) = entry {
            entry.consumer = Some(consumer);
            return true;
        }
        false
    }

    pub(crate) fn remove(&mut self, at: u64) -> Option<InFlight> {
        let taken = self
            .place(at)
            .and_then(|index| self.line.get_mut(index)?.1.take());
        let Some(taken) = taken else {
            return self.beside.remove(&at);
        };
        self.in_line -= 1;
        while self.line.front().is_some_and(|(_, entry)| entry.is_none()) {
            self.line.pop_front();
        }
        if self.line.len() > GAPS_MIN && self.in_line < self.line.len() / 2 {
            self.line.retain(|(_, entry)| entry.is_some());
        }
        Some(taken)
    }

    /// Removes and returns all entries below an offset.
    pub(crate) fn remove_below(&mut self, offset: u64) -> Vec<InFlight> {
        let mut removed = Vec::new();
        while let Some((_, entry)) = self.line.pop_front_if(|(at, _)| *at < offset) {
            self.in_line -= usize::from(entry.is_some());
            removed.extend(entry);
        }
        let left = self.beside.split_off(&offset);
        removed.extend(std::mem::replace(&mut self.beside, left).into_values());
        removed
    }

    /// Iterates over all entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, InFlight)> {
        let line = self.line.iter().filter_map(|(at, entry)| Some((*at, (*entry)?)));
        line.chain(self.beside.iter().map(|(at, entry)| (*at, *entry)))
    }

    /// Returns the first entries from an offset on, in order.
    pub(crate) fn first_from(&self, at: u64, count: usize) -> Vec<(u64, InFlight)> {
        let start = self.line.partition_point(|(known, _)| *known < at);
        let line = self
            .line
            .range(start..)
            .filter_map(|(at, entry)| Some((*at, (*entry)?)));
        let beside = self.beside.range(at..).map(|(at, entry)| (*at, *entry));
        let mut first: Vec<_> = line.take(count).chain(beside.take(count)).collect();
        first.sort_unstable_by_key(|(at, _)| *at);
        first.truncate(count);
        first
    }

    /// Returns the index of an offset in the line.
    fn place(&self, at: u64) -> Option<usize> {
        let (first, _) = self.line.front()?;
        // Without gaps, the index follows from the first offset.
        let guess = usize::try_from(at.checked_sub(*first)?).unwrap_or(usize::MAX);
        if self.line.get(guess).is_some_and(|(known, _)| *known == at) {
            return Some(guess);
        }
        self.line.binary_search_by_key(&at, |(known, _)| *known).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(returns: u32) -> InFlight {
        InFlight {
            consumer: None,
            returns,
            bytes: 0,
        }
    }

    #[test]
    fn gaps_are_closed_once_there_are_many() {
        let mut set = InFlightSet::default();
        for at in 0..1000 {
            set.insert(at, entry(0));
        }
        for at in 1..999 {
            assert_eq!(set.remove(at), Some(entry(0)));
            assert_eq!(set.remove(at), None);
        }
        assert!(set.line.len() < 2 * GAPS_MIN + 2, "{}", set.line.len());
        assert_eq!(
            (set.len(), set.get(0), set.get(999)),
            (2, Some(entry(0)), Some(entry(0)))
        );
        set.insert(500, entry(1));
        assert_eq!((set.get(500), set.len()), (Some(entry(1)), 3));
        assert_eq!(set.first_from(0, 2), [(0, entry(0)), (500, entry(1))]);
        assert_eq!(set.first_from(500, 9), [(500, entry(1)), (999, entry(0))]);
        assert_eq!(set.remove_below(600).len(), 2);
        assert_eq!(set.iter().map(|(at, _)| at).collect::<Vec<_>>(), [999]);
    }
}
