//! Metrics of connections. Handles are resolved once per listener and then only incremented.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::shedding::Seconds;
use crate::tls::notice::Notices;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    listener: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShedLabels {
    listener: &'static str,
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    listener: &'static str,
    reason: &'static str,
}

/// Metric families that all listeners share.
#[derive(Debug)]
pub struct NetMetrics {
    open: Family<ListenerLabel, Gauge>,
    accepted: Family<ListenerLabel, Counter>,
    refused: Family<ListenerLabel, Counter>,
    received_bytes: Family<ListenerLabel, Counter>,
    sent_bytes: Family<ListenerLabel, Counter>,
    receive_seconds: Family<ListenerLabel, Histogram>,
    errors: Family<ErrorLabels, Counter>,
    shed: Family<ShedLabels, Counter>,
    shed_all: Arc<AtomicU64>,
    waiting_oldest: Family<ListenerLabel, Seconds>,
    waiting: Family<ListenerLabel, Gauge>,
    handshakes: Family<ListenerLabel, Counter>,
    handshake_failures: Family<HandshakeLabels, Counter>,
    certificate_expiry: Family<ListenerLabel, Gauge>,
    certificate_failures: Family<ListenerLabel, Counter>,
}

impl Default for NetMetrics {
    fn default() -> Self {
        Self {
            open: Family::default(),
            accepted: Family::default(),
            refused: Family::default(),
            received_bytes: Family::default(),
            sent_bytes: Family::default(),
            receive_seconds: Family::new_with_constructor(receive_seconds),
            errors: Family::default(),
            shed: Family::default(),
            shed_all: Arc::default(),
            waiting_oldest: Family::default(),
            waiting: Family::default(),
            handshakes: Family::default(),
            handshake_failures: Family::default(),
            certificate_expiry: Family::default(),
            certificate_failures: Family::default(),
        }
    }
}

impl NetMetrics {
    /// Creates the families and registers them in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let it = Self::default();
        registry.register(
            "connections_open",
            "Connections that are open now",
            it.open.clone(),
        );
        registry.register(
            "connections_accepted",
            "Connections that were accepted",
            it.accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections that were closed at once because the listener had as many as it may have",
            it.refused.clone(),
        );
        registry.register(
            "received_bytes",
            "Bytes read from connections",
            it.received_bytes.clone(),
        );
        registry.register(
            "sent_bytes",
            "Bytes written to connections",
            it.sent_bytes.clone(),
        );
        registry.register(
            "receive_seconds",
            "Time from the beginning of a frame to its end, of those that came in several reads",
            it.receive_seconds.clone(),
        );
        registry.register(
            "connection_errors",
            "Connections that ended, or were not accepted, for the reason in kind",
            it.errors.clone(),
        );
        it.register_shedding(registry);
        it.register_tls(registry);
        it
    }

    fn register_tls(&self, registry: &mut Registry) {
        registry.register(
            "tls_handshakes",
            "TLS handshakes that were completed",
            self.handshakes.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed, for the reason",
            self.handshake_failures.clone(),
        );
        registry.register(
            "tls_certificate_expiry_timestamp_seconds",
            "Time at which the certificate of a listener ends, in seconds since 1970",
            self.certificate_expiry.clone(),
        );
        registry.register(
            "tls_certificate_failures",
            "New certificates that were not good, so that the one before stayed",
            self.certificate_failures.clone(),
        );
    }

    /// Shows the end of the validity of a listener's certificate.
    pub fn set_certificate_expiry(&self, listener: &'static str, not_after_s: u64) {
        let gauge = self.certificate_expiry.get_or_create(&ListenerLabel { listener });
        gauge.set(i64::try_from(not_after_s).unwrap_or(i64::MAX));
    }

    /// Counts a new certificate of a listener that was not good.
    pub fn certificate_failed(&self, listener: &'static str) {
        self.certificate_failures
            .get_or_create(&ListenerLabel { listener })
            .inc();
    }

    fn register_shedding(&self, registry: &mut Registry) {
        registry.register(
            "shed",
            "Work that was refused because requests waited too long, of listeners that shed load",
            self.shed.clone(),
        );
        registry.register(
            "waiting_oldest_seconds",
            "The longest time that a request waited before it began, of the last two intervals, of listeners \
             that shed load",
            self.waiting_oldest.clone(),
        );
        registry.register(
            "waiting_requests",
            "Requests that are read and unanswered, of listeners that shed load",
            self.waiting.clone(),
        );
    }

    /// Returns the gauges of a listener that sheds load: the longest waiting time, and the requests.
    pub(crate) fn waiting(&self, name: &'static str) -> (Seconds, Gauge) {
        let label = ListenerLabel { listener: name };
        let oldest = self.waiting_oldest.get_or_create(&label).clone();
        (oldest, self.waiting.get_or_create(&label).clone())
    }

    /// Returns the amount of work that all listeners refused since the start.
    #[must_use]
    pub fn shed_all(&self) -> u64 {
        self.shed_all.load(Ordering::Relaxed)
    }

    /// Returns the counters of refused work of a listener.
    pub(crate) fn shed(&self, listener: &'static str) -> ShedCounters {
        ShedCounters {
            listener,
            family: self.shed.clone(),
            all: Arc::clone(&self.shed_all),
        }
    }

    /// Returns the handles of one listener.
    #[must_use]
    pub fn listener(&self, name: &'static str) -> Arc<ListenerMetrics> {
        let label = ListenerLabel { listener: name };
        Arc::new(ListenerMetrics {
            name,
            open: self.open.get_or_create(&label).clone(),
            accepted: self.accepted.get_or_create(&label).clone(),
            refused: self.refused.get_or_create(&label).clone(),
            received_bytes: self.received_bytes.get_or_create(&label).clone(),
            sent_bytes: self.sent_bytes.get_or_create(&label).clone(),
            receive_seconds: self.receive_seconds.get_or_create(&label).clone(),
            errors: self.errors.clone(),
            handshakes: self.handshakes.clone(),
            handshake_failures: self.handshake_failures.clone(),
            notices: Notices::default(),
        })
    }
}

