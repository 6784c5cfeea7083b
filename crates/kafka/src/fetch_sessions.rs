//! Fetch sessions (KIP-227): partitions that a client has requested before, so that it sends only changes.
//!
//! A session is not bound to a connection: any request with its id and the next epoch may continue it. While
//! a request is answered, its session is taken out; if the request is dropped, so is the session, and the
//! client starts anew. The number of sessions and that of their partitions are bounded. If there is no room,
//! the session that has been idle longest is evicted, provided that it was idle long enough; otherwise the
//! new client gets no session.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use stafett_kafka_wire::ErrorCode;
use stafett_model::{Lock, LockGuard};
use tokio::time::Instant;

use crate::fetch_state::FetchState;
use crate::metrics::Metrics;
use crate::settings::KafkaSettings;

/// A session that was used within this time is not evicted.
const IDLE_MIN: Duration = Duration::from_mins(2);
/// Id that means no session.
pub(crate) const NO_SESSION: i32 = 0;
/// Epoch of a request that asks for a new session.
pub(crate) const EPOCH_FIRST: i32 = 0;
/// Epoch of a request without a session.
pub(crate) const EPOCH_NONE: i32 = -1;

#[derive(Debug)]
pub(crate) struct FetchSessions {
    inner: Lock<Inner>,
    sessions_max: usize,
    partitions_max: usize,
    count: Gauge,
    partitions: Gauge,
    evicted: Counter,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<i32, Slot>,
    partitions: usize,
}

#[derive(Debug)]
struct Slot {
    /// Epoch that the next request must have.
    epoch: i32,
    /// True if topics are named by id.
    uses_ids: bool,
    /// `None` while a request is being answered.
    state: Option<Box<FetchState>>,
    partitions: usize,
    used: Instant,
}

/// A session that is taken out. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct CheckedOutState {
    sessions: Arc<FetchSessions>,
    pub id: i32,
    state: Option<Box<FetchState>>,
}

impl FetchSessions {
    pub(crate) fn new(settings: &KafkaSettings, metrics: &Metrics) -> Self {
        Self {
            inner: Lock::default(),
            sessions_max: settings.fetch_sessions_max,
            partitions_max: settings.fetch_session_partitions_max,
            count: metrics.fetch_sessions.clone(),
            partitions: metrics.fetch_session_partitions.clone(),
            evicted: metrics.fetch_sessions_evicted.clone(),
        }
    }

    /// Creates a session, taken out until its first answer is written. Returns the state if there is no room.
    pub(crate) fn create(
        self: &Arc<Self>,
        state: Box<FetchState>,
        uses_ids: bool,
    ) -> Result<CheckedOutState, Box<FetchState>> {
        let partitions = state.live();
        let mut inner = self.lock();
        while inner.slots.len() >= self.sessions_max || inner.partitions + partitions > self.partitions_max {
            if !self.evict(&mut inner) {
                return Err(state);
            }
        }
        let id = loop {
            let id = random_id();
            if !inner.slots.contains_key(&id) {
                break id;
            }
        };
        let slot = Slot {
            epoch: EPOCH_FIRST + 1,
            uses_ids,
            state: None,
            partitions,
            used: Instant::now(),
        };
        inner.slots.insert(id, slot);
        inner.partitions += partitions;
        self.show(&inner);
        Ok(CheckedOutState {
            sessions: Arc::clone(self),
            id,
            state: Some(state),
        })
    }

    /// Takes out a session for a request with the given epoch.
    pub(crate) fn take(
        self: &Arc<Self>,
        id: i32,
        epoch: i32,
        uses_ids: bool,
    ) -> Result<CheckedOutState, ErrorCode> {
        let mut inner = self.lock();
        let slot = inner
            .slots
            .get_mut(&id)
            .ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if slot.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if slot.uses_ids != uses_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let state = slot.state.take().ok_or(ErrorCode::InvalidFetchSessionEpoch)?;
        slot.epoch = slot.epoch.checked_add(1).unwrap_or(EPOCH_FIRST + 1);
        Ok(CheckedOutState {
            sessions: Arc::clone(self),
            id,
            state: Some(state),
        })
    }

    /// Ends a session.
    pub(crate) fn remove(&self, id: i32) {
        let mut inner = self.lock();
        if let Some(slot) = inner.slots.remove(&id) {
            inner.partitions -= slot.partitions;
        }
        self.show(&inner);
    }

    fn put_back(&self, id: i32, state: Box<FetchState>) {
        let mut inner = self.lock();
        let others = match inner.slots.get(&id) {
            Some(slot) => inner.partitions - slot.partitions,
            None => return,
        };
        let partitions = state.live();
        if others + partitions > self.partitions_max {
            inner.slots.remove(&id);
            inner.partitions = others;
        } else if let Some(slot) = inner.slots.get_mut(&id) {
            slot.state = Some(state);
            slot.partitions = partitions;
            slot.used = Instant::now();
            inner.partitions = others + partitions;
        }
        self.show(&inner);
    }

    /// Evicts the session that has been idle longest. Returns false if none was idle long enough.
    fn evict(&self, inner: &mut Inner) -> bool {
        let idle = inner.slots.iter().filter(|(_, slot)| slot.state.is_some());
        let Some((id, used)) = idle
            .map(|(id, slot)| (*id, slot.used))
            .min_by_key(|(_, used)| *used)
        else {
            return false;
        };
        if used.elapsed() < IDLE_MIN {
            return false;
        }
        if let Some(slot) = inner.slots.remove(&id) {
            inner.partitions -= slot.partitions;
        }
        self.evicted.inc();
        true
    }

    fn show(&self, inner: &Inner) {
        self.count
            .set(i64::try_from(inner.slots.len()).unwrap_or(i64::MAX));
        self.partitions
            .set(i64::try_from(inner.partitions).unwrap_or(i64::MAX));
    }

    fn lock(&self) -> LockGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl CheckedOutState {
    pub(crate) fn state(&mut self) -> Option<&mut FetchState> {
        self.state.as_deref_mut()
    }

    /// Keeps the session for its next request.
    pub(crate) fn put_back(mut self) {
        if let Some(state) = self.state.take() {
            self.sessions.put_back(self.id, state);
        }
    }
}

impl Drop for CheckedOutState {
    fn drop(&mut self) {
        if self.state.is_some() {
            self.sessions.remove(self.id);
        }
    }
}

/// Returns a positive random number that cannot be guessed from others.
fn random_id() -> i32 {
    let bits = RandomState::new().hash_one(0_u8);
    i32::try_from(bits & 0x7fff_ffff).unwrap_or(1).max(1)
}
