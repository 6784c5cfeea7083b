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
use axum::extract::{RawQuery, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use serde_json::Value;
use stafett_http::{Problem, Query};
use stafett_live_topics::{
    ClientName, ClientNumber, Format, Live, Message, NameList, Outbox, OutboxDrain, Pattern, StartFrom,
    SubscriptionChange, SubscriptionEdit,
};
use stafett_ws::connection::Ending;
use tokio::time::timeout;

use crate::command::{self, pattern_fault};
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::rights::Rights;
use crate::router::answer;
use crate::{json, query};

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
#[derive(Debug)]
struct Wanted {
    client: ClientName,
    topics: NameList,
    patterns: Vec<Pattern>,
    from: StartFrom,
    filter: Option<String>,
}

pub(crate) async fn get(
    State(front): State<LiveFront>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let live = front.live()?;
    let rights = Rights::of(&request);
    match open(&front, &live, query.as_deref(), &rights).await {
        Ok(events) => {
            let told = [
                (header::CONTENT_TYPE, "text/event-stream"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            Ok((told, Body::from_stream(events)).into_response())
        }
        Err(fault) => Ok(answer(Err(fault))),
    }
}

async fn open(
    front: &LiveFront,
    live: &Arc<Live>,
    query: Option<&str>,
    rights: &Rights,
) -> Result<Events, Fault> {
    let wanted = Wanted::read(query, front.settings().topic_bytes_max)?;
    rights.check_read(&wanted.topics)?;
    let filter = wanted
        .filter
        .as_deref()
        .map(|filter| live.filter(filter))
        .transpose()?;
    let client = wanted.client;
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
    let (bound, metrics) = (front.settings().bound(), Arc::clone(live.metrics()));
    let outbox = Outbox::guarded(&EVENTS, bound, metrics, rights.guard());
    let number = live.listen_filtered(&client, &outbox, filter)?;
    let listening = Listening {
        live: Arc::clone(live),
        number,
        outbox,
        ending: front.ending(),
        is_first: true,
        is_over: false,
    };
    if !wanted.topics.is_empty() && wanted.from != StartFrom::New {
        let subscribed = live.subscribe_from(client, wanted.topics, wanted.from, &listening.outbox);
        let (result, held) = subscribed.await;
        if let Some(held) = held {
            live.catch_up(held);
        }
        result?;
    }
    Ok(Events {
        next: Box::pin(listening.next()),
    })
}

impl Wanted {
    fn read(query: Option<&str>, topic_bytes_max: usize) -> Result<Self, Fault> {
        let query = Query::lenient(query, &["client_id", "topic", "pattern", "from", "filter"])?;
        let mut wanted = Self {
            client: query::client(&query)?,
            topics: NameList::default(),
            patterns: Vec::new(),
            from: query::from(&query)?,
            filter: query.get("filter").map(str::to_owned),
        };
        for (key, name) in query.pairs() {
            match key {
                "topic" => {
                    command::check_name("topic", name, topic_bytes_max)?;
                    wanted.topics.push(name);
                }
                "pattern" => {
                    command::check_name("pattern", name, topic_bytes_max)?;
                    wanted.patterns.push(Pattern::parse(name).map_err(pattern_fault)?);
                }
                _ => {}
            }
        }
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
        let read = |query| Wanted::read(Some(query), 100);
        let wanted = read("client_id=7&topic=a%20b&topic=c%2Ad&pattern=x*&other=1").unwrap();
        assert_eq!(wanted.client, ClientName::Number(7));
        assert_eq!(wanted.topics.iter().collect::<Vec<_>>(), ["a b", "c*d"]);
        assert_eq!(wanted.patterns.len(), 1);
        for (query, expected) in [
            ("client_id=%227%22", ClientName::Text("7".into())),
            ("client_id=me", ClientName::Text("me".into())),
        ] {
            assert_eq!(read(query).unwrap().client, expected);
        }
        assert_eq!(read("client_id=1&from=resume").unwrap().from, StartFrom::Resume);
        assert_eq!(read("client_id=1&from=17").unwrap().from, StartFrom::Offset(17));
        for bad in [
            "topic=a",
            "client_id=1&topic=%",
            "client_id=1&topic=%ff",
            "client_id=1.5",
            "client_id=1e0",
            "client_id=1&pattern=%5C",
            "client_id=1&from=then",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let long = format!("client_id=1&pattern={}", "x".repeat(101));
        assert!(matches!(
            read(&long),
            Err(Fault::TooLong {
                key: "pattern",
                max: 100
            })
        ));
    }

    #[test]
    fn data_of_several_lines_stays_one_event() {
        let mut out = BytesMut::new();
        put_event(Some("x"), b"{\n1}", &mut out);
        assert_eq!(out, "event: x\ndata: {\ndata: 1}\n\n");
    }
}
