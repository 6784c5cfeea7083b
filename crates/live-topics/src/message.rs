//! What is published, and how it is made ready for those who get it.

use bytes::Bytes;

/// The content of a message, opaque to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A JSON value, as its publisher wrote it.
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

/// A message on its way to subscribers.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub topic: &'a str,
    pub payload: Payload<'a>,
    /// Milliseconds since 1970, as its publisher said.
    pub timestamp: Option<i64>,
    /// What its publisher calls it; the duplicate filter may go by it.
    pub id: Option<&'a str>,
    /// Its place in the log behind the topic, if there is one.
    pub offset: Option<u64>,
}

/// Formats that there may be.
pub(crate) const FORMATS: usize = 4;

/// How a front end writes messages. A message is written once in each format that some receiver wants, and
/// shared.
pub trait Format: Send + Sync + std::fmt::Debug {
    /// Tells formats apart: less than 4, another one for each.
    fn number(&self) -> usize;

    fn encode(&self, message: &Message<'_>) -> Bytes;
}

/// A message in the formats that were wanted so far.
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
