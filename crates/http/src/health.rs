//! State of the process, for load balancers and supervisors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

/// States of the process; it only goes forward through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Reads settings and opens listeners.
    Starting,
    /// Reads stored data.
    Recovering,
    /// Serves clients.
    Ready,
    /// Finishes work in progress; nothing new is accepted.
    Draining,
}

impl State {
    /// Returns the word for the state in responses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Recovering => "recovering",
            Self::Ready => "ok",
            Self::Draining => "draining",
        }
    }
}

/// Shared state; clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<AtomicU8>);

impl Health {
    /// Begins in [`State::Starting`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on to `state`. An earlier state than the current one is ignored.
    pub fn set(&self, state: State) {
        self.0.fetch_max(state as u8, Ordering::AcqRel);
    }

    #[must_use]
    pub fn state(&self) -> State {
        match self.0.load(Ordering::Acquire) {
            0 => State::Starting,
            1 => State::Recovering,
            2 => State::Ready,
            _ => State::Draining,
        }
    }
}

/// `GET /health`: 200 when ready, else 503, with the state as JSON in both cases.
pub(crate) async fn get(extract::State(health): extract::State<Health>) -> impl IntoResponse {
    let (status, body) = match health.state() {
        State::Ready => (StatusCode::OK, "{\"status\":\"ok\"}\n"),
        State::Starting => (StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"starting\"}\n"),
        State::Recovering => (StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"recovering\"}\n"),
        State::Draining => (StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"draining\"}\n"),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_never_taken_back() {
        let health = Health::new();
        assert_eq!(health.state(), State::Starting);
        for state in [State::Recovering, State::Draining, State::Ready] {
            health.set(state);
        }
        assert_eq!(health.state(), State::Draining);
    }
}
