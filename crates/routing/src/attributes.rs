//! Headers and properties of messages, for exchanges that route by them.
//!
//! A front end keeps its own form of headers and properties in a record header of the message, and gives
//! the broker a reader for it. So dead letters and messages delayed over a restart are routed like new
//! ones.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_model::Message;

use crate::{HeaderValue, Property};

/// Reader of the headers and properties that a front end keeps in its messages.
pub trait ReadAttributes: Send + Sync + fmt::Debug {
    /// Returns the name of the record header in which they are kept.
    fn header(&self) -> &'static str;

    /// Visits the message's headers, each name once.
    fn headers(&self, kept: &[u8], visit: &mut dyn FnMut(&[u8], HeaderValue));

    fn property(&self, kept: &[u8], property: Property) -> Option<Bytes>;

    /// Returns the further routing keys of a message that is routed again.
    fn more_keys(&self, kept: &[u8]) -> Vec<ByteString>;
}

/// Readers of all front ends.
#[derive(Debug, Clone, Default)]
pub struct AttributeReaders(Arc<[Arc<dyn ReadAttributes>]>);

impl AttributeReaders {
    pub fn new(readers: &[Arc<dyn ReadAttributes>]) -> Self {
        Self(readers.into())
    }

    /// Returns the reader of a message, and the contents of its record header.
    pub fn of<'a>(&'a self, message: &'a Message) -> Option<(&'a dyn ReadAttributes, &'a [u8])> {
        self.0.iter().find_map(|reader| {
            let mut headers = message.headers.iter();
            let kept = headers.find(|(name, _)| *name == *reader.header())?;
            Some((&**reader, kept.1.as_deref()?))
        })
    }

    pub fn more_keys(&self, message: &Message) -> Vec<ByteString> {
        self.of(message)
            .map(|(reader, kept)| reader.more_keys(kept))
            .unwrap_or_default()
    }
}
