//! The console in the binary: built files of `console/dist`, compressed when the crate is built, and the
//! routes that serve them.
//!
//! It must not know the broker: the pages ask `/v1` as any client. Files hold no data, so they are for
//! everyone; a strict `Content-Security-Policy` keeps the pages from asking another server.
//!
//! | path | answer |
//! |---|---|
//! | `/console` | leads to `/console/` |
//! | `/console/settings.json` | settings of the pages, see [`Console`] |
//! | `/console/assets/NAME` | the file, which is cached as long as a browser likes: its name changes with it |
//! | `/console/…` | the page, asked for anew each time |

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stafett_http::packed::takes_gzip;

/// Rules for the pages: scripts, styles and connections of this server alone, in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const CACHED: &str = "public, max-age=31536000, immutable";

/// The console of a broker, by its settings.
#[derive(Debug, Default)]
pub struct Console {
    /// Folder with files that are served in place of those in the binary, while the pages are worked on.
    pub folder: Option<PathBuf>,
    /// Settings of the pages, as JSON.
    pub settings: String,
}

/// Built file.
#[derive(Debug)]
struct File {
    /// Path below the folder of built files.
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

include!("content_type.rs");

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Returns the routes to merge into an HTTP listener.
pub fn router(console: Console) -> Router {
    Router::new()
        .route("/console", get(leads_to_the_page))
        .route("/console/", get(page))
        .route("/console/settings.json", get(settings))
        .route("/console/assets/{name}", get(asset))
        .route("/console/{*path}", get(page))
        .with_state(Arc::new(console))
}

/// Returns the routes of a broker whose console is switched off.
pub fn without_pages() -> Router {
    let gone = get(async || {
        (
            StatusCode::NOT_FOUND,
            "the console is switched off: console.enabled\n",
        )
    });
    Router::new()
        .route("/console", gone.clone())
        .route("/console/", gone.clone())
        .route("/console/{*path}", gone)
}

/// Returns the routes of the lab's page, for the program of the lab.
pub fn lab_router() -> Router {
    Router::new()
        .route("/console/assets/{name}", get(asset))
        .route("/lab/", get(lab_page))
        .route("/lab/{*path}", get(lab_page))
        .with_state(Arc::default())
}

type Served = State<Arc<Console>>;

async fn lab_page(console: Served, headers: HeaderMap) -> Response {
    console.found("lab.html", &headers, "no-cache")
}

async fn settings(State(console): Served) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, console.settings.clone()).into_response()
}

async fn leads_to_the_page() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/console/")]).into_response()
}

async fn page(console: Served, headers: HeaderMap) -> Response {
    console.found("index.html", &headers, "no-cache")
}

async fn asset(console: Served, Path(name): Path<String>, headers: HeaderMap) -> Response {
    console.found(&format!("assets/{name}"), &headers, CACHED)
}

impl Console {
    fn found(&self, name: &str, request: &HeaderMap, caching: &'static str) -> Response {
        let found = match &self.folder {
            Some(folder) => read(folder, name).map(|(kind, bytes)| (kind, Cow::Owned(bytes), false)),
            None => FILES.iter().find(|file| file.name == name).map(|file| {
                let is_gzip = takes_gzip(request);
                let bytes = if is_gzip { file.gzip } else { file.plain };
                (file.content_type, Cow::Borrowed(bytes), is_gzip)
            }),
        };
        match found {
            Some((kind, Cow::Borrowed(bytes), is_gzip)) => {
                with_headers(bytes.into_response(), kind, is_gzip, caching)
            }
            Some((kind, Cow::Owned(bytes), is_gzip)) => {
                with_headers(bytes.into_response(), kind, is_gzip, "no-store")
            }
            None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
        }
    }
}

/// Reads a file of a folder, with its content type. A name leads to nothing outside of the folder.
fn read(folder: &std::path::Path, name: &str) -> Option<(&'static str, Vec<u8>)> {
    let kind = content_type(name)?;
    let is_plain = name
        .split('/')
        .all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains('\\'));
    let bytes = is_plain.then(|| std::fs::read(folder.join(name)))?.ok()?;
    Some((kind, bytes))
}

fn with_headers(
    mut response: Response,
    kind: &'static str,
    is_gzip: bool,
    caching: &'static str,
) -> Response {
    let headers = response.headers_mut();
    let mut add = |name, value| headers.insert(name, HeaderValue::from_static(value));
    add(header::CONTENT_TYPE, kind);
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
    if is_gzip {
        add(header::CONTENT_ENCODING, "gzip");
    }
    response
}
