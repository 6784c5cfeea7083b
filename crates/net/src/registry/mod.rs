//! Registry of open connections: listed and ended without a part in their work.
//!
//! ```text
//! accept ─▶ Connections ── id ─▶ ConnectionEntry ◀─ counts, its wait, its client ── the connection's task
//!               │                      │
//!               └ pages by id          └ end: the reason, then its drain token; its task after a while
//! ```
//!
//! The table is locked for a look-up or for one page. A connection's own task never takes that lock between
//! its beginning and its end.
//!
//! - [`entry`]: one connection
//! - [`client`]: facts that its front end adds

pub mod client;
pub mod entry;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::lock::lock;

pub use client::{ChannelBoard, ChannelState, Client, ClientWords, ask_channels};
pub use entry::{ConnectionEntry, State, TrafficRates, Wait};

/// Time that a connection has to end by itself. Then its task is dropped.
pub const ENDING_MAX: Duration = Duration::from_secs(10);
/// Entries that are copied under one lock.
const PAGE: usize = 1000;
/// Samples of rates after a look at them.
const SAMPLES_AFTER_LOOK: u32 = 12;

/// All open connections of a process, by id.
#[derive(Debug, Default)]
pub struct Connections {
    table: Mutex<BTreeMap<u64, Arc<ConnectionEntry>>>,
    /// Samples of rates that are still taken: none while no one looks.
    samples_left: AtomicU32,
    /// Waits for connections that were told to end.
    endings: TaskTracker,
}

impl Connections {
    /// Adds a connection, which is listed as long as the returned value lives.
    pub(crate) fn add(self: &Arc<Self>, entry: &Arc<ConnectionEntry>) -> Listed {
        self.table().insert(entry.id, Arc::clone(entry));
        Listed {
            id: entry.id,
            connections: Arc::clone(self),
        }
    }

    pub fn get(&self, id: u64) -> Option<Arc<ConnectionEntry>> {
        self.table().get(&id).cloned()
    }

    pub fn len(&self) -> usize {
        self.table().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns up to `count` connections with ids above `after`, in order.
    pub fn page(&self, after: u64, count: usize) -> Vec<Arc<ConnectionEntry>> {
        let table = self.table();
        let behind = table.range((Bound::Excluded(after), Bound::Unbounded));
        behind.take(count).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// Returns all connections by id. The table is locked for a page at a time, so connections that open or
    /// end meanwhile may be there or not.
    pub fn all(&self) -> Vec<Arc<ConnectionEntry>> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let page = self.page(after, PAGE);
            let is_last = page.len() < PAGE;
            after = page.last().map_or(after, |last| last.id);
            all.extend(page);
            if is_last {
                return all;
            }
        }
    }

    /// Notes that rates are looked at, so that samples are taken for a minute.
    pub fn on_rates_shown(&self) {
        self.samples_left.store(SAMPLES_AFTER_LOOK, Ordering::Relaxed);
    }

    /// Takes a sample of the traffic of each connection, if rates were looked at lately. To be called every
    /// few seconds, with the steady time in ms.
    pub fn sample_rates(&self, at_ms: i64) {
        let take = |left: u32| left.checked_sub(1);
        let left = self
            .samples_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        match left {
            Ok(2..) => self.all().iter().for_each(|entry| entry.sample(at_ms)),
            // Old samples would give a rate over a long time at the next look.
            Ok(_) => self.all().iter().for_each(|entry| entry.forget_samples()),
            Err(_) => {}
        }
    }

