//! Counters of the sinks of this process, over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use stafett_sinks::status::Status;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Connections at a time: scrapers are few.
const CONNECTIONS_MAX: usize = 16;

type Sinks = Arc<Vec<Arc<Status>>>;

/// Answers `/metrics` on an address for as long as the process runs.
pub(super) async fn serve(address: &str, sinks: Vec<Arc<Status>>, tasks: &TaskTracker) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics {address}"))?;
    let (sinks, room): (Sinks, _) = (Arc::new(sinks), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
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
    Ok(())
}

fn answer(request: &Request<Incoming>, sinks: &Sinks) -> Response<String> {
    let mut response = Response::new(String::new());
    if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    for sink in sinks.iter() {
        sink.write_metrics(response.body_mut());
    }
    let kind = "text/plain; version=0.0.4".parse();
    if let Ok(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}
