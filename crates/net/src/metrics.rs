//! What is counted about connections. Handles are resolved once per listener and then only incremented.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    listener: &'static str,
    kind: &'static str,
}

/// The families that all listeners share.
#[derive(Debug, Default)]
pub struct NetMetrics {
    open: Family<ListenerLabel, Gauge>,
    accepted: Family<ListenerLabel, Counter>,
    refused: Family<ListenerLabel, Counter>,
    received_bytes: Family<ListenerLabel, Counter>,
    sent_bytes: Family<ListenerLabel, Counter>,
    errors: Family<ErrorLabels, Counter>,
}

impl NetMetrics {
    /// Creates the families and makes them visible in `registry`.
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
            "connection_errors",
            "Connections that ended, or were not accepted, for the reason in kind",
            it.errors.clone(),
        );
        it
    }

    /// The handles of one listener.
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
            errors: self.errors.clone(),
        })
    }
}

/// The handles of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    name: &'static str,
    pub open: Gauge,
    pub accepted: Counter,
    pub refused: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    errors: Family<ErrorLabels, Counter>,
}

impl ListenerMetrics {
    /// The listener's name, as in the label.
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

    /// How often [`Self::error`] was told of `kind`.
    #[must_use]
    pub fn errors(&self, kind: &'static str) -> u64 {
        self.errors
            .get_or_create(&ErrorLabels {
                listener: self.name,
                kind,
            })
            .get()
    }
}
