//! Power loss at every change of the disk while messages are received out of their turn: one whose settlement
//! was answered never comes again, and no message is lost or doubled.

use std::collections::BTreeSet;
use std::sync::Arc;

use stafett_broker::Broker;
use stafett_delivery::Settle;
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::{Acknowledge, AppendOutcome, Receive, SettleLeases};
use stafett_model::StoredMessage;

use super::receiving::{ALL, bodies};
use super::support::{World, body, durable, messages};
use crate::simulated::{losing_power_at, on_disk};

const MESSAGES: usize = 12;

#[derive(Debug, Default)]
struct Told {
    stored: usize,
    done: BTreeSet<String>,
    /// Message whose settlement was begun and not answered.
    begun: Option<String>,
}

/// Takes every second message, the last first: by turns at once, and under a lease that is then settled.
async fn script(broker: &Arc<Broker>) -> Told {
    let mut told = Told::default();
    let _ = take(broker, &mut told).await;
    told
}

async fn take(broker: &Arc<Broker>, told: &mut Told) -> Option<()> {
    let world = World::of(broker);
    let queues = broker.messaging().queues();
    let declaring = queues.declare(&stafett_model::Namespace::default(), "q", durable());
    let queue = declaring.await.ok()?;
    let published = world.try_publish(&queue, messages(0..MESSAGES)).await;
    let stored = published.iter().filter(|one| **one == AppendOutcome::Stored);
    told.stored = stored.count();
    (told.stored > 0).then_some(())?;
    for number in (0..MESSAGES).rev().step_by(2) {
        let text = number.to_string();
        let is_it = |message: &StoredMessage| message.value() == text.as_bytes();
        let request = Receive {
            wanted: Some(&is_it),
            ..ALL
        };
        told.begun = Some(text.clone());
        if number % 4 == 1 {
            let received = queue.receive(request).await.ok()?;
            assert_eq!(bodies(&received).concat(), text);
        } else {
            let ack = Acknowledge::Lease { ms: 60_000 };
            let received = queue.receive(Receive { ack, ..request }).await.ok()?;
            assert_eq!(bodies(&received).concat(), text);
            let leases = received.messages.iter().filter_map(|(_, lease)| *lease);
            let settle = SettleLeases {
                leases: leases.map(|id| (id, Settle::Complete)).collect(),
                stored: true,
            };
            assert_eq!(queue.settle_leases(settle).await.ok()?, [true]);
        }
        told.begun = None;
        told.done.insert(text);
    }
    Some(())
}

async fn check(broker: &Arc<Broker>, told: &Told) {
    let world = World::of(broker);
    let Some(_) = world.get("q") else {
        assert_eq!(told.stored, 0);
        return;
    };
    let left: Vec<String> = world.drain("q").await.iter().map(body).collect();
    let once: BTreeSet<String> = left.iter().cloned().collect();
    assert_eq!(once.len(), left.len(), "{left:?}");
    assert!(once.is_disjoint(&told.done), "{left:?} {told:?}");
    if told.stored > 0 {
        let all = (0..MESSAGES).map(|number| number.to_string());
        let lost: Vec<String> = all
            .filter(|text| !once.contains(text) && !told.done.contains(text))
            .collect();
        assert!(
            lost.is_empty() || lost.iter().eq(&told.begun),
            "{lost:?} {told:?}"
        );
    }
}

#[test]
fn what_was_received_and_stored_as_settled_never_comes_again_wherever_the_power_goes() {
    let disk = SimulatedDisk::new();
    let done = on_disk(&disk, 1, async |broker, _| script(broker).await).unwrap();
    assert_eq!((done.stored, done.done.len()), (MESSAGES, MESSAGES / 2));
    let changes = disk.changes();
    assert!(changes > 20, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let told = on_disk(&disk, 1, async |broker, _| script(broker).await);
        disk.lose_power(change);
        let told = told.unwrap_or_default();
        let checked = on_disk(&disk, 2, async |broker, _| check(broker, &told).await);
        assert_eq!(checked, Some(()), "change {change} of {changes}");
    }
}
