//! The routes that are always present.

use std::sync::{Arc, RwLock};

use axum::Router;
use axum::http::header;
use axum::routing::get;
use prometheus_client::registry::Registry;

use crate::health::{self, Health};
use crate::metrics;

const PAGE: &str = concat!(
    "<!doctype html><meta charset=\"utf-8\"><title>Stafett</title>\n",
    "<p>This is Stafett ",
    env!("CARGO_PKG_VERSION"),
    ", a message broker.\n",
    "<p>Whether it is ready: <a href=\"/health\">/health</a>\n",
    "<p>What it counts: <a href=\"/metrics\">/metrics</a>\n",
);

/// Link on the page.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub about: &'static str,
    pub path: &'static str,
}

/// Returns the page, `/health` and `/metrics`; others are added with [`Router::merge`]. Metrics may be
/// registered at any time.
///
/// `links` are added to the page without escaping.
pub fn router(health: Health, registry: Arc<RwLock<Registry>>, links: &[Link]) -> Router {
    let line = |link: &Link| format!("<p>{}: <a href=\"{1}\">{1}</a>\n", link.about, link.path);
    let page = PAGE.to_owned() + &links.iter().map(line).collect::<String>();
    Router::new()
        .route(
            "/",
            get(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page)),
        )
        .route("/health", get(health::get).with_state(health))
        .route("/metrics", get(metrics::get).with_state(registry))
}
