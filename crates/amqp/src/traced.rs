//! Batches of published messages for the performance log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stafett_messaging::Published;
use stafett_net::{Line, ListenerMetrics, Parts, Trace};
use tokio::time::Instant;

/// The log, and the facts of a connection for its lines.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionTrace {
    pub trace: Arc<Trace>,
    pub metrics: Arc<ListenerMetrics>,
    pub peer: SocketAddr,
}

/// A batch that may be written to the log when its outcome is known.
#[derive(Debug)]
pub(crate) struct TracedBatch {
    connection: ConnectionTrace,
    is_sampled: bool,
    messages: u64,
    bytes: u64,
    process: Duration,
    handed_over: Instant,
}

impl ConnectionTrace {
    /// Begins a batch of a turn that began then. `None` if it is not written in any case.
    pub(crate) fn begin(&self, begun: Instant, messages: usize, bytes: u64) -> Option<Box<TracedBatch>> {
        let is_sampled = self.trace.samples();
        self.trace.wants(is_sampled, Duration::MAX).then(|| {
            let now = Instant::now();
            Box::new(TracedBatch {
                connection: self.clone(),
                is_sampled,
                messages: messages as u64,
                bytes,
                process: now - begun,
                handed_over: now,
            })
        })
    }
}

impl TracedBatch {
    /// Writes its line.
    pub(crate) fn write(self, outcomes: &[Published]) {
        let store = self.handed_over.elapsed();
        let took = self.process + store;
        let ConnectionTrace { trace, metrics, peer } = self.connection;
        if !trace.wants(self.is_sampled, took) {
            return;
        }
        let is_stored = |outcome: &Published| matches!(outcome, Published::Stored | Published::Unroutable);
        let result = if outcomes.iter().all(is_stored) {
            "ok"
        } else {
            "refused"
        };
        trace.write(Line {
            took,
            name: Cow::Borrowed("basic.publish"),
            result: Cow::Borrowed(result),
            client: peer.to_string(),
            connections: metrics.open.get(),
            parts: Parts {
                process: self.process,
                store,
                ..Parts::default()
            },
            bytes_in: self.bytes,
            messages: self.messages,
            ..Line::of("request")
        });
    }
}
