//! Client of a connection, for the registry of connections: the software that its first request names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderMap, header};
use stafett_net::{Client, ClientWords, ConnectionEntry};

/// Bytes that are kept of a text.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Debug)]
struct HttpClient {
    agent: Option<Box<str>>,
}

impl Client for HttpClient {
    fn words(&self) -> ClientWords {
        let agent = self.agent.as_deref().unwrap_or_default();
        let first = agent.split(' ').next().unwrap_or_default();
        let (product, version) = first.split_once('/').unwrap_or((first, ""));
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let properties = self.agent.iter();
        ClientWords {
            protocol: "HTTP",
            product: text(product),
            version: text(version),
            properties: properties
                .map(|agent| ("user-agent".to_owned(), agent.to_string()))
                .collect(),
            ..ClientWords::default()
        }
    }
}

/// Introduces the client of a connection by its first request.
#[derive(Debug, Default)]
pub(crate) struct Introduction(AtomicBool);

impl Introduction {
    pub(crate) fn introduce(&self, entry: &ConnectionEntry, headers: &HeaderMap) {
        if self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let agent = headers.get(header::USER_AGENT);
        let agent = agent.map(|agent| {
            let text = String::from_utf8_lossy(agent.as_bytes());
            text.get(..text.floor_char_boundary(TEXT_BYTES_MAX))
                .unwrap_or_default()
                .into()
        });
        entry.introduce(Arc::new(HttpClient { agent }));
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_request_names_the_software() {
        let entry = ConnectionEntry::of(1, Arc::default());
        let introduction = Introduction::default();
        for agent in [&b"curl/8.5.0 (x; \xff)"[..], b"other/1"] {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, HeaderValue::from_bytes(agent).unwrap());
            introduction.introduce(&entry, &headers);
        }
        let words = entry.client().unwrap().words();
        assert_eq!(
            (words.product.as_deref(), words.version.as_deref()),
            (Some("curl"), Some("8.5.0"))
        );
        let agent = words.properties.first().map(|(_, agent)| agent.as_str());
        assert_eq!(agent, Some("curl/8.5.0 (x; \u{fffd})"));
    }
}
