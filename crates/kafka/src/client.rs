//! Client of a connection, for the registry of connections: its id, and its software.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_net::{Client, ClientWords};

use crate::context::RequestContext;

/// Bytes that are kept of each text.
const TEXT_BYTES_MAX: usize = 1024;

/// A client. Its texts lie in one, as idle connections are many.
#[derive(Debug)]
struct KafkaClient {
    /// Id, name of the software and its version.
    texts: Box<str>,
    /// Ends of the first two.
    ends: (u16, u16),
}

impl KafkaClient {
    fn new(id: Option<&str>, software: (&str, &str)) -> Self {
        let mut texts = String::new();
        let mut add = |text: &str| {
            texts.push_str(
                text.get(..text.floor_char_boundary(TEXT_BYTES_MAX))
                    .unwrap_or_default(),
            );
            u16::try_from(texts.len()).unwrap_or(u16::MAX)
        };
        let ends = (add(id.unwrap_or_default()), add(software.0));
        add(software.1);
        Self {
            texts: texts.into(),
            ends,
        }
    }
}

impl Client for KafkaClient {
    fn words(&self) -> ClientWords {
        let (id, software) = (usize::from(self.ends.0), usize::from(self.ends.1));
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        ClientWords {
            protocol: "Kafka",
            name: text(self.texts.get(..id)),
            product: text(self.texts.get(id..software)),
            version: text(self.texts.get(software..)),
            ..ClientWords::default()
        }
    }
}

impl RequestContext {
    /// Adds the client to the registry of connections, with the software that it named.
    pub(crate) fn introduce(&self, id: Option<&str>, software: (&str, &str)) {
        self.is_introduced.store(true, Ordering::Relaxed);
        self.entry.introduce(Arc::new(KafkaClient::new(id, software)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_as_they_were_given_and_long_ones_are_cut() {
        let words = KafkaClient::new(Some("biλling"), ("librdkafka", "2.3")).words();
        let shown = (
            words.name.as_deref(),
            words.product.as_deref(),
            words.version.as_deref(),
        );
        assert_eq!(shown, (Some("biλling"), Some("librdkafka"), Some("2.3")));
        let words = KafkaClient::new(None, ("", "")).words();
        assert_eq!((words.name, words.product, words.version), (None, None, None));
        let long = "λ".repeat(40_000);
        let words = KafkaClient::new(Some(&long), (&long, &long)).words();
        for text in [words.name, words.product, words.version] {
            assert_eq!(text.unwrap().len(), TEXT_BYTES_MAX);
        }
    }
}
