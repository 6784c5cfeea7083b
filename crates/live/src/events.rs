//! Server-sent events: a client's messages as a text stream for a browser's `EventSource`.
//!
//! `GET /live/events?client_id=ID&topic=NAME&topic=NAME&pattern=TEXT` subscribes to the given topics and
//! patterns, stored like any subscription, and listens until the connection ends. The id is a text, or a
//! number if it looks like one and is not in quotes. With `from`, topics that have a log begin there: a
//! browser that reconnects repeats the request, and `resume` delivers the messages it has missed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use serde_json::Value;
use stafett_live_topics::{
    ClientName, ClientNumber, Format, Live, Message, NameList, Outbox, OutboxDrain, Pattern, StartFrom,
    SubscriptionChange, SubscriptionEdit,
};
use tokio::time::timeout;

use crate::command::{self, pattern_fault};
use crate::connection::Ending;
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::router::{allow, not_ready, refused_origin, status_of};
use crate::{json, origin, query};

/// Silence after which a comment is sent, so that proxies keep the connection open.
const COMMENT_AFTER: Duration = Duration::from_secs(15);
const SEND_BYTES: usize = 64 << 10;

/// Encodes a broadcast as the data of an event.
#[derive(Debug)]
pub struct EventFormat;

impl Format for EventFormat {
    fn number(&self) -> usize {
        1
    }

    fn encode(&self, message: &Message<'_>) -> Bytes {
        let mut out = BytesMut::new();
        put_event(None, &json::broadcast(message), &mut out);
        out.freeze()
    }
}

static EVENTS: EventFormat = EventFormat;

/// Appends one event. Each line of a payload with several lines becomes a `data` line.
fn put_event(name: Option<&str>, data: &[u8], out: &mut BytesMut) {
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\n");
    }
    for line in data.split(|byte| *byte == b'\n' || *byte == b'\r') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.extend_from_slice(b"\n");
    }
    out.extend_from_slice(b"\n");
}

/// Parameters of the query.
#[derive(Debug, Default)]
struct Wanted {
    client: Option<ClientName>,
    topics: NameList,
    patterns: Vec<Pattern>,
    from: StartFrom,
}

