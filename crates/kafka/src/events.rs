//! Log lines that are events as well.

use stafett_net::EVENTS;

/// Records that a definition was made or deleted.
pub(crate) fn record(kind: &'static str, name: &str) {
    let done = kind.rsplit('.').next().unwrap_or_default();
    tracing::info!(target: EVENTS, kind, name, via = "kafka", "{done}");
}
