//! Quotas of a connection: bytes that it produces and fetches, and its requests, are taken from the buckets
//! of its user and client id. A client that is beyond its quota is told for how long, and nothing more of it
//! is read until then, so that one that does not listen is slowed too.

use std::sync::Arc;
use std::time::Duration;

use stafett_access::{Bucket, Rate};
use stafett_model::Lock;
use tokio::time::Instant;

use crate::context::RequestContext;

/// Bytes of a client id that are told apart.
const CLIENT_BYTES_MAX: usize = 255;

/// State of a connection for which there were quotas; empty otherwise.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Lock<Option<Box<State>>>);

#[derive(Debug)]
struct State {
    /// Generation of the users and quotas that the buckets are of.
    generation: u64,
    user: Option<Box<str>>,
    client: Box<str>,
    produced: Option<Arc<Bucket>>,
    fetched: Option<Arc<Bucket>>,
    requests: Option<Arc<Bucket>>,
    muted_until: Option<Instant>,
}

impl RequestContext {
    /// Notes the client id of a request, and takes the request from its quota.
    pub(crate) fn note_request(&self, client: Option<&str>) {
        if self.shared.broker.access().directory().has_quotas() {
            self.note_client(client);
            self.charge(Rate::Requests, 1);
        }
    }

    fn note_client(&self, client: Option<&str>) {
        let access = self.shared.broker.access();
        let client = client.unwrap_or_default();
        let client = client
            .get(..client.floor_char_boundary(CLIENT_BYTES_MAX))
            .unwrap_or_default();
        let (generation, user) = (access.directory().generation(), self.caller().name());
        let mut state = self.throttle.0.lock();
        let is_same = |state: &State| {
            state.generation == generation && *state.client == *client && state.user.as_deref() == user
        };
        if state.as_deref().is_some_and(is_same) {
            return;
        }
        let muted_until = state.as_ref().and_then(|state| state.muted_until);
        *state = Some(Box::new(State {
            generation,
            user: user.map(Into::into),
            client: client.into(),
            produced: access.bucket(user, client, Rate::Produced),
            fetched: access.bucket(user, client, Rate::Fetched),
            requests: access.bucket(user, client, Rate::Requests),
            muted_until,
        }));
    }

    /// Takes bytes or requests from the quota of a rate. Returns the milliseconds that the client has to
    /// wait.
    pub(crate) fn charge(&self, rate: Rate, count: usize) -> i32 {
        let access = self.shared.broker.access();
        if !access.directory().has_quotas() {
            return 0;
        }
        let mut state = self.throttle.0.lock();
        let Some(state) = state.as_mut() else { return 0 };
        let bucket = match rate {
            Rate::Produced => &state.produced,
            Rate::Fetched => &state.fetched,
            Rate::Requests => &state.requests,
        };
        let now = Instant::now();
        if let Some(bucket) = bucket {
            let wait = access.take(bucket, count);
            if wait >= Duration::from_millis(1) {
                self.shared.metrics.on_throttled(rate, wait);
                state.muted_until = state.muted_until.max(Some(now + wait));
            }
        }
        let wait = state
            .muted_until
            .map(|until| until.saturating_duration_since(now));
        i32::try_from(wait.unwrap_or_default().as_millis()).unwrap_or(i32::MAX)
    }

    /// Returns the time until which nothing more of the client is read. `None` if it need not wait.
    pub(crate) fn muted_until(&self) -> Option<Instant> {
        if !self.shared.broker.access().directory().has_quotas() || self.drain.is_cancelled() {
            return None;
        }
        let mut state = self.throttle.0.lock();
        let state = state.as_mut()?;
        state.muted_until = state.muted_until.filter(|until| *until > Instant::now());
        state.muted_until
    }
}
