//! Which HTTP requests may be refused while the listener sheds load.

use axum::http::Method;
use stafett_http::overload::Kind;

/// Returns the kind of a request to the HTTP listener. Opening a WebSocket and scraping metrics are exempt.
pub(crate) fn kind_of(method: &Method, path: &str) -> Kind {
    match path.trim_start_matches('/').split_once('/') {
        Some(("v1", rest)) => stafett_admin::overload::kind_of(method, rest),
        Some(("live", "publish")) => Kind::Write,
        Some(("live", "presence" | "subscriptions")) => Kind::New,
        Some(("api", rest)) if rest.ends_with("/publish") => Kind::Write,
        Some(_) | None => Kind::Exempt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_scrapers_and_websockets_are_never_refused() {
        for (path, kind) in [
            ("/health", Kind::Exempt),
            ("/metrics", Kind::Exempt),
            ("/", Kind::Exempt),
            ("/live", Kind::Exempt),
            ("/live/events", Kind::Exempt),
            ("/live/publish", Kind::Write),
            ("/v1/messages", Kind::Write),
            ("/v1/node/shutdown", Kind::Exempt),
            ("/v1", Kind::Exempt),
            ("/api/queues", Kind::Exempt),
            ("/api/exchanges/%2F/amq.default/publish", Kind::Write),
        ] {
            assert_eq!(kind_of(&Method::POST, path), kind, "{path}");
        }
    }
}
