//! Headers that every answer has: `Server-Timing`, `Stafett-Request-Id`, `Cache-Control`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use tokio::time::Instant;

static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);

/// Adds the headers to the answers of all routes.
pub fn stamped(routes: Router) -> Router {
    routes.layer(middleware::from_fn(stamp))
}

/// `Stafett-Request-Id` of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

async fn stamp(mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = format!("{:x}", NEXT_REQUEST.fetch_add(1, Ordering::Relaxed));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::warn!(request = id, %method, path, "a request failed");
    }
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.entry(name).or_insert(value);
        }
    };
    add(HeaderName::from_static("server-timing"), &timing(begun.elapsed()));
    add(HeaderName::from_static("stafett-request-id"), &id);
    add(header::CACHE_CONTROL, "no-store");
    response
}

/// Formats the time from the headers of a request to those of its answer, in milliseconds.
fn timing(total: Duration) -> String {
    format!("total;dur={:.3}", total.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds() {
        assert_eq!(timing(Duration::from_micros(1250)), "total;dur=1.250");
    }
}
