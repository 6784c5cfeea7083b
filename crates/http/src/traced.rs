//! Requests for the performance log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, Response, header};
use stafett_net::{Line, ListenerMetrics, Parts, Trace};
use tokio::time::Instant;

use crate::stamp::Measured;

/// The log, and the facts of a connection for its lines.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionTrace {
    pub(crate) trace: Arc<Trace>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    pub(crate) peer: SocketAddr,
}

/// A request that may be written to the log.
#[derive(Debug)]
pub(crate) struct Traced {
    connection: ConnectionTrace,
    is_sampled: bool,
    begun: Instant,
    bytes_in: u64,
}

impl ConnectionTrace {
    /// Begins a request. `None` if it is not written in any case.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Traced> {
        let is_sampled = self.trace.samples();
        self.trace.wants(is_sampled, Duration::MAX).then(|| {
            let length = headers.get(header::CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            Traced {
                connection: self.clone(),
                is_sampled,
                begun: Instant::now(),
                bytes_in: length.unwrap_or(0),
            }
        })
    }
}

impl Traced {
    /// Writes the line of a request with this answer.
    pub(crate) fn write(self, answer: &Response<Body>) {
        let took = self.begun.elapsed();
        let ConnectionTrace { trace, metrics, peer } = self.connection;
        if !trace.wants(self.is_sampled, took) {
            return;
        }
        let measured = answer.extensions().get::<Measured>();
        trace.write(Line {
            took,
            name: Cow::Owned(measured.map_or_else(String::new, |measured| measured.name.clone())),
            result: Cow::Owned(answer.status().as_u16().to_string()),
            client: peer.to_string(),
            connections: metrics.open.get(),
            parts: measured.map_or_else(Parts::default, |measured| Parts {
                receive: measured.times.receive,
                process: measured.times.process,
                store: measured.times.store,
                send: Duration::ZERO,
            }),
            bytes_in: self.bytes_in,
            bytes_out: answer.body().size_hint().exact().unwrap_or(0),
            request: measured.map_or(0, |measured| measured.request),
            ..Line::of("request")
        });
    }
}
