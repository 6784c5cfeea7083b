//! Pages of the broker itself that only show (`console.actions = "none"`): their requests that would do
//! something are refused, whatever the rights of their user are. Programs, and pages of listed sites, are not
//! concerned.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use stafett_http::{Code, Problem, Upgrade, guard};

use super::session;

/// Mark of a request whose page only shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnlyShows;

/// Lets pages of the broker itself only show.
pub fn pages_only_show(routes: Router) -> Router {
    routes.layer(middleware::from_fn(check))
}

pub(crate) fn refusal() -> Problem {
    let why = "pages of this broker only show: the setting console.actions is none";
    Problem::new(Code::Forbidden, why)
}

async fn check(mut request: Request, next: Next) -> Response {
    if is_of_a_page(request.headers()) {
        if !shows(&request) {
            return refusal().into_response();
        }
        request.extensions_mut().insert(OnlyShows);
    }
    next.run(request).await
}

/// Returns true for a request of a page that came from this broker, or with the cookie of such a page.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    site == Some(b"same-origin") || session(headers).is_some() || guard::is_own_origin(headers)
}

/// Returns true for a request that has no effect but a login.
fn shows(request: &Request) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::GET => !Upgrade::is_wanted(request.headers()) || path == "/v1/ws",
        Method::HEAD | Method::OPTIONS => true,
        Method::POST => {
            let is_route = path.starts_with("/v1/exchanges/") && path.ends_with("/route");
            ["/v1/login", "/v1/logout"].contains(&path) || is_route
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{StatusCode, header};
    use axum::routing::any;
    use tower::ServiceExt;

    use super::*;

    async fn status(line: &str, headers: &[(&str, &str)]) -> StatusCode {
        let routes = pages_only_show(Router::new().fallback(any(|| async { "done" })));
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "a:7070");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        routes.oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn pages_of_the_broker_show_and_do_nothing() {
        let pages: [&[(&str, &str)]; 3] = [
            &[("sec-fetch-site", "same-origin")],
            &[("cookie", "x=1; stafett=secret")],
            &[("origin", "http://a:7070")],
        ];
        for page in pages {
            for shown in [
                "GET /v1/queues",
                "HEAD /v1/queues",
                "POST /v1/login",
                "POST /v1/logout",
                "POST /v1/exchanges/shop/route",
            ] {
                assert_eq!(status(shown, page).await, StatusCode::OK, "{shown} {page:?}");
            }
            for done in [
                "POST /v1/messages",
                "DELETE /v1/queues/q",
                "PUT /v1/queues/q",
                "PATCH /v1/queues/q",
                "POST /v1/queues/route",
                "POST /live/publish",
                "PUT /api/queues/%2F/q",
            ] {
                assert_eq!(status(done, page).await, StatusCode::FORBIDDEN, "{done} {page:?}");
            }
            let socket = [page, &[("upgrade", "websocket")]].concat();
            assert_eq!(status("GET /live", &socket).await, StatusCode::FORBIDDEN);
            assert_eq!(status("GET /v1/ws", &socket).await, StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn programs_and_pages_of_other_sites_are_not_concerned() {
        let others: [&[(&str, &str)]; 3] = [
            &[],
            &[("origin", "https://b")],
            &[("sec-fetch-site", "cross-site")],
        ];
        for other in others {
            assert_eq!(
                status("DELETE /v1/queues/q", other).await,
                StatusCode::OK,
                "{other:?}"
            );
        }
    }
}
