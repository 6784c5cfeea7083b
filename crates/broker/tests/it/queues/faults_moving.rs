//! Power loss at every change of the disk while messages move and die: each confirmed message is in exactly
//! one queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stafett_broker::Broker;
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::{AppendOutcome, DeadLetter, Declare, QueueSettings};

use super::support::{World, body, durable, messages};
use crate::simulated::{losing_power_at, on_disk};

const QUEUES: [&str; 3] = ["from", "to", "dead"];
const MESSAGES: usize = 60;

/// Publishes, moves half of the messages, and lets the others expire. Returns the number of confirmed ones.
async fn script(broker: &Arc<Broker>) -> usize {
    let world = World::of(broker);
    let dying = Declare {
        settings: QueueSettings {
            ttl_ms: Some(500),
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some("dead".into()),
            }),
            ..QueueSettings::default()
        },
        ..durable()
    };
    let mut queues = Vec::new();
    for name in QUEUES.iter().rev() {
        let declare = if *name == "from" { dying.clone() } else { durable() };
        let declared =
            broker
                .messaging()
                .queues()
                .declare(&stafett_model::Namespace::default(), name, declare);
        match declared.await {
            Ok(queue) => queues.push(queue),
            Err(_) => return 0,
        }
    }
    let (Some(from), Some(to)) = (queues.get(2), queues.get(1)) else {
        return 0;
    };
    let mut confirmed = 0;
    for at in (0..MESSAGES).step_by(10) {
        let appended = world.try_publish(from, messages(at..at + 10)).await;
        confirmed += appended
            .iter()
            .filter(|one| **one == AppendOutcome::Stored)
            .count();
    }
    for _ in 0..3 {
        let moving = broker.messaging().move_messages(from, to, MESSAGES as u64 / 6);
        if moving.await.is_ok_and(|moved| moved.stopped.is_some()) {
            return confirmed;
        }
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    confirmed
}

/// Returns the messages of all queues after a failure, after all deaths.
fn left(disk: &SimulatedDisk, boots: u8) -> Vec<u32> {
    let left = on_disk(disk, boots, async |broker, _| {
        let world = World::of(broker);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut left = Vec::new();
        for name in QUEUES {
            if world.get(name).is_some() {
                let there = world.drain(name).await;
                left.extend(there.iter().map(|one| body(one).parse::<u32>().unwrap()));
            }
        }
        left
    });
    left.expect("the journal opens again")
}

#[test]
fn whenever_the_power_goes_what_moves_or_dies_is_in_one_queue_only() {
    let disk = SimulatedDisk::new();
    let confirmed = on_disk(&disk, 1, async |broker, _| script(broker).await);
    assert_eq!(confirmed, Some(MESSAGES));
    let changes = disk.changes();
    assert!(changes > 30, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let confirmed = on_disk(&disk, 1, async |broker, _| script(broker).await);
        disk.lose_power(change);
        let left = left(&disk, 2);
        let found: BTreeSet<u32> = left.iter().copied().collect();
        assert_eq!(found.len(), left.len(), "change {change} of {changes}: {left:?}");
        // Each publication is confirmed as a whole, one after the other.
        let missing: Vec<u32> = (0..)
            .take(confirmed.unwrap_or(0))
            .filter(|one| !found.contains(one))
            .collect();
        assert!(missing.is_empty(), "change {change} of {changes}: {missing:?}");
    }
}
