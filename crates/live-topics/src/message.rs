//! Messages, and their encoding for receivers.

use bytes::Bytes;

/// The content of a message, opaque to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// JSON text, as sent by the publisher.
    Json(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A message to be delivered to subscribers.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub topic: &'a str,
    pub payload: Payload<'a>,
    /// Timestamp given by the publisher, in ms since 1970.
    pub timestamp: Option<i64>,
    /// Id given by the publisher, for the duplicate filter.
    pub id: Option<&'a str>,
    /// Offset in the log behind the topic, if any.
    pub offset: Option<u64>,
}

/// Bound on the number of formats.
pub(crate) const FORMATS: usize = 4;

/// Encoding of messages by a front end. A message is encoded once in each format that a receiver needs, and
/// shared.
pub trait Format: Send + Sync + std::fmt::Debug {
    /// Returns the number of the format: less than 4, unique.
    fn number(&self) -> usize;

    fn encode(&self, message: &Message<'_>) -> Bytes;
}

/// A message, with its encoded forms so far.
pub(crate) struct Encoded<'a> {
    message: Message<'a>,
    forms: [Option<Bytes>; FORMATS],
}

impl<'a> Encoded<'a> {
    pub(crate) fn new(message: Message<'a>) -> Self {
        Self {
            message,
            forms: [const { None }; FORMATS],
        }
    }

    pub(crate) fn form(&mut self, format: &dyn Format) -> Bytes {
        match self.forms.get_mut(format.number()) {
            Some(slot) => slot.get_or_insert_with(|| format.encode(&self.message)).clone(),
            None => format.encode(&self.message),
        }
    }
}