/// Counters of the work that a listener refused.
#[derive(Debug)]
pub(crate) struct ShedCounters {
    listener: &'static str,
    family: Family<ShedLabels, Counter>,
    /// Work of all listeners together.
    all: Arc<AtomicU64>,
}

impl ShedCounters {
    pub(crate) fn add(&self, what: &'static str, count: u64) {
        let listener = self.listener;
        self.all.fetch_add(count, Ordering::Relaxed);
        self.family
            .get_or_create(&ShedLabels { listener, what })
            .inc_by(count);
    }
}

/// Buckets from 10 µs to 10 s.
fn receive_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 4.0, 11))
}

/// The handles of one listener.
#[derive(Debug)]
pub struct ListenerMetrics {
    name: &'static str,
    pub open: Gauge,
    pub accepted: Counter,
    pub refused: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    pub receive_seconds: Histogram,
    errors: Family<ErrorLabels, Counter>,
    handshakes: Family<ListenerLabel, Counter>,
    handshake_failures: Family<HandshakeLabels, Counter>,
    /// Log lines that strangers can cause.
    pub(crate) notices: Notices,
}

impl Default for ListenerMetrics {
    fn default() -> Self {
        Self {
            name: "",
            open: Gauge::default(),
            accepted: Counter::default(),
            refused: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            receive_seconds: receive_seconds(),
            errors: Family::default(),
            handshakes: Family::default(),
            handshake_failures: Family::default(),
            notices: Notices::default(),
        }
    }
}

impl ListenerMetrics {
    /// Returns the listener's name, as in the label.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Counts an error; `kind` is one of a fixed set of words.
    pub fn error(&self, kind: &'static str) {
        self.errors
            .get_or_create(&ErrorLabels {
                listener: self.name,
                kind,
            })
            .inc();
    }

    /// Returns how often [`Self::error`] was called with `kind`.
    #[must_use]
    pub fn errors(&self, kind: &'static str) -> u64 {
        self.errors
            .get_or_create(&ErrorLabels {
                listener: self.name,
                kind,
            })
            .get()
    }

    /// Counts a TLS handshake.
    pub(crate) fn handshake_done(&self) {
        let label = ListenerLabel { listener: self.name };
        self.handshakes.get_or_create(&label).inc();
    }

    /// Counts a TLS handshake that failed; `reason` is one of a fixed set of words.
    pub(crate) fn handshake_failed(&self, reason: &'static str) {
        let listener = self.name;
        let labels = HandshakeLabels { listener, reason };
        self.handshake_failures.get_or_create(&labels).inc();
    }

    /// Returns the TLS handshakes that were completed.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        let label = ListenerLabel { listener: self.name };
        self.handshakes.get_or_create(&label).get()
    }

    /// Returns the TLS handshakes that failed for `reason`.
    #[must_use]
    pub fn handshake_failures(&self, reason: &'static str) -> u64 {
        let listener = self.name;
        let labels = HandshakeLabels { listener, reason };
        self.handshake_failures.get_or_create(&labels).get()
    }
}
