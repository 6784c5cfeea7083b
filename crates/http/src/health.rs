//! The state of the process, for whoever decides whether to send it work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

/// The states; a process only goes forward through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Reading settings, opening listeners.
    Starting,
    /// Reading what is stored.
    Recovering,
    /// Serving.
    Ready,
    /// Finishing what was begun; nothing new is accepted.
    Draining,
}

impl State {
    /// As it is said in the answer.
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

/// The state, shared; clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<AtomicU8>);

impl Health {
    /// Begins in [`State::Starting`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on to `state`; going back is not possible and does nothing.
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

/// `GET /health`: 200 when ready, else 503; either way the state as JSON.
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
