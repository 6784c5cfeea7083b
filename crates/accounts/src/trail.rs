//! The audit as a stored topic, which only the broker writes.
//!
//! Entries wait in a queue of bounded size until a task appends them, many at a time. While the journal takes
//! nothing they go on waiting; those for which there is no room are counted, and lost but for the log.
//! Nothing is stored while the broker is open to all: callers have no names then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stafett_journal::{Append, Outcome};
use stafett_model::{BatchBuilder, Codec, Durability, Lock, Record};
use stafett_topics::{AUDIT_TOPIC, CreateError, NewTopic, Topic, TopicCatalog, TopicSettings};
use tokio::sync::Notify;

use crate::AccessControl;

/// Entries, and their bytes, that wait to be stored.
const WAITING_MAX: usize = 16_384;
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Bytes of an entry.
const ENTRY_BYTES_MAX: usize = 32 << 10;
/// Bytes of entries in one append.
const BATCH_BYTES: usize = 256 << 10;
/// Time until an append that failed is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Settings of the topic when it is made; they may be changed.
const RETENTION_AGE: Duration = Duration::from_hours(90 * 24);
const RETENTION_BYTES: u64 = 1 << 30;

/// Entries of the audit on their way into its topic. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct AuditTrail(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Lock<Waiting>,
    added: Notify,
    stored: Counter<u64, AtomicU64>,
    dropped: Counter<u64, AtomicU64>,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    at_ms: i64,
    value: Bytes,
}

impl AuditTrail {
    pub fn register_metrics(&self, registry: &mut Registry) {
        let (stored, dropped) = (self.0.stored.clone(), self.0.dropped.clone());
        registry.register(
            "audit_entries_stored",
            "Entries of the audit that were stored",
            stored,
        );
        let help = "Entries of the audit that were not stored, as too many waited";
        registry.register("audit_entries_dropped", help, dropped);
    }

    /// Adds an entry, which is stored as it is. It is dropped if too many wait.
    pub fn add(&self, at_ms: i64, value: Vec<u8>) {
        let mut waiting = self.0.waiting.lock();
        let bytes = waiting.bytes + value.len();
        let is_full = waiting.entries.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX;
        if is_full || value.len() > ENTRY_BYTES_MAX {
            self.0.dropped.inc();
            return;
        }
        waiting.bytes = bytes;
        let value = value.into();
        waiting.entries.push_back(Entry { at_ms, value });
        drop(waiting);
        self.0.added.notify_one();
    }

    /// Stores entries as they come. Does not return.
    pub async fn store(&self, access: &AccessControl, catalog: &Arc<TopicCatalog>) {
        loop {
            self.0.added.notified().await;
            while !self.store_waiting(access, catalog).await {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Stores the entries that wait. Returns false if some could not be stored.
    pub async fn store_waiting(&self, access: &AccessControl, catalog: &Arc<TopicCatalog>) -> bool {
        loop {
            let entries = self.take();
            if entries.is_empty() {
                return true;
            }
            if access.is_open() {
                continue;
            }
            if !append(catalog, &entries).await {
                self.give_back(entries);
                return false;
            }
            self.0.stored.inc_by(entries.len() as u64);
        }
    }

    /// Takes entries for one append.
    fn take(&self) -> Vec<Entry> {
        let mut waiting = self.0.waiting.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(entry) = waiting.entries.pop_front()
        {
            bytes += entry.value.len();
            taken.push(entry);
        }
        waiting.bytes -= bytes;
        taken
    }

    fn give_back(&self, entries: Vec<Entry>) {
        let mut waiting = self.0.waiting.lock();
        for entry in entries.into_iter().rev() {
            waiting.bytes += entry.value.len();
            waiting.entries.push_front(entry);
        }
    }
}

async fn append(catalog: &Arc<TopicCatalog>, entries: &[Entry]) -> bool {
    let Some(topic) = topic(catalog).await else {
        return false;
    };
    let Some(log) = topic.log(0) else { return false };
    let mut batch = BatchBuilder::new(Codec::None);
    for entry in entries {
        let record = Record {
            key: None,
            value: Some(&entry.value),
            headers: &[],
            timestamp: entry.at_ms.max(0),
        };
        if batch.push(&record).is_err() {
            return false;
        }
    }
    let Ok(batch) = batch.finish() else { return false };
    let outcomes = catalog.append(vec![Append::batch(log, batch)]).await;
    outcomes
        .iter()
        .all(|outcome| matches!(outcome, Outcome::Committed { .. }))
}

/// Returns the topic, which is made if it is absent.
async fn topic(catalog: &Arc<TopicCatalog>) -> Option<Arc<Topic>> {
    if let Some(topic) = catalog.topics().named(AUDIT_TOPIC) {
        return Some(topic);
    }
    let settings = TopicSettings {
        durability: Some(Durability::Os),
        retention_age: Some(Some(RETENTION_AGE)),
        retention_bytes: Some(Some(RETENTION_BYTES)),
        ..TopicSettings::default()
    };
    let new = NewTopic {
        name: AUDIT_TOPIC.into(),
        partitions: Some(1),
        settings,
    };
    match catalog.create(vec![new]).await.pop()? {
        Ok(topic) => Some(topic),
        Err(CreateError::Exists) => catalog.topics().named(AUDIT_TOPIC),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_wait_are_bounded_and_the_others_counted() {
        let trail = AuditTrail::default();
        trail.add(0, vec![b'x'; ENTRY_BYTES_MAX + 1]);
        assert_eq!(trail.0.dropped.get(), 1);
        for number in 0..WAITING_MAX + 5 {
            trail.add(0, number.to_string().into_bytes());
        }
        assert_eq!(trail.0.dropped.get(), 6);
        for _ in 0..WAITING_BYTES_MAX / ENTRY_BYTES_MAX + 5 {
            trail.add(0, vec![b'x'; ENTRY_BYTES_MAX]);
        }
        assert!(trail.0.waiting.lock().bytes <= WAITING_BYTES_MAX);
        let taken = trail.take();
        let (first, count) = (taken[0].value.clone(), taken.len());
        trail.give_back(taken);
        let again = trail.take();
        assert_eq!((&again[0].value, again.len()), (&first, count));
        while !trail.take().is_empty() {}
        assert_eq!(trail.0.waiting.lock().bytes, 0);
    }
}
