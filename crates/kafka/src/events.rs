//! Log lines that are events as well.

use stafett_access::Caller;
use stafett_net::EVENTS;

/// Records that a definition was made or deleted.
pub(crate) fn record(caller: &Caller, kind: &'static str, name: &str) {
    let (by, from) = (caller.name(), caller.peer());
    let done = kind.rsplit('.').next().unwrap_or_default();
    tracing::info!(target: EVENTS, kind, name, by, %from, via = "kafka", "{done}");
}
