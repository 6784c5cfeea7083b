//! Memory of the node, by part.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Problem, Query, Slot};
use tokio::task::spawn_blocking;

use crate::journal::JournalDesk;
use crate::node::{LOG, Node};
use crate::{Routes, answer};

/// Use of memory.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Memory")]
struct MemoryUse {
    resident_bytes: Option<u64>,
    request_memory: RequestMemory,
    /// Bytes of recent appends that are kept in memory; null before the journal is open.
    tail_cache_bytes: Option<u64>,
    /// Null before the broker serves; so are those that follow.
    queues: Option<QueueMemory>,
    live: Option<LiveMemory>,
    /// Members and commits of groups.
    groups_bytes: Option<usize>,
    /// Histories of objects, which `history.bytes_max` bounds.
    history_bytes: Option<usize>,
    /// Memory that is resident beyond the sum of the parts: the program, threads, connections, indexes of the
    /// journal, users and rules, and memory that the allocator keeps.
    other_bytes: Option<u64>,
}

/// Bytes of requests in memory.
#[derive(Debug, Serialize, JsonSchema)]
struct RequestMemory {
    used_bytes: u64,
    max_bytes: u64,
    /// Connections that wait for some.
    waiting: u64,
}

/// Queues and messages that take memory.
#[derive(Debug, Serialize, JsonSchema)]
struct QueueMemory {
    count: usize,
    in_flight: usize,
    /// Definitions and states, without the part that grows with messages in flight.
    state_bytes: usize,
    /// Messages that were read ahead of their hand-out.
    kept_bytes: usize,
    /// Indexes of messages by sender, context or header.
    index_bytes: usize,
}

/// Live topics and subscriptions.
#[derive(Debug, Serialize, JsonSchema)]
struct LiveMemory {
    topics: u64,
    subscriptions: u64,
    /// Topics, clients and subscriptions.
    bytes: usize,
}

/// Memory of the broker's parts. They are approximate.
#[derive(Debug)]
struct Parts {
    queues: QueueMemory,
    live: LiveMemory,
    groups_bytes: usize,
    history_bytes: usize,
}

impl Parts {
    /// Looks at all queues, groups and live topics, which takes a while where they are many.
    fn of(broker: &Broker) -> Self {
        let queues = broker.messaging().queues();
        let all = queues.all();
        let memory = queues.memory();
        let present = broker.live_topics().presence();
        let mut groups_bytes = 0;
        broker.groups().each(|group| groups_bytes += group.memory_bytes());
        Self {
            queues: QueueMemory {
                count: all.len(),
                in_flight: all.iter().map(|queue| queue.counts().in_flight).sum(),
                state_bytes: memory.state_bytes,
                kept_bytes: memory.kept_bytes,
                index_bytes: memory.index_bytes,
            },
            live: LiveMemory {
                topics: present.topics as u64,
                subscriptions: present.subscriptions as u64,
                bytes: broker.live_topics().memory_bytes(),
            },
            groups_bytes,
            history_bytes: broker.history_bytes(),
        }
    }

    fn bytes(&self) -> u64 {
        let queues = &self.queues;
        let parts = [
            queues.state_bytes,
            queues.kept_bytes,
            queues.index_bytes,
            self.live.bytes,
            self.groups_bytes,
            self.history_bytes,
        ];
        parts.iter().map(|bytes| *bytes as u64).sum()
    }
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get("/v1/node/memory", "Shows the use of memory, by part.")
            .query(&[LOG])
            .answers::<MemoryUse>(200),
        memory,
    )
}

async fn memory(
    State(node): State<Arc<dyn Node>>,
    State(broker): State<Slot<Broker>>,
    State(desk): State<JournalDesk>,
    query: Query,
) -> Result<Response, Problem> {
    let process = node.memory();
    let parts = match broker.get() {
        Ok(broker) => spawn_blocking(move || Parts::of(&broker)).await.ok(),
        Err(_) => None,
    };
    let tail_cache_bytes = desk.journal.get().ok().map(|it| it.status().tail_cache_bytes);
    let known =
        process.requests.0 + tail_cache_bytes.unwrap_or_default() + parts.as_ref().map_or(0, Parts::bytes);
    let (groups_bytes, history_bytes) = parts
        .as_ref()
        .map(|parts| (parts.groups_bytes, parts.history_bytes))
        .unzip();
    let (queues, live) = parts.map(|parts| (parts.queues, parts.live)).unzip();
    let shown = MemoryUse {
        resident_bytes: process.resident_bytes,
        request_memory: RequestMemory {
            used_bytes: process.requests.0,
            max_bytes: process.requests.1,
            waiting: process.waiting,
        },
        tail_cache_bytes,
        queues,
        live,
        groups_bytes,
        history_bytes,
        other_bytes: process.resident_bytes.map(|bytes| bytes.saturating_sub(known)),
    };
    if query.flag("log")? {
        tracing::info!(memory = %json!(shown), "memory");
    }
    Ok(answer(StatusCode::OK, &shown))
}