pub(crate) async fn get(
    State(front): State<LiveFront>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Ok(origin) = origin::check(&headers, &front.settings().origins) else {
        return refused_origin();
    };
    let Some(live) = front.live() else {
        return not_ready();
    };
    let mut response = match open(&front, live, query.as_deref().unwrap_or_default()).await {
        Ok(events) => {
            let told = [
                (header::CONTENT_TYPE, "text/event-stream"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (told, Body::from_stream(events)).into_response()
        }
        Err(fault) => {
            let told = [(header::CONTENT_TYPE, "application/json")];
            (status_of(&fault), told, json::error(None, &fault)).into_response()
        }
    };
    allow(origin, response.headers_mut());
    response
}

async fn open(front: &LiveFront, live: &Arc<Live>, query: &str) -> Result<Events, Fault> {
    let wanted = Wanted::read(query, front.settings().topic_bytes_max)?;
    let client = wanted.client.ok_or(Fault::Missing("client_id"))?;
    let mut changes = Vec::new();
    if !wanted.topics.is_empty() && wanted.from == StartFrom::New {
        changes.push(SubscriptionEdit::Subscribe(wanted.topics.clone()));
    }
    if !wanted.patterns.is_empty() {
        changes.push(SubscriptionEdit::SubscribePatterns(wanted.patterns));
    }
    let changes = changes.into_iter().map(|what| SubscriptionChange {
        client: client.clone(),
        what,
    });
    for result in live.change(changes.collect()).await {
        result?;
    }
    let outbox = Outbox::new(&EVENTS, front.settings().bound(), Arc::clone(live.metrics()));
    let number = live.listen(&client, &outbox)?;
    let listening = Listening {
        live: Arc::clone(live),
        number,
        outbox,
        ending: front.ending(),
        is_first: true,
        is_over: false,
    };
    if !wanted.topics.is_empty() && wanted.from != StartFrom::New {
        live.subscribe_from(client, wanted.topics, wanted.from, &listening.outbox)
            .await?;
    }
    Ok(Events {
        next: Box::pin(listening.next()),
    })
}

impl Wanted {
    fn read(query: &str, topic_bytes_max: usize) -> Result<Self, Fault> {
        let mut wanted = Self::default();
        query::each(query, &["client_id", "topic", "pattern", "from"], |key, value| {
            if value.len() > topic_bytes_max {
                let max = topic_bytes_max;
                return Err(Fault::TooLong { key, max });
            }
            match key {
                "client_id" => wanted.client = Some(command::client_of(&query::number_or_text(value)?)?),
                "from" => wanted.from = command::from_of(&query::number_or_text(value)?)?,
                "topic" => wanted.topics.push(&value),
                _ => wanted
                    .patterns
                    .push(Pattern::parse(&value).map_err(pattern_fault)?),
            }
            Ok(())
        })?;
        Ok(wanted)
    }
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Listening)>> + Send>>;

/// Event stream of one connection.
struct Events {
    next: Next,
}

impl Stream for Events {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.next.as_mut().poll(cx).map(|next| {
            next.map(|(bytes, listening)| {
                self.next = Box::pin(listening.next());
                Ok(bytes)
            })
        })
    }
}

/// A listening client; dropping it ends the listening.
struct Listening {
    live: Arc<Live>,
    number: ClientNumber,
    outbox: Arc<Outbox>,
    ending: Ending,
    is_first: bool,
    is_over: bool,
}

impl Listening {
    /// Returns the next piece of the stream, and the state for the piece after it.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if self.is_over {
            return None;
        }
        if std::mem::take(&mut self.is_first) {
            // Makes the HTTP server send the headers at once.
            return Some((Bytes::from_static(b": listening\n\n"), self));
        }
        let mut out = BytesMut::new();
        let mut sent = OutboxDrain::default();
        loop {
            self.outbox.take(SEND_BYTES, &mut sent);
            // The messages now belong to the HTTP server and cannot be withdrawn.
            self.outbox.on_all_sent();
            if sent.dropped > 0 {
                let more = [("count", Value::from(sent.dropped))];
                put_event(Some("notice"), &json::notice("dropped", &more), &mut out);
            }
            for missed in sent.missed.drain(..) {
                put_event(Some("notice"), &json::missed(&missed), &mut out);
            }
            for message in sent.messages.drain(..) {
                out.extend_from_slice(&message);
            }
            if let Some(client) = sent.taken_over.pop() {
                let more = [("client_id", json::client_id(&client))];
                put_event(Some("notice"), &json::notice("taken_over", &more), &mut out);
                self.is_over = true;
            }
            if !out.is_empty() {
                return Some((out.freeze(), self));
            }
            tokio::select! {
                () = self.ending.drain.cancelled() => return None,
                waited = timeout(COMMENT_AFTER, self.outbox.ready()) => {
                    if waited.is_err() {
                        return Some((Bytes::from_static(b":\n\n"), self));
                    }
                }
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.live.leave(self.number, &self.outbox, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_client_topics_and_patterns() {
        let wanted = Wanted::read("client_id=7&topic=a%20b&topic=c%2Ad&pattern=x*&other=1", 100).unwrap();
        assert_eq!(wanted.client, Some(ClientName::Number(7)));
        assert_eq!(wanted.topics.iter().collect::<Vec<_>>(), ["a b", "c*d"]);
        assert_eq!(wanted.patterns.len(), 1);
        for (query, expected) in [
            ("client_id=%227%22", ClientName::Text("7".into())),
            ("client_id=me", ClientName::Text("me".into())),
        ] {
            assert_eq!(Wanted::read(query, 100).unwrap().client, Some(expected));
        }
        assert_eq!(Wanted::read("from=resume", 100).unwrap().from, StartFrom::Resume);
        assert_eq!(Wanted::read("from=17", 100).unwrap().from, StartFrom::Offset(17));
        for bad in [
            "topic=%",
            "topic=%ff",
            "client_id=1.5",
            "client_id=1e0",
            "pattern=%5C",
            "from=then",
        ] {
            assert!(Wanted::read(bad, 100).is_err(), "{bad}");
        }
    }

    #[test]
    fn data_of_several_lines_stays_one_event() {
        let mut out = BytesMut::new();
        put_event(Some("x"), b"{\n1}", &mut out);
        assert_eq!(out, "event: x\ndata: {\ndata: 1}\n\n");
    }
}
