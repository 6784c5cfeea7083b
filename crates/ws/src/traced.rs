//! Reads of a WebSocket for the performance log: a line for the commands that were read together.

use std::borrow::Cow;
use std::time::Duration;

use stafett_net::{Connection, Line, Parts};
use tokio::time::Instant;

/// Commands that were read together, and may be written to the log.
#[derive(Debug)]
pub(crate) struct Traced {
    is_sampled: bool,
    begun: Instant,
    processed: Instant,
    bytes: usize,
}

impl Traced {
    /// Begins a read. `None` if it is not written in any case.
    pub(crate) fn begin(connection: &Connection) -> Option<Self> {
        let trace = connection.trace.as_ref()?;
        let is_sampled = trace.samples();
        let begun = Instant::now();
        trace.wants(is_sampled, Duration::MAX).then_some(Self {
            is_sampled,
            begun,
            processed: begun,
            bytes: 0,
        })
    }

    pub(crate) fn on_processed(&mut self, bytes: usize) {
        (self.processed, self.bytes) = (Instant::now(), bytes);
    }

    /// Writes its line, once everything of it is stored.
    pub(crate) fn write(self, name: &'static str, connection: &Connection) {
        let Some(trace) = &connection.trace else { return };
        let parts = Parts {
            process: self.processed - self.begun,
            store: self.processed.elapsed(),
            ..Parts::default()
        };
        let took = parts.process + parts.store;
        if trace.wants(self.is_sampled, took) {
            trace.write(Line {
                took,
                name: Cow::Borrowed(name),
                client: connection.entry.peer.to_string(),
                connections: connection.entry.metrics.open.get(),
                parts,
                bytes_in: self.bytes as u64,
                ..Line::of("request")
            });
        }
    }
}
