//! Answers that go on: server-sent events (WHATWG HTML, section 9.2), and lines of JSON.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;

/// Content type.
pub const TYPE: &str = "text/event-stream";
/// A comment, which keeps a silent stream open.
pub const COMMENT: &str = ":\n\n";

/// Content type of lines of JSON, of which each is an event: `{"id": ID, KIND: DATA}`.
pub const LINES: &str = "application/x-ndjson";

/// Form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Events,
    Lines,
}

impl Form {
    /// Returns the form that a request accepts: lines if it names them, else events.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok());
        if accept.is_some_and(|accept| accept.contains(LINES)) {
            Self::Lines
        } else {
            Self::Events
        }
    }

    /// Returns the form of an answer. `None` for one that does not go on.
    pub fn of_answer(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?;
        [Self::Events, Self::Lines]
            .into_iter()
            .find(|form| kind == form.content_type())
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Events => TYPE,
            Self::Lines => LINES,
        }
    }

    /// Returns a piece without an event, which keeps a silent stream open.
    pub fn silence(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Events => COMMENT.as_bytes(),
            Self::Lines => b"\n",
        })
    }

    /// Appends an event; `data` is JSON.
    pub fn put(self, piece: &mut String, id: Option<&str>, event: &str, data: &str) {
        if self == Self::Events {
            return put(piece, id, event, data);
        }
        piece.push('{');
        if let Some(id) = id {
            let _ = write!(piece, "\"id\":\"{id}\",");
        }
        let _ = write!(piece, "\"{event}\":");
        // Line breaks of JSON are between its parts.
        piece.extend(data.chars().map(|letter| {
            if matches!(letter, '\r' | '\n') {
                ' '
            } else {
                letter
            }
        }));
        piece.push_str("}\n");
    }
}

type Making<S> = Pin<Box<dyn Future<Output = Option<(S, Bytes)>> + Send>>;

/// Pieces made one after the other, each when the one before is read.
struct Pieces<S, N> {
    next: N,
    making: Option<Making<S>>,
}

/// Answers with a stream: `next` makes a piece of it, and the state for the piece behind it. `None` ends it.
/// Nothing is made that is not read.
pub fn answer<S, N, F>(state: S, next: N) -> Response
where
    S: Send + 'static,
    N: Fn(S) -> F + Send + Unpin + 'static,
    F: Future<Output = Option<(S, Bytes)>> + Send + 'static,
{
    answer_as(Form::Events, state, next)
}

/// Answers with a stream, as [`answer`], in a form.
pub fn answer_as<S, N, F>(form: Form, state: S, next: N) -> Response
where
    S: Send + 'static,
    N: Fn(S) -> F + Send + Unpin + 'static,
    F: Future<Output = Option<(S, Bytes)>> + Send + 'static,
{
    let making: Making<S> = Box::pin(next(state));
    let pieces = Pieces {
        making: Some(making),
        next,
    };
    let headers = [
        (header::CONTENT_TYPE, form.content_type()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::OK, headers, Body::from_stream(pieces)).into_response()
}

impl<S, N, F> Stream for Pieces<S, N>
where
    N: Fn(S) -> F + Unpin,
    F: Future<Output = Option<(S, Bytes)>> + Send + 'static,
{
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(making) = &mut this.making else {
            return Poll::Ready(None);
        };
        let made = ready!(making.as_mut().poll(context));
        this.making = None;
        Poll::Ready(made.map(|(state, piece)| {
            this.making = Some(Box::pin((this.next)(state)));
            Ok(piece)
        }))
    }
}

/// Appends an event.
pub fn put(piece: &mut String, id: Option<&str>, event: &str, data: &str) {
    if let Some(id) = id {
        let _ = writeln!(piece, "id: {id}");
    }
    let _ = writeln!(piece, "event: {event}");
    for line in data.split(['\r', '\n']) {
        let _ = writeln!(piece, "data: {line}");
    }
    piece.push('\n');
}
