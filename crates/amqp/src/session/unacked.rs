//! What a channel has delivered and its client has not yet settled, by delivery tag.
//!
//! Tags only rise, so the list is sorted: one is found by halving, many are taken from the front.

use std::collections::VecDeque;

/// Deliveries in the order of their tags.
#[derive(Debug)]
pub(crate) struct Unacked<T> {
    /// What was settled in the middle leaves a gap until all before it is gone.
    entries: VecDeque<(u64, Option<T>)>,
    count: usize,
}

impl<T> Default for Unacked<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            count: 0,
        }
    }
}

/// No delivery that waits to be settled has the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownTag;

impl<T> Unacked<T> {
    /// Adds a delivery; its tag is higher than all before.
    pub(crate) fn push(&mut self, tag: u64, delivery: T) {
        self.entries.push_back((tag, Some(delivery)));
        self.count += 1;
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.count
    }

    /// The tags that [`Self::take`] would take out.
    pub(crate) fn tags(&self, tag: u64, multiple: bool) -> Result<Vec<u64>, UnknownTag> {
        let waiting = self.entries.iter().filter(|(_, delivery)| delivery.is_some());
        let waiting = waiting.map(|(tag, _)| *tag);
        if multiple && tag == 0 {
            return Ok(waiting.collect());
        }
        let at = self.entries.binary_search_by_key(&tag, |(tag, _)| *tag);
        let entry = at.ok().and_then(|at| self.entries.get(at));
        entry
            .filter(|(_, delivery)| delivery.is_some())
            .ok_or(UnknownTag)?;
        Ok(if multiple {
            waiting.take_while(|known| *known <= tag).collect()
        } else {
            vec![tag]
        })
    }

    /// Takes the delivery of a tag out; with `multiple` also all before it, and all at tag 0.
    pub(crate) fn take(
        &mut self,
        tag: u64,
        multiple: bool,
        mut taken: impl FnMut(T),
    ) -> Result<(), UnknownTag> {
        let index = if tag == 0 && multiple {
            self.entries.len()
        } else {
            let index = self.entries.binary_search_by_key(&tag, |(tag, _)| *tag);
            let index = index.map_err(|_| UnknownTag)?;
            let entry = self.entries.get_mut(index).ok_or(UnknownTag)?;
            if entry.1.is_none() {
                return Err(UnknownTag);
            }
            if !multiple {
                entry.1.take().map(&mut taken);
                self.count -= 1;
            }
            index + 1
        };
        if multiple {
            for delivery in self.entries.drain(..index).filter_map(|(_, delivery)| delivery) {
                taken(delivery);
                self.count -= 1;
            }
        }
        while self
            .entries
            .front()
            .is_some_and(|(_, delivery)| delivery.is_none())
        {
            self.entries.pop_front();
        }
        if self.entries.is_empty() && self.entries.capacity() > 64 {
            self.entries = VecDeque::new();
        }
        Ok(())
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.count = 0;
        std::mem::take(&mut self.entries)
            .into_iter()
            .filter_map(|(_, delivery)| delivery)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tags: std::ops::RangeInclusive<u64>) -> Unacked<u64> {
        let mut unacked = Unacked::default();
        for tag in tags {
            unacked.push(tag, tag * 10);
        }
        unacked
    }

    fn take(unacked: &mut Unacked<u64>, tag: u64, multiple: bool) -> Result<Vec<u64>, UnknownTag> {
        let mut taken = Vec::new();
        unacked.take(tag, multiple, |delivery| taken.push(delivery))?;
        Ok(taken)
    }

    #[test]
    fn one_is_taken_once() {
        let mut unacked = of(1..=4);
        assert_eq!(take(&mut unacked, 2, false), Ok(vec![20]));
        assert_eq!(take(&mut unacked, 2, false), Err(UnknownTag));
        assert_eq!(take(&mut unacked, 2, true), Err(UnknownTag));
        assert_eq!(take(&mut unacked, 9, false), Err(UnknownTag));
        assert_eq!(take(&mut unacked, 0, false), Err(UnknownTag));
        assert_eq!(unacked.len(), 3);
    }

    #[test]
    fn multiple_takes_all_up_to_the_tag_and_zero_all_there_are() {
        let mut unacked = of(1..=6);
        assert_eq!(take(&mut unacked, 2, false), Ok(vec![20]));
        assert_eq!(take(&mut unacked, 4, true), Ok(vec![10, 30, 40]));
        assert_eq!(take(&mut unacked, 0, true), Ok(vec![50, 60]));
        assert_eq!(
            take(&mut unacked, 0, true),
            Ok(vec![]),
            "zero of nothing is no mistake"
        );
        assert_eq!(unacked.len(), 0);
    }

    #[test]
    fn what_would_be_taken_is_told_without_taking_it() {
        let mut unacked = of(1..=5);
        take(&mut unacked, 3, false).unwrap();
        assert_eq!(unacked.tags(4, true), Ok(vec![1, 2, 4]));
        assert_eq!(unacked.tags(4, false), Ok(vec![4]));
        assert_eq!(unacked.tags(0, true), Ok(vec![1, 2, 4, 5]));
        for (tag, multiple) in [(3, false), (3, true), (9, true), (0, false)] {
            assert_eq!(unacked.tags(tag, multiple), Err(UnknownTag));
        }
        assert_eq!(unacked.len(), 4);
    }

    #[test]
    fn what_is_left_comes_out_in_order() {
        let mut unacked = of(1..=5);
        take(&mut unacked, 3, false).unwrap();
        assert_eq!(unacked.take_all(), [10, 20, 40, 50]);
        assert_eq!(unacked.len(), 0);
    }
}
