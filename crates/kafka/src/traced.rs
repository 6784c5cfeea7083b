//! Requests for the performance log.

use std::borrow::Cow;
use std::time::Duration;

use stafett_kafka_wire::ApiKey;
use stafett_net::{Line, Parts, Trace};
use tokio::time::Instant;

use crate::context::RequestContext;

/// A request that may be written to the log.
#[derive(Debug)]
pub(crate) struct Traced {
    is_sampled: bool,
    api: Option<ApiKey>,
    receive: Duration,
    process: Duration,
    /// When its execution ended, and when its answer was ready.
    executed: Instant,
    ready: Instant,
    bytes_in: usize,
    /// Bytes of its answer.
    pub bytes_out: usize,
    is_answered: bool,
}

/// Begins a request: the decision is made before it is executed. `None` if it is not written in any case.
pub(crate) fn begin(trace: &Trace, receive: Duration, bytes_in: usize) -> Option<Box<Traced>> {
    let is_sampled = trace.samples();
    let now = Instant::now();
    trace.wants(is_sampled, Duration::MAX).then(|| {
        Box::new(Traced {
            is_sampled,
            api: None,
            receive,
            process: Duration::ZERO,
            executed: now,
            ready: now,
            bytes_in,
            bytes_out: 0,
            is_answered: true,
        })
    })
}

impl Traced {
    pub(crate) fn on_executed(&mut self, api: Option<ApiKey>, process: Duration, now: Instant) {
        (self.api, self.process, self.executed, self.ready) = (api, process, now, now);
    }

    pub(crate) fn on_ready(&mut self, is_answered: bool) {
        self.ready = Instant::now();
        self.is_answered = is_answered;
    }

    /// Writes the line of a request whose answer was written.
    pub(crate) fn write(self, trace: &Trace, context: &RequestContext, connections: i64) {
        let parts = Parts {
            receive: self.receive,
            process: self.process,
            store: self.ready - self.executed,
            send: self.ready.elapsed(),
        };
        let took = parts.receive + parts.process + parts.store + parts.send;
        if trace.wants(self.is_sampled, took) {
            trace.write(Line {
                took,
                name: Cow::Borrowed(self.api.map_or("unknown", ApiKey::name)),
                result: Cow::Borrowed(if self.is_answered { "ok" } else { "closed" }),
                client: context.entry.peer.to_string(),
                connections,
                parts,
                bytes_in: self.bytes_in as u64,
                bytes_out: self.bytes_out as u64,
                ..Line::of("request")
            });
        }
    }
}
