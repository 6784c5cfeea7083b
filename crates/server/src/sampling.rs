//! Samples of the machine, the process and the broker, every 5 s while the broker serves.

use std::time::Duration;

use stafett_admin::node::Usage;
use stafett_broker::{Broker, NodeReading, STEP_MS};
use stafett_journal::disk::Clock;
use stafett_net::EVENTS;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::machine::MachineReader;
use crate::node::ThisNode;

/// Takes samples until it is dropped.
pub(crate) async fn run(broker: &Broker, node: &ThisNode) {
    let begun = Instant::now();
    let mut machine = MachineReader::new(node.data_dir.clone(), node.descriptors_max);
    let mut due = interval(Duration::from_millis(STEP_MS.unsigned_abs()));
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut shed = node.net.shed_all();
    loop {
        due.tick().await;
        let steady = begun.elapsed();
        let usage = machine.read(steady.as_secs_f64());
        *node.usage.lock() = usage;
        let steady_ms = i64::try_from(steady.as_millis()).unwrap_or(i64::MAX);
        let was_short = broker.histories().short_since_ms().is_some();
        broker.sweep(steady_ms, Clock::system().now_ms(), &reading(node, &usage));
        let is_short = broker.histories().short_since_ms().is_some();
        let free = usage.machine.disk_free_bytes;
        if is_short && !was_short {
            tracing::warn!(target: EVENTS, kind = "alarm.begins", name = "space_short", free, "publishers wait for space");
        } else if was_short && !is_short {
            tracing::info!(target: EVENTS, kind = "alarm.ends", name = "space_short", free, "publishers go on");
        }
        shed = note_overload(node, shed);
    }
}

/// Notes whether work was refused since the last call. `before` is the number then; returns the one now.
fn note_overload(node: &ThisNode, before: u64) -> u64 {
    let now = node.net.shed_all();
    let mut since = node.overloaded_since.lock();
    if now > before && since.is_none() {
        *since = Some(Clock::system().now_ms());
        tracing::warn!(target: EVENTS, kind = "alarm.begins", name = "overloaded", "new work is refused");
    } else if now == before && since.take().is_some() {
        tracing::info!(target: EVENTS, kind = "alarm.ends", name = "overloaded", refused = now, "work is taken again");
    }
    now
}

fn reading(node: &ThisNode, usage: &Usage) -> NodeReading {
    let (mut connections, mut connections_opened) = (0, 0);
    for (open, accepted) in node.connections() {
        connections += u64::try_from(open).unwrap_or_default();
        connections_opened += accepted;
    }
    let Usage { machine, process } = usage;
    NodeReading {
        connections,
        connections_opened,
        cpu_user: machine.cpu_user,
        cpu_system: machine.cpu_system,
        cpu_wait: machine.cpu_wait,
        memory_available_bytes: machine.memory_available_bytes,
        disk_free_bytes: machine.disk_free_bytes,
        disk_read_rate: machine.disk_read_rate,
        disk_written_rate: machine.disk_written_rate,
        network_received_rate: machine.network_received_rate,
        network_sent_rate: machine.network_sent_rate,
        process_cpu: process.cpu_user + process.cpu_system,
        resident_bytes: process.resident_bytes,
        descriptors: process.descriptors,
    }
}
