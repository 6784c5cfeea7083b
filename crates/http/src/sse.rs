//! Server-sent events (WHATWG HTML, section 9.2): an answer that goes on.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;

/// Content type.
pub const TYPE: &str = "text/event-stream";
/// A comment, which keeps a silent stream open.
pub const COMMENT: &str = ":\n\n";

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
    let making: Making<S> = Box::pin(next(state));
    let pieces = Pieces {
        making: Some(making),
        next,
    };
    let headers = [(header::CONTENT_TYPE, TYPE), (header::CACHE_CONTROL, "no-store")];
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
