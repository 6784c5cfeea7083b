//! Filter of a reader, by a header of messages.

use bytes::Bytes;
use stafett_model::StoredMessage;

/// Filter for messages with one of several values in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFilter {
    header: &'static str,
    /// Accepted values, sorted.
    values: Vec<Bytes>,
    /// True if messages without the header, or without a value in it, are accepted too.
    also_without: bool,
}

impl HeaderFilter {
    pub fn new(header: &'static str, values: impl IntoIterator<Item = Bytes>, also_without: bool) -> Self {
        let mut values: Vec<Bytes> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self {
            header,
            values,
            also_without,
        }
    }

    pub(super) fn has(&self, message: &StoredMessage) -> bool {
        match message.header(self.header.as_bytes()).flatten() {
            Some(value) => self.values.binary_search_by(|known| (**known).cmp(value)).is_ok(),
            None => self.also_without,
        }
    }
}
