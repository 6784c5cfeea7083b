//! The place of a client in the log behind live topics: it leaves or is cut off, resumes, and misses nothing.

use std::collections::BTreeSet;

use serde_json::json;

use super::messages::Messages;
use super::{Asked, Client, KEPT, Known, RESUMER, pattern_of};
use crate::server::Server;
use crate::world::{Death, Finding, World};

/// Number of missed messages with which the client also subscribes to a pattern when it resumes.
const BY_PATTERN: u8 = 5;

/// Messages that a client with a place received, by topic and number.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    got: BTreeSet<(u8, u64)>,
    /// Messages that its present connection received.
    now: BTreeSet<(u8, u64)>,
    /// Messages up to this number may be lost: they were on their way to a connection that broke.
    lost_up_to: u64,
    /// True once it has a place in all topics.
    has_begun: bool,
    /// True if it had everything when it left, so that nothing comes again.
    is_clean: bool,
    /// True if it may get a message twice on its connection: it has begun again.
    may_repeat: bool,
}

impl Place {
    /// Checks a message.
    pub(super) fn take(&mut self, topic: u8, number: u64) -> Result<(), Finding> {
        let id = (topic, number);
        if !self.now.insert(id) && !self.may_repeat {
            return Err(Finding(format!("live message {id:?} came twice on a connection")));
        }
        if !self.got.insert(id) && self.is_clean {
            return Err(Finding(format!("live message {id:?} came again, after a leave")));
        }
        Ok(())
    }

    /// Handles the answer to its leave. On a full disk its place may not be stored, so that something comes
    /// again.
    pub(super) fn on_leave(&mut self, may_refuse: bool) {
        self.now.clear();
        self.is_clean &= !may_refuse;
    }

    /// Handles the end of its connection. `is_lossy` if it may not have read everything that was written to
    /// it.
    pub(super) fn on_end(&mut self, is_lossy: bool, messages: &Messages) {
        self.now.clear();
        self.is_clean = false;
        if is_lossy {
            self.lost_up_to = messages.last();
        }
    }

    /// Returns the first message that it has not received.
    fn owed(&self, messages: &Messages) -> Option<(u8, u64)> {
        let mut stored = messages.stored().filter(|(_, number)| *number > self.lost_up_to);
        stored.find(|id| !self.got.contains(id))
    }
}

impl Client {
    /// Resumes after a start, if it has a place.
    pub(super) fn resume_again(&mut self) {
        if self.place.has_begun {
            self.resume(false);
        }
    }

    /// Listens and asks for the missed messages, or for all if it has no place yet. `by_pattern`: it also
    /// subscribes to a pattern that brings the same topics.
    fn resume(&mut self, by_pattern: bool) {
        self.listen();
        let pattern = pattern_of(KEPT[0]);
        if by_pattern {
            self.subscribe(pattern, true, None);
        }
        let has_begun = self.place.has_begun;
        let mut known = KEPT.iter().chain([&pattern]);
        self.place.may_repeat = !has_begun && known.any(|topic| self.knows(*topic) != Known::No);
        for topic in KEPT {
            self.subscribe(topic, true, Some(if has_begun { "resume" } else { "earliest" }));
        }
    }

    /// True if it has all answers, and its place in all topics.
    fn is_placed(&self) -> bool {
        let is_known = |topic: &u8| self.knows(*topic) == Known::Yes;
        self.listens && self.waiting.is_empty() && KEPT.iter().all(is_known)
    }

    /// Returns a message that its place owes it.
    pub(super) fn owed(&self, messages: &Messages) -> Option<(u8, u64)> {
        let is_owed = self.number == RESUMER && self.is_placed();
        is_owed.then(|| self.place.owed(messages)).flatten()
    }

    /// Records that it has a place, once it has its answers.
    pub(super) fn look_at_place(&mut self) {
        self.place.has_begun |= self.number == RESUMER && self.is_placed();
    }
}

impl World {
    /// The client with a place connects and resumes, or leaves and closes its connection. It then misses
    /// messages.
    pub(super) fn resume_or_leave(&mut self, server: &mut Server, missed: u8) -> Result<(), Finding> {
        let messages = self.live.messages.clone();
        let client = self.live.client(RESUMER)?;
        if !client.listens && client.waiting.is_empty() {
            client.connect(server)?;
            client.resume(missed == BY_PATTERN);
        } else if client.is_placed() {
            client.place.is_clean = client.owed(&messages).is_none();
            client.ask("leave", json!({}), Asked::Leave);
            for (topic, count) in KEPT.into_iter().zip([missed.div_ceil(2), missed / 2]) {
                self.publish_live(server, topic, count)?;
            }
        }
        Ok(())
    }
}

/// True if a client may not have read everything before the program ended: a stop that did not come to its
/// end has stored its place.
pub(super) fn is_lossy(died: Option<Death>, was_stopping: bool) -> bool {
    was_stopping && died != Some(Death::Stopped)
}
