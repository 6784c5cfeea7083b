//! Connections that wait, and their reasons.

use schemars::JsonSchema;
use serde::Serialize;
use stafett_net::Connections;
use stafett_net::registry::Wait;

/// Connections by the cause for which they make no progress.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitingConnections {
    /// Those that wait for nothing but their clients.
    running: usize,
    waits_for: Waits,
}

/// Numbers of connections.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Waits {
    /// Memory for the next request.
    memory: usize,
    journal: usize,
    /// Space on the disk.
    space: usize,
    /// The client does not read.
    outbox: usize,
    /// The other members of a group.
    group: usize,
}

impl WaitingConnections {
    pub(crate) fn of(connections: &Connections) -> Self {
        let (mut running, mut waits_for) = (0, Waits::default());
        for entry in connections.all() {
            *match entry.waits_for() {
                None => &mut running,
                Some(Wait::Memory) => &mut waits_for.memory,
                Some(Wait::Journal) => &mut waits_for.journal,
                Some(Wait::Space) => &mut waits_for.space,
                Some(Wait::Outbox) => &mut waits_for.outbox,
                Some(Wait::Group) => &mut waits_for.group,
            } += 1;
        }
        Self { running, waits_for }
    }
}
