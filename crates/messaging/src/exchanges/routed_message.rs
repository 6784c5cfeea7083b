//! A message as exchanges see it.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_model::Message;
use stafett_routing::{AttributeReaders, Content, Filter, FilterWork, HeaderValue, MessageView, Property};

use super::metrics::ExchangeMetrics;

/// A message as seen by exchanges.
#[derive(Debug)]
pub(crate) struct RoutedMessage<'a> {
    pub(crate) key: &'a str,
    pub(crate) more_keys: &'a [ByteString],
    pub(crate) message: &'a Message,
    pub(crate) facts: &'a AttributeReaders,
    /// True if the message still has to wait at a delaying exchange.
    pub(crate) delayed: bool,
    pub(crate) metrics: &'a ExchangeMetrics,
}

impl MessageView for RoutedMessage<'_> {
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn more_keys(&self) -> &[ByteString] {
        self.more_keys
    }

    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        self.content().headers(visit);
    }

    fn property(&self, property: Property) -> Option<Bytes> {
        let (reader, kept) = self.facts.of(self.message)?;
        reader.property(kept, property)
    }

    fn admits(&self, filter: &Filter, work: &mut FilterWork) -> bool {
        let verdict = filter.is_true(&self.content(), work);
        if verdict.is_err() {
            self.metrics.filter_errors.inc();
        }
        verdict.unwrap_or(false)
    }

    fn is_delayed(&self) -> bool {
        self.delayed
    }
}

impl RoutedMessage<'_> {
    fn content(&self) -> Content<'_> {
        Content {
            key: self.key,
            message: self.message,
            readers: self.facts,
        }
    }
}