    /// Ends a connection in the words of its protocol. If it does not end in [`ENDING_MAX`], its task is
    /// dropped. Returns false if it was ending already: the first reason counts. Must be called within a
    /// Tokio runtime.
    pub fn end(&self, entry: &Arc<ConnectionEntry>, reason: &str) -> bool {
        if !entry.begin_ending(reason) {
            return false;
        }
        let entry = Arc::downgrade(entry);
        self.endings.spawn(async move {
            sleep(ENDING_MAX).await;
            if let Some(entry) = entry.upgrade() {
                entry.abort();
            }
        });
        true
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ConnectionEntry>>> {
        lock(&self.table)
    }
}

/// Lists a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    id: u64,
    connections: Arc<Connections>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let removed = self.connections.table().remove(&self.id);
        if let Some(entry) = removed {
            entry.forget_task();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ListenerMetrics;

    fn add(connections: &Arc<Connections>, id: u64) -> (Arc<ConnectionEntry>, Listed) {
        let entry = ConnectionEntry::of(id, Arc::<ListenerMetrics>::default());
        let listed = connections.add(&entry);
        (entry, listed)
    }

    #[test]
    fn connections_are_listed_by_id_in_pages_until_they_end() {
        let connections = Arc::<Connections>::default();
        let mut open: Vec<_> = (1..=2500).map(|id| add(&connections, id)).collect();
        let ids =
            |entries: Vec<Arc<ConnectionEntry>>| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(connections.page(10, 3)), [11, 12, 13]);
        assert_eq!(ids(connections.page(2499, 3)), [2500]);
        assert_eq!(ids(connections.all()), (1..=2500).collect::<Vec<_>>());
        open.retain(|(entry, _)| entry.id % 2 == 0);
        assert_eq!(connections.len(), 1250);
        assert_eq!(ids(connections.page(10, 2)), [12, 14]);
        assert!(connections.get(11).is_none() && connections.get(12).is_some());
        open.clear();
        assert!(connections.is_empty() && connections.all().is_empty());
    }

    #[test]
    fn rates_are_sampled_while_they_are_looked_at() {
        let connections = Arc::<Connections>::default();
        let (entry, _listed) = add(&connections, 1);
        entry.on_received(1000);
        let shows = |received| {
            let expected = TrafficRates { received, sent: 0.0 };
            assert_eq!(entry.rates(1000), expected);
        };
        for at_ms in [0, 5000] {
            connections.sample_rates(at_ms);
            shows(1000.0);
        }
        connections.on_rates_shown();
        connections.sample_rates(10_000);
        entry.on_received(50);
        connections.sample_rates(15_000);
        shows(10.0);
        for step in 0..SAMPLES_AFTER_LOOK {
            connections.sample_rates(20_000 + i64::from(step) * 5000);
        }
        // Nobody looks any more.
        shows(1050.0);
    }

    #[test]
    fn a_million_short_connections_leave_nothing_behind() {
        let connections = Arc::<Connections>::default();
        let mut open = std::collections::VecDeque::new();
        let mut last = std::sync::Weak::new();
        for id in 1..=1_000_000 {
            let (entry, listed) = add(&connections, id);
            last = Arc::downgrade(&entry);
            open.push_back(listed);
            if open.len() > 100 {
                open.pop_front();
            }
        }
        assert_eq!(connections.len(), 100);
        open.clear();
        assert!(connections.is_empty());
        assert_eq!(last.strong_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_once_and_with_the_first_reason() {
        let connections = Arc::<Connections>::default();
        let (entry, listed) = add(&connections, 1);
        let drain = entry.drain();
        assert_eq!((entry.state(), entry.reason()), (State::Handshake, None));
        assert!(connections.end(&entry, "maintenance"));
        assert!(!connections.end(&entry, "again"));
        assert!(drain.is_cancelled());
        assert_eq!(entry.reason().as_deref(), Some("maintenance"));
        assert_eq!(entry.state(), State::Closing);
        drop(listed);
        assert!(connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_end_is_dropped() {
        let connections = Arc::<Connections>::default();
        let (entry, listed) = add(&connections, 1);
        let tasks = TaskTracker::new();
        let task = tasks.spawn(async move {
            let _listed = listed;
            std::future::pending::<()>().await;
        });
        entry.set_task(task.abort_handle());
        let begun = tokio::time::Instant::now();
        assert!(connections.end(&entry, "stuck"));
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(begun.elapsed() >= ENDING_MAX);
        assert!(connections.is_empty());
    }
}
