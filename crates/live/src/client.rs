//! Client of a connection, for the registry of connections.

use std::sync::Arc;

use stafett_live_topics::ClientName;
use stafett_net::{Client, ClientWords, ConnectionEntry};

/// The first of the clients that listen on a connection.
#[derive(Debug)]
struct LiveClient(Option<ClientName>);

impl Client for LiveClient {
    fn words(&self) -> ClientWords {
        ClientWords {
            protocol: "WebSocket",
            name: self.0.as_ref().map(|name| match name {
                ClientName::Number(number) => number.to_string(),
                ClientName::Text(text) => text.to_string(),
            }),
            ..ClientWords::default()
        }
    }
}

/// Adds a client to the entry of its connection.
pub(crate) fn introduce(entry: &ConnectionEntry, name: Option<&ClientName>) {
    entry.introduce(Arc::new(LiveClient(name.cloned())));
}
