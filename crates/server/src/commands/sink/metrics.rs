//! Counters of the sinks of this process, over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use stafett_sinks::status::Status;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::run::wall_ms;
use crate::sinks::{Sample, encode, shown};

/// Connections at a time: scrapers are few.
const CONNECTIONS_MAX: usize = 16;

const CONTENT_TYPE_TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A sink of this process.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: String,
    /// Kind of its target.
    pub(super) to: &'static str,
    pub(super) status: Arc<Status>,
}

/// Counters of sinks, as they are when they are asked for.
#[derive(Debug)]
struct Counters(Vec<Known>);

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sample = |sink: &Known| Sample {
            to: sink.to,
            state: shown(sink.status.snapshot()),
        };
        let samples = self.0.iter().map(|sink| (sink.name.clone(), sample(sink)));
        encode(&samples.collect(), wall_ms(), &mut encoder)
    }
}

/// Answers `/metrics` on an address for as long as the process runs. Returns the address.
pub(super) async fn serve(
    address: &str,
    sinks: Vec<Known>,
    tasks: &TaskTracker,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics {address}"))?;
    let address = listener.local_addr()?;
    let mut registry = Registry::with_prefix("stafett");
    registry.register_collector(Box::new(Counters(sinks)));
    let (sinks, room) = (Arc::new(registry), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            // A semaphore that is never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let sinks = Arc::clone(&sinks);
            connections.spawn(async move {
                let _permit = permit;
                let service = service_fn(move |request| {
                    let answer = answer(&request, &sinks);
                    async move { Ok::<_, Infallible>(answer) }
                });
                // An error of a connection is the scraper's.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(address)
}

fn answer(request: &Request<Incoming>, sinks: &Registry) -> Response<String> {
    let mut response = Response::new(String::new());
    if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    // Writing to a string does not fail.
    let _ = text::encode(response.body_mut(), sinks);
    let kind = HeaderValue::from_static(CONTENT_TYPE_TEXT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
