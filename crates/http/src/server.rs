//! One HTTP connection: limits on headers and time, and graceful shutdown.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stafett_net::stall::StallGuard;
use stafett_net::{ByteBudget, Connection, ConnectionEntry, Handover, Protocol, Shedding, TlsSession};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::Introduction;
use crate::overload::{Kind, KindOf, Overload, Writes};
use crate::stamp::Sampled;
use crate::traced::ConnectionTrace;

/// Bytes of a request line with its headers.
const HEADER_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// Time limit for a request's headers, from the start of the connection or from the response before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a peer to read its last answer: to close while it still sends would reset the connection, and
/// take the answer from it.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit for a peer that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a router to connections.
#[derive(Debug, Clone)]
pub struct HttpServer {
    router: Router,
    kind_of: KindOf,
    writes: Arc<Writes>,
}

impl HttpServer {
    #[must_use]
    pub fn new(router: Router) -> Self {
        Self {
            router,
            kind_of: |_, _| Kind::Exempt,
            writes: Arc::default(),
        }
    }

    /// Says which requests are refused where the listener sheds load; without this, none is.
    #[must_use]
    pub fn refusing(mut self, kind_of: KindOf) -> Self {
        self.kind_of = kind_of;
        self
    }

    fn overload(&self, shedding: Option<&Arc<Shedding>>) -> Option<Overload> {
        shedding.map(|shedding| Overload {
            kind_of: self.kind_of,
            shedding: Arc::clone(shedding),
            writes: Arc::clone(&self.writes),
        })
    }
}

impl Protocol for HttpServer {
    async fn connection(&self, connection: Connection) {
        let Connection {
            stream,
            drain,
            budget,
            shedding,
            trace,
            entry,
        } = connection;
        let io = TokioIo::new(StallGuard::new(stream, WRITE_TIMEOUT, Arc::clone(&entry)));
        let handover = Handover::new();
        let service = Routes {
            inner: TowerToHyperService::new(self.router.clone()),
            handover: handover.clone(),
            budget: Arc::clone(&budget),
            tls: entry.tls(),
            entry: Arc::clone(&entry),
            client: Introduction::default(),
            draining: Draining(drain.clone()),
            overload: self.overload(shedding.as_ref()),
            trace: trace.clone().map(|trace| ConnectionTrace {
                trace,
                metrics: Arc::clone(&entry.metrics),
                peer: entry.peer,
            }),
        };
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(io, service);
        let mut served = Box::new(served);
        let until_end = poll_fn(|cx| served.poll_without_shutdown(cx));
        let ended = if let Some(ended) = drain.run_until_cancelled(until_end).await {
            ended
        } else {
            Pin::new(&mut *served).graceful_shutdown();
            poll_fn(|cx| served.poll_without_shutdown(cx)).await
        };
        if let Err(error) = ended {
            entry.metrics.error(kind(&error));
            tracing::debug!(peer = %entry.peer, %error, "an HTTP connection ended early");
            return;
        }
        let parts = served.into_parts();
        let (received, mut stream) = (parts.read_buf, parts.io.into_inner());
        // Frees the memory of HTTP before the connection continues under another protocol.
        drop(parts.service);
        let Some(next) = handover.take() else {
            // The peer may be gone.
            drop(stream.shutdown().await);
            let lingering = timeout(LINGER, discard(&mut stream));
            drain.run_until_cancelled(lingering).await;
            return;
        };
        let stream = stream.into_inner();
        let connection = Connection {
            stream,
            drain,
            budget,
            shedding,
            trace,
            entry,
        };
        next(connection, received).await;
    }
}

/// Reads until the end. The buffer is not a part of the connection's state.
async fn discard(stream: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = vec![0; 4096];
    while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
}

/// Address that a request came from.
#[derive(Debug, Clone, Copy)]
struct Peer(IpAddr);

/// Returns the TLS session that a request came by. `None` if it came in plain text.
pub fn tls<B>(request: &Request<B>) -> Option<&Arc<TlsSession>> {
    request.extensions().get()
}

/// Returns the address that a request came from. `None` if it came by no connection, as in tests.
pub fn peer<B>(request: &Request<B>) -> Option<IpAddr> {
    request.extensions().get().map(|Peer(address)| *address)
}

/// Cancelled when the server stops: a request that waits for something ends then. A handler takes it as an
/// argument.
#[derive(Debug, Clone, Default)]
pub struct Draining(pub CancellationToken);

impl<S: Sync> FromRequestParts<S> for Draining {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // A request that came by no connection, as in tests, does not end.
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// The routes. Their handlers get the slot for the next protocol, the budget for request bodies, the peer's
/// address, and the signal of the server's stop.
struct Routes {
    inner: TowerToHyperService<Router>,
    handover: Handover,
    budget: Arc<ByteBudget>,
    entry: Arc<ConnectionEntry>,
    /// `None` for a connection in plain text.
    tls: Option<Arc<TlsSession>>,
    client: Introduction,
    draining: Draining,
    /// `None` if the listener refuses nothing.
    overload: Option<Overload>,
    /// `None` if there is no performance log.
    trace: Option<ConnectionTrace>,
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.client.introduce(&self.entry, request.headers());
        let begun = self
            .overload
            .as_ref()
            .map(|overload| overload.begin(request.method(), request.uri().path()));
        let counted = match begun {
            None => None,
            Some(Ok(counted)) => Some(counted),
            Some(Err(refusal)) => return Box::pin(ready(Ok(*refusal))),
        };
        let trace = self.trace.as_ref();
        let traced = trace.and_then(|trace| trace.begin(request.headers()));
        let extensions = request.extensions_mut();
        extensions.insert(self.handover.clone());
        extensions.insert(Arc::clone(&self.budget));
        extensions.insert(Peer(self.entry.peer.ip()));
        extensions.insert(self.draining.clone());
        if let Some(tls) = &self.tls {
            extensions.insert(Arc::clone(tls));
        }
        if traced.is_some() {
            extensions.insert(Sampled);
        }
        let answered = self.inner.call(request);
        if counted.is_none() && traced.is_none() {
            return Box::pin(answered);
        }
        Box::pin(async move {
            let answer = answered.await;
            drop(counted);
            if let (Some(traced), Ok(answer)) = (traced, &answer) {
                traced.write(answer);
            }
            answer
        })
    }
}

fn kind(error: &hyper::Error) -> &'static str {
    if error.is_parse_too_large() {
        "http_too_large"
    } else if error.is_parse() {
        "http_malformed"
    } else if error.is_timeout() {
        "http_slow"
    } else {
        "http"
    }
}
