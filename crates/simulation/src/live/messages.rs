//! Messages published to live topics, and their stored offsets.

use std::collections::{BTreeMap, BTreeSet};

use super::KEPT;
use crate::world::Finding;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not answered.
    Unknown,
    Acknowledged,
    Never,
}

/// All messages, by topic and number.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages {
    last: u64,
    all: BTreeMap<(u8, u64), State>,
    offsets: BTreeMap<u64, (u8, u64)>,
    places: BTreeMap<(u8, u64), u64>,
    /// Messages that a reader from the beginning has not received yet.
    unread: BTreeSet<(u8, u64)>,
    /// Messages that this reader received.
    read: BTreeSet<(u8, u64)>,
}

impl Messages {
    pub(super) fn send(&mut self, topic: u8) -> u64 {
        self.last += 1;
        self.all.insert((topic, self.last), State::Unknown);
        self.last
    }

    /// Returns the number of the last message.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the messages that are stored for certain.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u8, u64)> {
        let stored = self
            .all
            .iter()
            .filter(|((topic, _), state)| KEPT.contains(topic) && **state == State::Acknowledged);
        stored.map(|(id, _)| *id)
    }

    pub(super) fn acknowledge(&mut self, topic: u8, number: u64) {
        self.all.insert((topic, number), State::Acknowledged);
    }

    pub(super) fn refuse(&mut self, topic: u8, number: u64) {
        self.all.insert((topic, number), State::Never);
    }

    /// Returns the lowest offset of a stored message of a topic, as far as it is known.
    pub(super) fn first(&self, topic: u8) -> Option<u64> {
        let is_stored = |number| self.is_acknowledged(topic, number);
        let places = self.places.range((topic, 0)..=(topic, u64::MAX));
        let stored = places.filter(|((_, number), _)| is_stored(*number));
        stored.map(|(_, offset)| *offset).min()
    }

    pub(super) fn is_acknowledged(&self, topic: u8, number: u64) -> bool {
        self.all.get(&(topic, number)) == Some(&State::Acknowledged)
    }

    /// Checks a message that a client received.
    pub(super) fn see(&mut self, topic: u8, number: u64) -> Result<(), Finding> {
        match self.all.get(&(topic, number)) {
            None => Err(Finding(format!("live message {number} is not of {topic}"))),
            Some(State::Never) => Err(Finding(format!("live message {number} was refused and came"))),
            Some(State::Unknown | State::Acknowledged) => Ok(()),
        }
    }

    /// Checks a message that a client received with an offset. It must stay at that offset.
    pub(super) fn see_at(&mut self, topic: u8, number: u64, offset: u64) -> Result<(), Finding> {
        self.see(topic, number)?;
        let id = (topic, number);
        let before = self.offsets.insert(offset, id);
        let place = self.places.insert(id, offset);
        if before.is_some_and(|before| before != id) || place.is_some_and(|place| place != offset) {
            return Err(Finding(format!(
                "live message {id:?} is at {offset}, where {before:?} was; it was at {place:?}"
            )));
        }
        self.all.insert(id, State::Acknowledged);
        self.unread.remove(&id);
        self.read.insert(id);
        Ok(())
    }

    /// Starts a read from the beginning.
    pub(super) fn begin_reading(&mut self) {
        self.read.clear();
        self.unread = self.stored().collect();
    }

    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn missing(&self) -> &BTreeSet<(u8, u64)> {
        &self.unread
    }

    /// Marks messages that were neither answered nor read as never stored.
    pub(super) fn end_reading(&mut self) {
        for (id, state) in &mut self.all {
            if *state == State::Unknown && !self.read.contains(id) {
                *state = State::Never;
            }
        }
    }
}
