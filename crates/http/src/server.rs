//! One HTTP connection: limits on headers and on time, and a graceful end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stafett_net::stall::StallGuard;
use stafett_net::{Connection, Protocol};

/// Bytes that a request line with its headers may have.
const HEADER_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// For the headers of a request to come, counted from the connection's start or from the answer before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// For a peer that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a router.
#[derive(Debug, Clone)]
pub struct HttpServer {
    router: Router,
}

impl HttpServer {
    #[must_use]
    pub fn new(router: Router) -> Self {
        Self { router }
    }
}

impl Protocol for HttpServer {
    async fn connection(&self, connection: Connection) {
        let Connection {
            stream,
            peer,
            drain,
            metrics,
            ..
        } = connection;
        let io = TokioIo::new(StallGuard::new(stream, WRITE_TIMEOUT, Arc::clone(&metrics)));
        let service = TowerToHyperService::new(self.router.clone());
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(io, service);
        let mut served = Box::pin(served);
        let ended = if let Some(ended) = drain.run_until_cancelled(served.as_mut()).await {
            ended
        } else {
            served.as_mut().graceful_shutdown();
            served.await
        };
        if let Err(error) = ended {
            metrics.error(kind(&error));
            tracing::debug!(%peer, %error, "an HTTP connection ended early");
        }
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
