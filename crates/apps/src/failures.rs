//! Failures of a task by their places. As a rule an input has one; slices that were joined bring their own.

use std::collections::BTreeMap;

use crate::failure::{FailedTimer, Failure, TIMER};

/// Place of a failure: the input, or [`TIMER`], and a number among those of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FailurePlace {
    pub(crate) input: u8,
    pub(crate) number: u16,
}

impl FailurePlace {
    pub(crate) fn first(input: u8) -> Self {
        Self { input, number: 0 }
    }

    /// Returns the key of the failure's record.
    pub(crate) fn key(self) -> Vec<u8> {
        let mut key = vec![b'f', self.input];
        if self.number > 0 {
            key.extend_from_slice(&self.number.to_le_bytes());
        }
        key
    }
}

/// Failures of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failures(BTreeMap<FailurePlace, Failure>);

impl Failures {
    pub(crate) fn set(&mut self, place: FailurePlace, failure: Option<Failure>) {
        match failure {
            Some(failure) => drop(self.0.insert(place, failure)),
            None => drop(self.0.remove(&place)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FailurePlace, &Failure)> {
        self.0.iter().map(|(place, failure)| (*place, failure))
    }

    /// Returns the failures of an input.
    pub(crate) fn of_input(&self, input: u8) -> impl Iterator<Item = (FailurePlace, &Failure)> {
        self.iter().filter(move |(place, _)| place.input == input)
    }

    /// Returns the failures of timers.
    pub(crate) fn of_timers(&self) -> impl Iterator<Item = (&FailedTimer, &Failure)> {
        let timers = self.of_input(TIMER);
        timers.filter_map(|(_, failure)| Some((failure.timer.as_ref()?, failure)))
    }

    /// Returns the failure of a record.
    pub(crate) fn of_record(&self, input: u8, offset: u64) -> Option<(FailurePlace, &Failure)> {
        let mut failures = self.of_input(input);
        failures.find(|(_, failure)| failure.offset == offset && failure.attempts > 0)
    }

    /// Returns the failure of a timer.
    pub(crate) fn of_timer(&self, key: &[u8], name: &[u8]) -> Option<(FailurePlace, &Failure)> {
        let is_it = |timer: &FailedTimer| timer.key == key && timer.name == name;
        let mut timers = self.of_input(TIMER);
        timers.find(|(_, failure)| failure.timer.as_ref().is_some_and(is_it))
    }

    /// Returns a place for another failure, and the offset before which records of the input are delivered
    /// alone. The rest of an earlier failure gives way.
    pub(crate) fn place_for_other(&self, input: u8) -> (FailurePlace, u64) {
        let mut rests = self.of_input(input).filter(|(_, failure)| failure.attempts == 0);
        if let Some((place, rest)) = rests.next() {
            return (place, rest.alone_before);
        }
        let is_free = |number: &u16| {
            let number = *number;
            !self.0.contains_key(&FailurePlace { input, number })
        };
        // A task has no more slices than numbers.
        let number = (0..=u16::MAX).find(is_free).unwrap_or(u16::MAX);
        (FailurePlace { input, number }, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64, attempts: u32) -> Failure {
        Failure {
            offset,
            attempts,
            ..Failure::default()
        }
    }

    #[test]
    fn a_failure_has_a_place_of_its_own_and_a_rest_gives_way() {
        let mut failures = Failures::default();
        let first = FailurePlace::first(3);
        assert_eq!(failures.place_for_other(3), (first, 0));
        failures.set(first, Some(at(7, 1)));
        let (second, _) = failures.place_for_other(3);
        assert_eq!((second.number, second.key()), (1, vec![b'f', 3, 1, 0]));
        failures.set(second, Some(at(9, 2)));
        assert_eq!(failures.of_record(3, 9), Some((second, &at(9, 2))));
        assert_eq!(failures.of_record(4, 9), None);
        let rest = Failure {
            alone_before: 20,
            ..at(8, 0)
        };
        failures.set(first, Some(rest));
        assert_eq!(failures.of_record(3, 8), None, "a rest is no failure");
        assert_eq!(failures.place_for_other(3), (first, 20));
        failures.set(first, None);
        assert_eq!(failures.of_input(3).count(), 1);
    }
}
