//! The routes that are always present.

use std::sync::{Arc, RwLock};

use axum::Router;
use axum::routing::get;
use prometheus_client::registry::Registry;

use crate::api::no_such_path;
use crate::health::{self, Health};
use crate::metrics;

/// Returns `/health`, `/health/any` and `/metrics`, and a refusal of all other paths; routes are added with
/// [`Router::merge`]. Metrics may be registered at any time.
pub fn router(health: Health, registry: Arc<RwLock<Registry>>) -> Router {
    Router::new()
        .route("/health", get(health::get).with_state(health.clone()))
        .route("/health/any", get(health::get_any).with_state(health))
        .route("/metrics", get(metrics::get).with_state(registry))
        .fallback(no_such_path)
}
