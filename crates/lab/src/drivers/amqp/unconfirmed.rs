//! Messages that were published and not confirmed, in the order of their numbers.
//!
//! Confirms come for one or for all up to one, and those for one in any order (RabbitMQ, publisher confirms).

use std::collections::VecDeque;

use crate::workload::Message;
use crate::workload::recorder::Parcel;

/// Messages that wait for a confirm. A confirm of several costs time by their number; nothing is searched.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    /// The number of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    message: Message,
    is_answered: bool,
}

impl Unconfirmed {
    pub(super) fn new() -> Self {
        Self {
            first: 1,
            slots: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Of all messages that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline]
    pub(super) fn push(&mut self, message: &Message) {
        self.bytes += u64::from(message.size);
        self.slots.push_back(Slot {
            message: *message,
            is_answered: false,
        });
    }

    /// Takes a confirm of a number, or of all up to it: moves the messages into `parcel`.
    pub(super) fn settle(&mut self, number: u64, multiple: bool, parcel: &mut Parcel) {
        if multiple {
            // Number 0 means all of them.
            while number == 0 || self.first <= number {
                if !self.take_first(parcel) {
                    return;
                }
            }
        } else {
            let place = number.checked_sub(self.first);
            let place = place.and_then(|place| usize::try_from(place).ok());
            let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) else {
                return;
            };
            if !slot.is_answered {
                slot.is_answered = true;
                self.bytes -= u64::from(slot.message.size);
                parcel.push(&slot.message);
            }
        }
        while self.slots.front().is_some_and(|slot| slot.is_answered) {
            self.take_first(parcel);
        }
    }

    /// All that have no answer.
    pub(super) fn drain(&mut self) -> Parcel {
        let mut parcel = Parcel::default();
        while self.take_first(&mut parcel) {}
        parcel
    }

    #[inline]
    fn take_first(&mut self, parcel: &mut Parcel) -> bool {
        let Some(slot) = self.slots.pop_front() else {
            return false;
        };
        self.first += 1;
        if !slot.is_answered {
            self.bytes -= u64::from(slot.message.size);
            parcel.push(&slot.message);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(count: u64) -> Unconfirmed {
        let mut unconfirmed = Unconfirmed::new();
        for sequence in 0..count {
            unconfirmed.push(&Message {
                sequence,
                size: 10,
                ..Message::default()
            });
        }
        unconfirmed
    }

    fn settled(unconfirmed: &mut Unconfirmed, number: u64, multiple: bool) -> u64 {
        let mut parcel = Parcel::default();
        unconfirmed.settle(number, multiple, &mut parcel);
        parcel.messages
    }

    #[test]
    fn every_message_is_answered_once_in_whatever_order_answers_come() {
        let mut unconfirmed = with(10);
        assert_eq!(settled(&mut unconfirmed, 3, false), 1);
        assert_eq!(settled(&mut unconfirmed, 3, false), 0, "again");
        assert_eq!(settled(&mut unconfirmed, 5, true), 4, "1, 2, 4 and 5");
        assert_eq!(settled(&mut unconfirmed, 2, false), 0, "long ago");
        assert_eq!(settled(&mut unconfirmed, 99, false), 0, "never published");
        assert_eq!(unconfirmed.bytes(), 50);
        assert_eq!(settled(&mut unconfirmed, 7, false), 1);
        assert_eq!(settled(&mut unconfirmed, 6, false), 1);
        assert_eq!(settled(&mut unconfirmed, 0, true), 3);
        assert!(unconfirmed.is_empty());
        assert_eq!(unconfirmed.bytes(), 0);
    }

    #[test]
    fn nothing_waits_once_an_answer_for_the_first_ones_meets_those_that_were_answered_before() {
        let mut unconfirmed = with(5);
        for number in 3..=5 {
            assert_eq!(settled(&mut unconfirmed, number, false), 1);
        }
        assert_eq!(settled(&mut unconfirmed, 2, true), 2);
        assert!(unconfirmed.is_empty());
    }

    #[test]
    fn numbers_go_on_after_all_were_answered() {
        let mut unconfirmed = with(2);
        assert_eq!(settled(&mut unconfirmed, 2, true), 2);
        unconfirmed.push(&Message::default());
        assert_eq!(settled(&mut unconfirmed, 2, false), 0);
        assert_eq!(settled(&mut unconfirmed, 3, false), 1);
        assert_eq!(with(4).drain().messages, 4);
    }
}
