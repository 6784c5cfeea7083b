//! Power loss at every change of the disk: no confirmed message is lost, none returns after its settlement
//! was on disk, and the order is kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use stafett_broker::Broker;
use stafett_delivery::{ConsumerSpec, DeliveryId, Outbox, Settle};
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{DiskJournal, Journal};
use stafett_messaging::queues::{
    AppendOutcome, Declare, OwnerId, Publication, Queue, QueueSettings, Targets,
};
use stafett_model::{Message, Namespace};

use super::support::{durable, message, spec};
use crate::simulated::{losing_power_at, on_disk};

/// History of the messages, by number.
#[derive(Debug, Default)]
struct Ledger {
    /// True if the queue keeps transient messages.
    keeps_transient: bool,
    offered: BTreeSet<u32>,
    confirmed: BTreeSet<u32>,
    transient: BTreeSet<u32>,
    settled: BTreeSet<u32>,
    /// Messages settled long enough ago to be on disk.
    settled_for_good: BTreeSet<u32>,
}

async fn publish(broker: &Broker, queue: &Arc<Queue>, numbers: std::ops::Range<u32>, ledger: &mut Ledger) {
    let mut publication = Publication::default();
    let route = publication.route(Targets {
        queues: smallvec![Arc::clone(queue)],
        logs: smallvec![],
        append_time: false,
        is_waiting: false,
    });
    for number in numbers.clone() {
        let persistent = number % 5 != 4;
        ledger.offered.insert(number);
        if !persistent && !ledger.keeps_transient {
            ledger.transient.insert(number);
        }
        let message = Message {
            persistent,
            ..message(&number.to_string())
        };
        publication.push(message, route);
    }
    let appended = broker.messaging().queues().append(publication).await;
    for (number, appended) in numbers.zip(appended) {
        if appended == AppendOutcome::Stored {
            ledger.confirmed.insert(number);
        }
    }
}

/// Publishes, takes, settles some and requeues some, several times.
async fn script(broker: &Arc<Broker>, journal: &DiskJournal, ledger: &mut Ledger) {
    let declare = Declare {
        settings: QueueSettings {
            two_priorities: ledger.keeps_transient,
            keeps_transient: ledger.keeps_transient,
            ..QueueSettings::default()
        },
        ..durable()
    };
    let declared = broker
        .messaging()
        .queues()
        .declare(&Namespace::default(), "q", declare)
        .await;
    let Ok(queue) = declared else { return };
    let outbox = Outbox::new(1 << 20);
    let limited = ConsumerSpec {
        credit: Some(8),
        ..spec()
    };
    let Ok(_consumer) = queue.consume(OwnerId(0), limited, Arc::clone(&outbox), 1) else {
        return;
    };
    for round in 0..4 {
        publish(broker, &queue, round * 12..round * 12 + 12, ledger).await;
        for _ in 0..3 {
            let filled = tokio::time::timeout(Duration::from_millis(50), outbox.filled()).await;
            if filled.is_err() {
                break;
            }
            let (mut runs, mut events) = (Vec::new(), Vec::new());
            outbox.take(&mut runs, &mut events);
            let mut settlements: Vec<(DeliveryId, Settle)> = Vec::new();
            for delivery in runs.iter().flat_map(|run| &run.deliveries) {
                let number: u32 = String::from_utf8_lossy(delivery.message.value()).parse().unwrap();
                if !number.is_multiple_of(3) {
                    ledger.settled.insert(number);
                    settlements.push((delivery.id, Settle::Complete));
                } else if number.is_multiple_of(2) && delivery.delivery_count < 1 {
                    settlements.push((delivery.id, Settle::Requeue));
                }
            }
            queue.settle(&settlements);
        }
        let so_far = ledger.settled.clone();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if journal.failure().is_none() {
            ledger.settled_for_good = so_far;
        }
    }
}

/// Returns the messages in the queue after a failure, in order.
fn left(disk: &SimulatedDisk, boots: u8) -> Vec<u32> {
    let left = on_disk(disk, boots, async |broker, _| {
        let queues = broker.messaging().queues();
        // If the queue's declaration was lost, there are no messages.
        let Some(queue) = queues.get(&Namespace::default(), "q") else {
            return Vec::new();
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ready = queue.counts().ready;
        let mut left: Vec<u32> = Vec::new();
        while let Some((delivery, _)) = queue.take_one(true).await {
            left.push(String::from_utf8_lossy(delivery.message.value()).parse().unwrap());
        }
        assert_eq!(left.len() as u64, ready, "what is counted is there");
        left
    });
    left.expect("the journal opens again")
}

fn check(left: &[u32], ledger: &Ledger, at: &str) {
    assert!(left.is_sorted_by(|a, b| a < b), "{at}: in order, once: {left:?}");
    let left: BTreeSet<u32> = left.iter().copied().collect();
    for number in &left {
        assert!(
            ledger.offered.contains(number),
            "{at}: {number} was never published"
        );
        assert!(!ledger.transient.contains(number), "{at}: {number} was transient");
        assert!(
            !ledger.settled_for_good.contains(number),
            "{at}: {number} came back after it was settled"
        );
    }
    for number in ledger.confirmed.difference(&ledger.transient) {
        assert!(
            left.contains(number) || ledger.settled.contains(number),
            "{at}: {number} was confirmed and is lost: {left:?}"
        );
    }
}

impl Ledger {
    fn new(keeps_transient: bool) -> Self {
        Self {
            keeps_transient,
            ..Self::default()
        }
    }
}

fn power_goes(keeps_transient: bool) {
    let disk = SimulatedDisk::new();
    let mut ledger = Ledger::new(keeps_transient);
    on_disk(&disk, 1, async |broker, journal| {
        script(broker, journal, &mut ledger).await;
    });
    assert_eq!(ledger.confirmed.len(), 48);
    assert_eq!(ledger.transient.is_empty(), keeps_transient);
    assert!(ledger.settled_for_good.len() > 10, "{ledger:?}");
    let changes = disk.changes();
    assert!(changes > 50, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let mut ledger = Ledger::new(keeps_transient);
        on_disk(&disk, 1, async |broker, journal| {
            script(broker, journal, &mut ledger).await;
        });
        disk.lose_power(change);
        let at = format!("change {change} of {changes}");
        let first = left(&disk, 2);
        check(&first, &ledger, &at);
        disk.kill();
        assert_eq!(
            left(&disk, 2),
            first,
            "{at}: as it was, nothing was settled since"
        );
    }
}

#[test]
fn whenever_the_power_goes_queues_come_back_as_promised() {
    power_goes(false);
}

#[test]
fn whenever_the_power_goes_a_queue_that_keeps_all_loses_no_transient_message_either() {
    power_goes(true);
}

#[test]
fn a_killed_program_finds_its_queues_again() {
    for keeps_transient in [false, true] {
        let disk = SimulatedDisk::new();
        let mut ledger = Ledger::new(keeps_transient);
        on_disk(&disk, 1, async |broker, journal| {
            script(broker, journal, &mut ledger).await;
        });
        disk.kill();
        let first = left(&disk, 1);
        check(&first, &ledger, "killed");
        let unsettled: Vec<u32> = ledger
            .confirmed
            .difference(&ledger.transient)
            .filter(|number| !ledger.settled.contains(number))
            .copied()
            .collect();
        assert_eq!(first, unsettled);
    }
}
