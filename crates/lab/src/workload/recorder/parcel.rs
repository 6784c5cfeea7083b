//! Messages on their way to a driver, and those that it has taken over together.

use super::super::message::Message;
use super::Reports;

/// Messages that a driver takes over one by one. Those that it has not taken when this is dropped have
/// failed, so that none is forgotten.
#[derive(Debug)]
pub struct Handover<'a> {
    pub(super) reports: Reports,
    left: &'a [Message],
    pub(super) reason: Option<String>,
}

impl<'a> Handover<'a> {
    pub fn new(reports: &Reports, messages: &'a [Message]) -> Self {
        Self {
            reports: reports.clone(),
            left: messages,
            reason: None,
        }
    }

    /// Returns the next message.
    pub fn turn(&self) -> Option<&'a Message> {
        self.left.first()
    }

    /// Hands `count` messages to the driver.
    pub fn taken(&mut self, count: usize) {
        self.left = self.left.get(count..).unwrap_or_default();
    }

    /// Sets the reason why no more are taken.
    pub fn failed(&mut self, error: &impl std::fmt::Display) {
        self.reason = Some(error.to_string());
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        if !self.left.is_empty() {
            let reason = self.reason.as_deref().unwrap_or("nothing was taken any more");
            let parcel: Parcel = self.left.iter().collect();
            self.reports.given_up(&parcel, reason);
        }
    }
}

/// The messages of a batch, as runs.
#[derive(Debug, Default, Clone)]
pub struct Parcel {
    /// Intended moments, and how many messages have each.
    pub(super) moments: Vec<(u64, u64)>,
    /// Streams, and where in them a run begins and how long it is.
    pub(super) runs: Vec<(u32, u64, u64)>,
    pub messages: u64,
    pub bytes: u64,
}

impl Parcel {
    #[inline]
    pub fn push(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes += u64::from(message.size);
        match self.moments.last_mut() {
            Some((intended, count)) if *intended == message.intended => *count += 1,
            _ => self.moments.push((message.intended, 1)),
        }
        match self.runs.last_mut() {
            Some((stream, first, count))
                if *stream == message.stream && *first + *count == message.sequence =>
            {
                *count += 1;
            }
            _ => self.runs.push((message.stream, message.sequence, 1)),
        }
    }
}

impl<'a> FromIterator<&'a Message> for Parcel {
    fn from_iter<I: IntoIterator<Item = &'a Message>>(messages: I) -> Self {
        let mut parcel = Self::default();
        for message in messages {
            parcel.push(message);
        }
        parcel
    }
}
