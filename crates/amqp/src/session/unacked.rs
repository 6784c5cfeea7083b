//! Deliveries of a channel that the client has not settled yet, by delivery tag.
//!
//! Tags only rise, so the list is sorted: one tag is found by binary search, many are taken from the front.

use std::collections::VecDeque;

/// Deliveries in the order of their tags.
#[derive(Debug)]
pub(crate) struct Unacked<T> {
    /// A delivery settled out of order leaves a gap until all deliveries before it are settled.
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

/// No unsettled delivery has the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownTag;

impl<T> Unacked<T> {
    /// Adds a delivery. Its tag must be higher than all tags before.
    pub(crate) fn push(&mut self, tag: u64, delivery: T) {
        self.entries.push_back((tag, Some(delivery)));
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, delivery)| delivery.as_ref())
    }

    /// Removes the delivery with a tag. With `multiple`, also removes all before it; tag 0 then means all.
    pub(crate) fn take(
        &mut self,
        tag: u64,
        multiple: bool,
        mut taken: impl FnMut(u64, T),
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
            if !multiple && let Some(delivery) = entry.1.take() {
                taken(tag, delivery);
                self.count -= 1;
            }
            index + 1
        };
        if multiple {
            for (tag, delivery) in self.entries.drain(..index) {
                if let Some(delivery) = delivery {
                    taken(tag, delivery);
                    self.count -= 1;
                }
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

    /// Puts removed deliveries back.
    pub(crate) fn put_back(&mut self, deliveries: impl IntoIterator<Item = (u64, T)>) {
        let kept = std::mem::take(&mut self.entries).into_iter();
        let back = deliveries
            .into_iter()
            .map(|(tag, delivery)| (tag, Some(delivery)));
        let mut all: Vec<_> = kept
            .filter(|(_, delivery)| delivery.is_some())
            .chain(back)
            .collect();
        all.sort_unstable_by_key(|(tag, _)| *tag);
        self.count = all.len();
        self.entries = all.into();
    }

    /// Removes and returns all deliveries.
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
        unacked.take(tag, multiple, |_, delivery| taken.push(delivery))?;
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
    fn deliveries_that_are_put_back_are_at_their_tags() {
        let mut unacked = of(1..=5);
        let mut taken = Vec::new();
        unacked
            .take(4, false, |tag, delivery| taken.push((tag, delivery)))
            .unwrap();
        unacked
            .take(2, true, |tag, delivery| taken.push((tag, delivery)))
            .unwrap();
        assert_eq!(taken, [(4, 40), (1, 10), (2, 20)]);
        unacked.put_back(taken);
        assert_eq!(unacked.len(), 5);
        assert_eq!(take(&mut unacked, 4, false), Ok(vec![40]));
        assert_eq!(take(&mut unacked, 0, true), Ok(vec![10, 20, 30, 50]));
    }

    #[test]
    fn what_is_left_comes_out_in_order() {
        let mut unacked = of(1..=5);
        take(&mut unacked, 3, false).unwrap();
        assert_eq!(unacked.take_all(), [10, 20, 40, 50]);
        assert_eq!(unacked.len(), 0);
    }
}
