//! One open connection, as others see it.
//!
//! Its own task counts and notes its waits by atomic writes. The rest changes a few times in the life of a
//! connection and is behind a short lock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use crate::lock::lock;
use crate::metrics::ListenerMetrics;
use crate::tls::TlsSession;

/// Reason why a connection makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// Memory for its next request.
    Memory = 1,
    /// The journal has not stored its messages yet.
    Journal,
    /// The disk has too little space for its messages.
    Space,
    /// Its peer does not read its answers and messages.
    Outbox,
    /// Other members of its group.
    Group,
}

impl Wait {
    const ALL: [Self; 5] = [
        Self::Memory,
        Self::Journal,
        Self::Space,
        Self::Outbox,
        Self::Group,
    ];

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Journal => "journal",
            Self::Space => "space",
            Self::Outbox => "outbox",
            Self::Group => "group",
        }
    }
}

/// Stage in the life of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its client has not introduced itself yet.
    Handshake,
    Running,
    /// It waits for space.
    Blocked,
    Closing,
}

impl State {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Closing => "closing",
        }
    }
}

/// Entry of a connection in the registry.
#[derive(Debug)]
pub struct ConnectionEntry {
    /// Unique among all connections of all listeners of the process.
    pub id: u64,
    pub peer: SocketAddr,
    /// Address of this side.
    pub local: SocketAddr,
    /// Time of its beginning, in ms since 1970.
    pub since_ms: i64,
    /// Metrics of its listener.
    pub metrics: Arc<ListenerMetrics>,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    waits_for: AtomicU8,
    rest: Mutex<Rest>,
}

#[derive(Debug)]
struct Rest {
    drain: CancellationToken,
    task: Option<AbortHandle>,
    /// Reason given by an operator.
    reason: Option<Arc<str>>,
    client: Option<Arc<dyn Client>>,
    /// Another node has accepted it.
    is_relayed: bool,
    /// `None` on a plain connection.
    tls: Option<Arc<TlsSession>>,
    /// `None` while no one looks at rates.
    sample: Option<Box<Sample>>,
}

/// Bytes at a moment, and the rates up to it.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Steady time, in ms.
    at_ms: i64,
    received_bytes: u64,
    sent_bytes: u64,
    /// `None` of the first sample.
    rates: Option<TrafficRates>,
}

/// Bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrafficRates {
    pub received: f64,
    pub sent: f64,
}

impl TrafficRates {
    fn of(received: u64, sent: u64, ms: i64) -> Self {
        let seconds = ms.max(1) as f64 / 1000.0;
        Self {
            received: received as f64 / seconds,
            sent: sent as f64 / seconds,
        }
    }
}

