//! The console in the binary: built files of `console/dist`, compressed when the crate is built, and the
//! routes that serve them.
//!
//! It must not know the broker: the pages ask `/v1` as any client. Files hold no data, so they are for
//! everyone; a strict `Content-Security-Policy` keeps the pages from asking another server.
//!
//! | path | answer |
//! |---|---|
//! | `/console` | leads to `/console/` |
//! | `/console/assets/NAME` | the file, which is cached as long as a browser likes: its name changes with it |
//! | `/console/…` | the page, asked for anew each time |

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Rules for the pages: scripts, styles and connections of this server alone, in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const CACHED: &str = "public, max-age=31536000, immutable";

/// Built file.
#[derive(Debug)]
struct File {
    /// Path below the folder of built files.
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Returns the routes to merge into an HTTP listener.
pub fn router() -> Router {
    Router::new()
        .route("/console", get(leads_to_the_page))
        .route("/console/", get(page))
        .route("/console/assets/{name}", get(asset))
        .route("/console/{*path}", get(page))
}

/// Returns the routes of the lab's page, for the program of the lab.
pub fn lab_router() -> Router {
    Router::new()
        .route("/console/assets/{name}", get(asset))
        .route("/lab/", get(lab_page))
        .route("/lab/{*path}", get(lab_page))
}

async fn lab_page(headers: HeaderMap) -> Response {
    found("lab.html", &headers, "no-cache")
}

async fn leads_to_the_page() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/console/")]).into_response()
}

async fn page(headers: HeaderMap) -> Response {
    found("index.html", &headers, "no-cache")
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    found(&format!("assets/{name}"), &headers, CACHED)
}

fn found(name: &str, request: &HeaderMap, caching: &'static str) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return (StatusCode::NOT_FOUND, "there is no such file\n").into_response();
    };
    let takes_gzip = takes_gzip(request);
    let body = if takes_gzip { file.gzip } else { file.plain };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    let mut add = |name, value| headers.insert(name, HeaderValue::from_static(value));
    add(header::CONTENT_TYPE, file.content_type);
    add(header::CACHE_CONTROL, caching);
    add(header::VARY, "accept-encoding");
    add(header::CONTENT_SECURITY_POLICY, POLICY);
    add(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(header::REFERRER_POLICY, "no-referrer");
    add(header::X_FRAME_OPTIONS, "DENY");
    add(
        header::HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    if takes_gzip {
        add(header::CONTENT_ENCODING, "gzip");
    }
    response
}

/// Returns true if `Accept-Encoding` names gzip without refusing it.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().trim_start_matches("q=").parse::<f32>();
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}
