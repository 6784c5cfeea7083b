//! Samples of the machine, the process and the broker, every 5 s while the broker serves.

use std::time::Duration;

use stafett_admin::node::Usage;
use stafett_broker::{Broker, NodeReading, STEP_MS};
use stafett_journal::disk::Clock;
use stafett_net::EVENTS;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::machine::MachineReader;
use crate::node::ThisNode;

/// Samples without a refusal after which the alarm `overloaded` ends: under a load near the limit, work is
/// refused now and then.
const CALM: u32 = 6;

/// Takes samples until it is dropped.
pub(crate) async fn run(broker: &Broker, node: &ThisNode) {
    let begun = Instant::now();
    let mut machine = MachineReader::new(node.data_dir.clone(), node.descriptors_max);
    let mut due = interval(Duration::from_millis(STEP_MS.unsigned_abs()));
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut overload = OverloadAlarm::new(node.net.shed_all());
    loop {
        due.tick().await;
        let steady = begun.elapsed();
        let usage = machine.read(steady.as_secs_f64());
        *node.usage.lock() = usage;
        let steady_ms = i64::try_from(steady.as_millis()).unwrap_or(i64::MAX);
        node.registry.sample_rates(steady_ms);
        let was_short = broker.histories().short_since_ms().is_some();
        broker.sweep(steady_ms, Clock::system().now_ms(), &reading(node, &usage));
        let is_short = broker.histories().short_since_ms().is_some();
        let free = usage.machine.disk_free_bytes;
        if is_short && !was_short {
            tracing::warn!(target: EVENTS, kind = "alarm.begins", name = "space_short", free, "publishers wait for space");
        } else if was_short && !is_short {
            tracing::info!(target: EVENTS, kind = "alarm.ends", name = "space_short", free, "publishers go on");
        }
        let refused = node.net.shed_all();
        match overload.sample(refused) {
            Some(AlarmChange::Begins) => {
                *node.overloaded_since.lock() = Some(Clock::system().now_ms());
                tracing::warn!(target: EVENTS, kind = "alarm.begins", name = "overloaded", "new work is refused");
            }
            Some(AlarmChange::Ends) => {
                *node.overloaded_since.lock() = None;
                tracing::info!(target: EVENTS, kind = "alarm.ends", name = "overloaded", refused, "work is taken again");
            }
            None => {}
        }
    }
}

/// The alarm `overloaded`: from the first refusal of work until none was refused for [`CALM`] samples.
#[derive(Debug)]
struct OverloadAlarm {
    /// Refusals at the last sample.
    refused: u64,
    /// Samples since the last refusal.
    calm: u32,
    is_on: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum AlarmChange {
    Begins,
    Ends,
}

impl OverloadAlarm {
    fn new(refused: u64) -> Self {
        Self {
            refused,
            calm: 0,
            is_on: false,
        }
    }

    /// Takes the number of refusals since the start. Returns the change of the alarm.
    fn sample(&mut self, refused: u64) -> Option<AlarmChange> {
        if refused != self.refused {
            self.refused = refused;
            self.calm = 0;
            let was_on = std::mem::replace(&mut self.is_on, true);
            return (!was_on).then_some(AlarmChange::Begins);
        }
        self.calm = self.calm.saturating_add(1);
        let ends = self.is_on && self.calm >= CALM;
        self.is_on &= !ends;
        ends.then_some(AlarmChange::Ends)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_of_overload_lasts_while_work_is_refused_now_and_then() {
        let mut alarm = OverloadAlarm::new(7);
        assert_eq!(alarm.sample(7), None);
        assert_eq!(alarm.sample(8), Some(AlarmChange::Begins));
        for refused in 9..20 {
            for _ in 1..CALM {
                assert_eq!(alarm.sample(refused), None, "now and then");
            }
        }
        assert_eq!(alarm.sample(19), None);
        assert_eq!(alarm.sample(19), Some(AlarmChange::Ends));
        assert_eq!(alarm.sample(19), None);
        assert_eq!(alarm.sample(20), Some(AlarmChange::Begins));
    }
}
