//! State of the process, for load balancers and supervisors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

/// States of the process; it only goes forward through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Reads settings and opens listeners.
    Starting,
    /// Waits in a cluster while another node serves.
    StandingBy,
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
            Self::StandingBy => "standing_by",
            Self::Recovering => "recovering",
            Self::Ready => "ok",
            Self::Draining => "draining",
        }
    }
}

/// Shared state; clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: AtomicU8,
    relays: AtomicBool,
    lost_objects: AtomicU64,
}

impl Health {
    /// Begins in [`State::Starting`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on to `state`. An earlier state than the current one is ignored.
    pub fn set(&self, state: State) {
        self.0.state.fetch_max(state as u8, Ordering::AcqRel);
    }

    #[must_use]
    pub fn state(&self) -> State {
        match self.0.state.load(Ordering::Acquire) {
            0 => State::Starting,
            1 => State::StandingBy,
            2 => State::Recovering,
            3 => State::Ready,
            _ => State::Draining,
        }
    }

    /// Notes whether clients that come here are served by another node.
    pub fn set_relays(&self, relays: bool) {
        self.0.relays.store(relays, Ordering::Release);
    }

    /// Notes the number of stored objects that could not be read at the last look. The node serves all else.
    pub fn set_lost_objects(&self, count: u64) {
        self.0.lost_objects.store(count, Ordering::Release);
    }

    /// Returns the state as JSON.
    fn body(&self) -> String {
        let status = self.state().word();
        match self.0.lost_objects.load(Ordering::Acquire) {
            0 => format!("{{\"status\":\"{status}\"}}\n"),
            lost => format!("{{\"status\":\"{status}\",\"lost_objects\":{lost}}}\n"),
        }
    }

    /// Returns true if clients that come here are served, by this node or another one.
    #[must_use]
    pub fn serves(&self) -> bool {
        match self.state() {
            State::Ready => true,
            State::StandingBy => self.0.relays.load(Ordering::Acquire),
            State::Starting | State::Recovering | State::Draining => false,
        }
    }
}

/// `GET /health`: 200 when this node serves, else 503, with the state as JSON in both cases. Objects that
/// cannot be read are counted in it.
pub(crate) async fn get(extract::State(health): extract::State<Health>) -> impl IntoResponse {
    let is_good = health.state() == State::Ready;
    answer(&health, is_good)
}

/// `GET /health/any`: 200 when clients that come here are served, by this node or another one, else 503.
pub(crate) async fn get_any(extract::State(health): extract::State<Health>) -> impl IntoResponse {
    answer(&health, health.serves())
}

fn answer(health: &Health, is_good: bool) -> impl IntoResponse + use<> {
    let status = if is_good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = health.body();
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

    #[test]
    fn lost_objects_are_told_while_there_are_some() {
        let health = Health::new();
        health.set(State::Ready);
        assert_eq!(health.body(), "{\"status\":\"ok\"}\n");
        health.set_lost_objects(2);
        assert_eq!(health.body(), "{\"status\":\"ok\",\"lost_objects\":2}\n");
        health.set_lost_objects(0);
        assert_eq!(health.body(), "{\"status\":\"ok\"}\n");
    }

    #[test]
    fn a_node_that_stands_by_serves_while_it_relays() {
        let health = Health::new();
        health.set_relays(true);
        assert!(!health.serves(), "it has just begun");
        health.set(State::StandingBy);
        assert!(health.serves());
        health.set_relays(false);
        assert!(!health.serves());
        health.set(State::Ready);
        assert!(health.serves());
        health.set(State::Draining);
        assert!(!health.serves());
    }
}
