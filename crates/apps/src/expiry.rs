//! Expired entries leave the log and the counts.
//!
//! An expired entry is never shown, and its record stays until a sweep: one pass over the task's log, which
//! deletes expired entries, some at a time, between the commits of the worker. A sweep is due when an entry
//! has expired, and not sooner after the last one than the size of the log allows. A task without a worker
//! is swept once it has one.
//!
//! An entry expires by its age since the commit that stored it, so a clock that is set while the broker runs
//! makes none older ([`Clock::steady_date`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use stafett_journal::Visibility;
use stafett_store::Clock;
use stafett_topics::{ReadEnd, RecordItem, RecordTail};

use crate::app::App;
use crate::commit::{Build, Prepared};
use crate::entry::{EntryKey, NEVER, POSITION, split_value};
use crate::error::AppError;
use crate::slot::Slot;
use crate::state::Applied;

/// Entries that are deleted by one append, and bytes of their keys.
const STEP: usize = 10_000;
const STEP_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 1 << 20;
/// Time between two sweeps of a task: this, and more for a large log.
const REST_MS: i64 = 10_000;
/// Bytes of a log for which a sweep rests a millisecond.
const BYTES_PER_REST_MS: i64 = 4096;

/// Returns the steady time at which an entry expires: its commit and its expiry, by the wall clock then.
pub(crate) fn expires_ms(clock: &Clock, written_ms: i64, expiry: i64) -> i64 {
    if expiry == NEVER {
        return NEVER;
    }
    let lifetime = expiry.saturating_sub(written_ms);
    clock.steady_date(written_ms).saturating_add(lifetime)
}

/// An expired entry: the key of its record, and the place.
type Expired = (Bytes, u64);

impl App {
    /// Takes care that a task is swept when its first entry expires.
    pub(crate) fn note_expiry(&self, slot: &Slot) {
        let state = slot.state.lock();
        let Some(state) = state.as_ref().filter(|state| state.expires_ms < NEVER) else {
            return;
        };
        let at_ms = state.expires_ms.max(state.sweep_from_ms);
        if at_ms < self.sweep_ms.fetch_min(at_ms, Ordering::AcqRel) {
            self.schedule(at_ms);
        }
    }

    /// Begins due sweeps.
    pub(crate) fn sweep_due(&self) {
        let now_ms = self.parts.clock.now_ms();
        let due_ms = self.sweep_ms.load(Ordering::Acquire);
        if due_ms > now_ms {
            self.schedule(due_ms);
            return;
        }
        self.sweep_ms.store(i64::MAX, Ordering::Release);
        let Some(app) = self.this.upgrade() else { return };
        let sweeping = self.parts.changes.begin(async move {
            let slots: Vec<Arc<Slot>> = app.slots.read().values().cloned().collect();
            for slot in slots {
                if let Err(why) = app.sweep(&slot).await {
                    tracing::warn!(app = &*app.name, task = %slot.task, "expired entries stay for now: {why}");
                }
                app.note_expiry(&slot);
            }
            Ok::<_, AppError>(())
        });
        drop(sweeping);
    }

    async fn sweep(&self, slot: &Arc<Slot>) -> Result<(), AppError> {
        let now_ms = self.parts.clock.now_ms();
        {
            let mut state = slot.state.lock();
            let due = state
                .as_mut()
                .filter(|state| state.expires_ms <= now_ms && state.sweep_from_ms <= now_ms);
            let Some(state) = due else { return Ok(()) };
            state.expires_ms = NEVER;
            let rest = i64::try_from(state.totals().bytes).unwrap_or(i64::MAX) / BYTES_PER_REST_MS;
            state.sweep_from_ms = now_ms.saturating_add(REST_MS + rest);
        }
        let swept = self.sweep_log(slot, now_ms).await;
        let next = swept.as_ref().copied().unwrap_or(now_ms);
        let mut state = slot.state.lock();
        if let Some(state) = state.as_mut() {
            state.expires_ms = state.expires_ms.min(next);
        }
        drop(state);
        swept.map(drop)
    }

    /// Reads the log, and deletes expired entries. Returns the steady time of the expiry that is next.
    async fn sweep_log(&self, slot: &Arc<Slot>, now_ms: i64) -> Result<i64, AppError> {
        let (catalog, clock) = (&self.parts.catalog, &self.parts.clock);
        let unreadable = |why: String| AppError::Unreadable { task: slot.task, why };
        let bounds = catalog.bounds(slot.log);
        let bounds = bounds.ok_or_else(|| unreadable("the log does not exist".to_owned()))?;
        let mut tail = RecordTail::new(slot.log, bounds.start, READ_BYTES, Visibility::Stored);
        let (mut expired, mut bytes, mut next) = (Vec::<Expired>::new(), 0, NEVER);
        loop {
            while let Some(item) = tail.item() {
                let RecordItem::Record(record) = item else {
                    continue;
                };
                let (Some(key), Some(value)) = (record.key, record.value) else {
                    continue;
                };
                let is_entry = matches!(EntryKey::decode(&key), Some(EntryKey::State { .. }));
                let Some((expiry, _)) = split_value(&value).filter(|_| is_entry) else {
                    continue;
                };
                if expiry == NEVER || !slot.has_at(&key, record.offset.0) {
                    continue;
                }
                let expires_ms = expires_ms(clock, record.timestamp, expiry);
                if expires_ms > now_ms {
                    next = next.min(expires_ms);
                    continue;
                }
                bytes += key.len();
                expired.push((key, record.offset.0));
                if expired.len() >= STEP || bytes >= STEP_BYTES {
                    self.delete_expired(slot, std::mem::take(&mut expired)).await?;
                    bytes = 0;
                }
            }
            match tail.read(catalog).await {
                Ok(()) => {}
                Err(ReadEnd::AtEnd) => break,
                Err(why) => return Err(unreadable(why.to_string())),
            }
        }
        self.delete_expired(slot, expired).await?;
        Ok(next)
    }

    /// Stores the deletion of entries that were not changed meanwhile.
    async fn delete_expired(&self, slot: &Arc<Slot>, expired: Vec<Expired>) -> Result<(), AppError> {
        let _turn = slot.turn().await;
        let is_there = self.is_current(slot);
        let known = self.with_machine(|machine| machine.task(slot.task));
        let (Some(known), false) = (known.filter(|_| is_there), expired.is_empty()) else {
            return Ok(());
        };
        let prepared = slot.with_state(|state| {
            let mut build = Build::new(self.parts.clock.wall_ms());
            build.push(POSITION, Some(&state.position.encode()), Applied::Position)?;
            let current = expired
                .iter()
                .filter(|(key, place)| state.is_current(key, *place));
            let mut count = 0_u64;
            for (key, _) in current {
                build.push(key, None, Applied::State(state.hash(key), None))?;
                count += 1;
            }
            let (append, changes) = build.finish(slot.log, known.epoch)?;
            let prepared = Prepared {
                append,
                position: state.position.clone(),
                changes,
                emitted: Vec::new(),
                messages: Vec::new(),
            };
            Ok((count > 0).then_some(prepared))
        })?;
        if let Some(prepared) = prepared {
            let count = prepared.changes.len().saturating_sub(1) as u64;
            self.store_prepared(slot, prepared).await?;
            self.counts.expired.inc_by(count);
        }
        Ok(())
    }
}
