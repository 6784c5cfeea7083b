//! Power loss at every change of the disk while messages are delayed: each confirmed one is released once,
//! and none returns after its settlement was on disk.
//!
//! The minutes of the wall clock begin at different steps in each run; the guarantees are the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_broker::Broker;
use stafett_delivery::Delivery;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{DiskJournal, Journal};
use stafett_messaging::queues::Declare;
use stafett_messaging::{NewBinding, NewExchange};
use stafett_messaging::{Publish, Published};
use stafett_model::{Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch};

use super::support::{message, to_queue};
use crate::simulated::{losing_power_at, on_disk};

/// The last one is due in another minute.
const DELAYS_MS: [u64; 6] = [0, 5, 40, 150, 400, 61_000];
const ROUNDS: u32 = 3;
const AT_ONCE: u32 = 12;

/// History of the messages, by number.
#[derive(Debug, Default)]
struct Ledger {
    offered: BTreeSet<u32>,
    confirmed: BTreeSet<u32>,
    settled: BTreeSet<u32>,
    /// Messages settled long enough ago to be on disk.
    settled_for_good: BTreeSet<u32>,
}

fn number(delivery: &Delivery) -> u32 {
    std::str::from_utf8(delivery.message.value())
        .unwrap()
        .parse()
        .unwrap()
}

fn delayed(number: u32) -> Publish {
    Message {
        delay_ms: DELAYS_MS.into_iter().cycle().nth(number as usize),
        value: Bytes::from(number.to_string()),
        ..message("a")
    }
    .into()
}

/// Declares a queue `q` behind a delaying exchange `late`. `None` if that was not confirmed.
async fn prepare(broker: &Broker) -> Option<()> {
    let space = Namespace::default();
    let late = NewExchange {
        delays: true,
        ..NewExchange::new(ExchangeKind::Direct)
    };
    let (_, stored) = broker
        .messaging()
        .exchanges()
        .declare(&space, "late", late)
        .ok()?;
    stored.await.ok()?;
    let durable = Declare {
        durable: true,
        ..Declare::default()
    };
    broker
        .messaging()
        .queues()
        .declare(&space, "q", durable)
        .await
        .ok()?;
    let binding = NewBinding {
        source: "late".into(),
        destination: to_queue("q"),
        key: Bytes::from_static(b"a"),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    };
    broker.messaging().bind(&space, binding).ok()?.await.ok()
}

/// Publishes with delays and takes some of the released messages, several times.
async fn script(broker: &Arc<Broker>, journal: &DiskJournal, ledger: &mut Ledger) {
    if prepare(broker).await.is_none() {
        return;
    }
    let space = Namespace::default();
    let Some(queue) = broker.messaging().queues().get(&space, "q") else {
        return;
    };
    for round in 0..ROUNDS {
        let numbers = round * AT_ONCE..(round + 1) * AT_ONCE;
        ledger.offered.extend(numbers.clone());
        let messages = numbers.clone().map(delayed).collect();
        let Ok(published) = broker.messaging().publish(&space, "late", messages) else {
            return;
        };
        for (number, published) in numbers.zip(published.await) {
            if published == Published::Stored {
                ledger.confirmed.insert(number);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..4 {
            let Some((delivery, _)) = queue.take_one(false).await else {
                break;
            };
            ledger.settled.insert(number(&delivery));
        }
        let so_far = ledger.settled.clone();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if journal.failure().is_none() {
            ledger.settled_for_good = so_far;
        }
    }
}

/// Returns the messages after a failure, once all are due.
fn left(disk: &SimulatedDisk, boots: u8) -> Vec<u32> {
    let left = on_disk(disk, boots, async |broker, _| {
        tokio::time::sleep(Duration::from_secs(70)).await;
        // If the queue's declaration was lost, there are no messages.
        let Some(queue) = broker.messaging().queues().get(&Namespace::default(), "q") else {
            return Vec::new();
        };
        let mut left = Vec::new();
        while let Some((delivery, _)) = queue.take_one(true).await {
            left.push(number(&delivery));
        }
        left
    });
    left.expect("the journal opens again")
}

fn check(left: &[u32], ledger: &Ledger, at: &str) {
    let found: BTreeSet<u32> = left.iter().copied().collect();
    assert_eq!(found.len(), left.len(), "{at}: each once: {left:?}");
    for number in &found {
        assert!(
            ledger.offered.contains(number),
            "{at}: {number} was never published"
        );
        assert!(
            !ledger.settled_for_good.contains(number),
            "{at}: {number} came back after it was settled"
        );
    }
    for number in &ledger.confirmed {
        assert!(
            found.contains(number) || ledger.settled.contains(number),
            "{at}: {number} was confirmed and is lost: {left:?}"
        );
    }
}

#[test]
fn whenever_the_power_goes_messages_that_wait_come_once() {
    let disk = SimulatedDisk::new();
    let mut ledger = Ledger::default();
    on_disk(&disk, 1, async |broker, journal| {
        script(broker, journal, &mut ledger).await;
    });
    assert_eq!(ledger.confirmed.len(), (ROUNDS * AT_ONCE) as usize);
    assert!(ledger.settled_for_good.len() > 4, "{ledger:?}");
    let changes = disk.changes();
    assert!(changes > 50, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let mut ledger = Ledger::default();
        on_disk(&disk, 1, async |broker, journal| {
            script(broker, journal, &mut ledger).await;
        });
        disk.lose_power(change);
        let at = format!("change {change} of {changes}");
        let first = left(&disk, 2);
        check(&first, &ledger, &at);
        disk.kill();
        let again: BTreeSet<u32> = left(&disk, 2).into_iter().collect();
        assert_eq!(
            again,
            first.iter().copied().collect(),
            "{at}: what was released stays where it came to"
        );
    }
}