/// Bytes of a connection, and the reads and writes that moved them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl ConnectionEntry {
    pub(crate) fn new(
        id: u64,
        (peer, local): (SocketAddr, SocketAddr),
        metrics: Arc<ListenerMetrics>,
        since_ms: i64,
        drain: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            peer,
            local,
            since_ms,
            metrics,
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            waits_for: AtomicU8::new(0),
            rest: Mutex::new(Rest {
                drain,
                task: None,
                reason: None,
                client: None,
                is_relayed: false,
                tls: None,
                sample: None,
            }),
        })
    }

    /// Creates an entry that no registry lists, for a connection that was not accepted by a listener.
    #[must_use]
    pub fn of(id: u64, metrics: Arc<ListenerMetrics>) -> Arc<Self> {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::new(id, (nowhere, nowhere), metrics, 0, CancellationToken::new())
    }

    /// Notes if another node has accepted the connection.
    pub(crate) fn set_relayed(&self, is_relayed: bool) {
        self.rest().is_relayed = is_relayed;
    }

    /// Returns true if another node has accepted the connection: its client takes this one for that node.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        self.rest().is_relayed
    }

    /// Counts a read.
    #[inline]
    pub fn on_received(&self, bytes: usize) {
        self.metrics.received_bytes.inc_by(bytes as u64);
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write.
    #[inline]
    pub fn on_sent(&self, bytes: usize) {
        self.metrics.sent_bytes.inc_by(bytes as u64);
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Returns the rates between the latest two samples; without them, since the beginning of the connection.
    /// `now_ms` is the wall time.
    #[must_use]
    pub fn rates(&self, now_ms: i64) -> TrafficRates {
        let sampled = self.rest().sample.as_ref().and_then(|sample| sample.rates);
        sampled.unwrap_or_else(|| {
            let traffic = self.traffic();
            let ms = now_ms.saturating_sub(self.since_ms);
            TrafficRates::of(traffic.received_bytes, traffic.sent_bytes, ms)
        })
    }

    /// Takes a sample.
    pub(super) fn sample(&self, at_ms: i64) {
        let traffic = self.traffic();
        let mut rest = self.rest();
        let rates = rest.sample.as_ref().map(|before| {
            let received = traffic.received_bytes.saturating_sub(before.received_bytes);
            let sent = traffic.sent_bytes.saturating_sub(before.sent_bytes);
            TrafficRates::of(received, sent, at_ms.saturating_sub(before.at_ms))
        });
        rest.sample = Some(Box::new(Sample {
            at_ms,
            received_bytes: traffic.received_bytes,
            sent_bytes: traffic.sent_bytes,
            rates,
        }));
    }

    /// Forgets the samples.
    pub(super) fn forget_samples(&self) {
        self.rest().sample = None;
    }

    /// Notes the reason why the connection makes no progress.
    #[inline]
    pub fn set_wait(&self, wait: Option<Wait>) {
        let byte = wait.map_or(0, |wait| wait as u8);
        self.waits_for.store(byte, Ordering::Relaxed);
    }

    /// Notes a wait, unless it waits for something else already.
    #[inline]
    pub fn begin_wait(&self, wait: Option<Wait>) {
        if self.waits_for.load(Ordering::Relaxed) == 0 {
            self.set_wait(wait);
        }
    }

    /// Notes a wait until the returned value is dropped.
    pub fn waiting(&self, wait: Wait) -> Waiting<'_> {
        self.set_wait(Some(wait));
        Waiting(self)
    }

    #[must_use]
    pub fn waits_for(&self) -> Option<Wait> {
        let byte = self.waits_for.load(Ordering::Relaxed);
        Wait::ALL.into_iter().find(|wait| *wait as u8 == byte)
    }

    #[must_use]
    pub fn state(&self) -> State {
        let rest = self.rest();
        if rest.drain.is_cancelled() {
            State::Closing
        } else if rest.client.is_none() {
            State::Handshake
        } else if self.waits_for() == Some(Wait::Space) {
            State::Blocked
        } else {
            State::Running
        }
    }

    /// Adds the client, as its front end knows it, in place of an earlier one.
    pub fn introduce(&self, client: Arc<dyn Client>) {
        self.rest().client = Some(client);
    }

    pub fn client(&self) -> Option<Arc<dyn Client>> {
        self.rest().client.clone()
    }

    pub(crate) fn set_tls(&self, session: TlsSession) {
        self.rest().tls = Some(Arc::new(session));
    }

    /// Returns the facts of the TLS session, with the certificate of the client. `None` on a plain connection
    /// and during the handshake.
    pub fn tls(&self) -> Option<Arc<TlsSession>> {
        self.rest().tls.clone()
    }

    /// Returns the reason of an operator who ends the connection.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.rest().reason.clone()
    }

    /// Ends the connection by another token from now on, as the protocol has changed.
    pub fn end_by(&self, drain: CancellationToken) {
        let mut rest = self.rest();
        if rest.reason.is_some() {
            drain.cancel();
        }
        rest.drain = drain;
    }

    pub(crate) fn set_task(&self, task: AbortHandle) {
        self.rest().task = Some(task);
    }

    /// Releases the task's memory.
    pub(super) fn forget_task(&self) {
        self.rest().task = None;
    }

    /// Drops the task.
    pub(super) fn abort(&self) {
        let task = self.rest().task.take();
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Begins to end the connection by its protocol. Returns false if that was begun already.
    pub fn begin_ending(&self, reason: &str) -> bool {
        let mut rest = self.rest();
        if rest.reason.is_some() {
            return false;
        }
        rest.reason = Some(reason.into());
        let drain = rest.drain.clone();
        drop(rest);
        drain.cancel();
        true
    }

    #[cfg(test)]
    pub(super) fn drain(&self) -> CancellationToken {
        self.rest().drain.clone()
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        lock(&self.rest)
    }
}

/// A wait of a connection, which ends when this is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a ConnectionEntry);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set_wait(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_noted_while_it_lasts() {
        let entry = ConnectionEntry::of(1, Arc::default());
        assert_eq!(entry.waits_for(), None);
        for wait in Wait::ALL {
            let waiting = entry.waiting(wait);
            assert_eq!(entry.waits_for(), Some(wait));
            drop(waiting);
            assert_eq!(entry.waits_for(), None);
        }
    }

    #[test]
    fn reads_and_writes_are_counted_here_and_for_the_listener() {
        let entry = ConnectionEntry::of(1, Arc::default());
        entry.on_received(10);
        entry.on_received(5);
        entry.on_sent(7);
        let expected = Traffic {
            received_bytes: 15,
            sent_bytes: 7,
            reads: 2,
            writes: 1,
        };
        assert_eq!(entry.traffic(), expected);
        let metrics = &entry.metrics;
        assert_eq!((metrics.received_bytes.get(), metrics.sent_bytes.get()), (15, 7));
    }

    #[test]
    fn rates_are_those_between_two_samples_and_before_them_since_the_beginning() {
        let entry = ConnectionEntry::of(1, Arc::default());
        let rates = |received, sent| TrafficRates { received, sent };
        entry.on_received(1000);
        entry.on_sent(500);
        assert_eq!(entry.rates(2000), rates(500.0, 250.0));
        entry.sample(7000);
        assert_eq!(entry.rates(2000), rates(500.0, 250.0), "one sample is none");
        entry.on_received(100);
        entry.sample(12_000);
        assert_eq!(entry.rates(0), rates(20.0, 0.0));
        entry.sample(17_000);
        assert_eq!(entry.rates(0), rates(0.0, 0.0));
        entry.forget_samples();
        assert_eq!(entry.rates(1000), rates(1100.0, 500.0));
    }

    #[test]
    fn a_connection_that_was_ended_before_its_protocol_changed_ends_under_the_new_one() {
        let entry = ConnectionEntry::of(1, Arc::default());
        let (before, after) = (CancellationToken::new(), CancellationToken::new());
        entry.end_by(before.clone());
        assert!(!before.is_cancelled());
        assert!(entry.begin_ending("why"));
        assert!(before.is_cancelled());
        entry.end_by(after.clone());
        assert!(after.is_cancelled());
    }
}
