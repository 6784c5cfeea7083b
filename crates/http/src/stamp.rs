//! Headers that every answer has: `Server-Timing`, `Stafett-Request-Id`, `Cache-Control`; and the times of a
//! request, which the performance log has too.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::time::Instant;

use crate::packed;

static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);

tokio::task_local! {
    static TIMES: Times;
}

/// Times of the request that a task executes.
#[derive(Debug, Default)]
struct Times {
    receive: Cell<Duration>,
    store: Cell<Duration>,
}

/// Extension of a request that may be written to the performance log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled;

/// Facts of an answered request for the performance log; an extension of its answer.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) request: u64,
    /// Name of the route, such as `queues.receive`.
    pub(crate) name: String,
    pub(crate) times: Stages,
}

/// Times of an answered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stages {
    /// Reading the body.
    pub(crate) receive: Duration,
    pub(crate) process: Duration,
    /// Waiting for the journal.
    pub(crate) store: Duration,
}

/// Adds the headers to the answers of all routes.
pub fn stamped(routes: Router) -> Router {
    routes.layer(middleware::from_fn(stamp))
}

/// `Stafett-Request-Id` of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Awaits a body; its time counts as receiving.
pub(crate) async fn receiving<F: Future>(body: F) -> F::Output {
    let begun = Instant::now();
    let output = body.await;
    // Without a request, as in tests, there is nothing to count.
    let _ = TIMES.try_with(|times| times.receive.set(times.receive.get() + begun.elapsed()));
    output
}

/// Awaits the journal; its time counts as storing.
pub async fn storing<F: Future>(stored: F) -> F::Output {
    let begun = Instant::now();
    let output = stored.await;
    let _ = TIMES.try_with(|times| times.store.set(times.store.get() + begun.elapsed()));
    output
}

async fn stamp(mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let number = NEXT_REQUEST.fetch_add(1, Ordering::Relaxed);
    let id = format!("{number:x}");
    let packs = packed::is_wanted(&request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let is_traced = request.extensions().get::<Sampled>().is_some();
    let name = is_traced.then(|| route_name(&method, request.extensions().get::<MatchedPath>()));
    let (mut response, receive, store) = TIMES
        .scope(Times::default(), async {
            let response = next.run(request).await;
            let (receive, store) = TIMES.with(|times| (times.receive.get(), times.store.get()));
            (response, receive, store)
        })
        .await;
    if packs {
        response = packed::pack(response).await;
    }
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::warn!(request = id, %method, path, "a request failed");
    }
    let times = Stages {
        receive,
        process: begun.elapsed().saturating_sub(receive + store),
        store,
    };
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.entry(name).or_insert(value);
        }
    };
    add(HeaderName::from_static("server-timing"), &times.header());
    add(HeaderName::from_static("stafett-request-id"), &id);
    add(header::CACHE_CONTROL, "no-store");
    if let Some(name) = name {
        let measured = Measured {
            request: number,
            name,
            times,
        };
        response.extensions_mut().insert(measured);
    }
    response
}

impl Stages {
    /// Formats the times in milliseconds.
    fn header(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        format!(
            "recv;dur={:.3}, exec;dur={:.3}, store;dur={:.3}",
            ms(self.receive),
            ms(self.process),
            ms(self.store)
        )
    }
}

/// Returns the fixed parts of a path behind its version: `queues.receive` of `/v1/queues/{queue}/receive`.
/// Other methods than `POST` stand behind it.
fn route_name(method: &Method, path: Option<&MatchedPath>) -> String {
    named(method, path.map_or("unknown", MatchedPath::as_str))
}

fn named(method: &Method, path: &str) -> String {
    let parts = path
        .split('/')
        .filter(|part| !part.is_empty() && !part.starts_with('{'));
    let mut name = parts
        .skip_while(|part| *part == "v1")
        .collect::<Vec<_>>()
        .join(".");
    if method != Method::POST {
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&method.as_str().to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds() {
        let times = Stages {
            receive: Duration::from_micros(100),
            process: Duration::from_micros(1250),
            store: Duration::ZERO,
        };
        assert_eq!(times.header(), "recv;dur=0.100, exec;dur=1.250, store;dur=0.000");
    }

    #[test]
    fn routes_are_named_by_the_fixed_parts_of_their_paths() {
        for (method, path, expected) in [
            (Method::POST, "/v1/queues/{queue}/receive", "queues.receive"),
            (Method::POST, "/v1/messages", "messages"),
            (Method::GET, "/v1/queues/{queue}", "queues.get"),
            (Method::GET, "/", "get"),
            (Method::POST, "/live/publish", "live.publish"),
            (Method::DELETE, "/api/queues/{vhost}/{name}", "api.queues.delete"),
        ] {
            assert_eq!(named(&method, path), expected, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn waiting_for_the_journal_is_counted_apart() {
        tokio::time::pause();
        let ms = Duration::from_millis;
        let counted = TIMES.scope(Times::default(), async {
            receiving(tokio::time::advance(ms(3))).await;
            storing(tokio::time::advance(ms(5))).await;
            storing(tokio::time::advance(ms(2))).await;
            TIMES.with(|times| (times.receive.get(), times.store.get()))
        });
        assert_eq!(counted.await, (ms(3), ms(7)));
        storing(async {}).await;
    }
}
