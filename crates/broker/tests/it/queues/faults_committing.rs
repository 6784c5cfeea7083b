//! Power loss at every change of the disk while transactions over queues and a topic are committed: each
//! counts in all of its parts or in none.

use std::sync::Arc;

use bytes::Bytes;
use stafett_broker::Broker;
use stafett_delivery::{Settle, Source};
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::AppendOutcome;
use stafett_messaging::{Destination, NewBinding, NewExchange, Publish, Transaction};
use stafett_model::{Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch};
use stafett_topics::{NewTopic, TopicSettings};

use super::support::{World, body, durable, message, messages};
use crate::simulated::{losing_power_at, on_disk};
use crate::transactions::committed;

const MESSAGES: usize = 8;

/// Settles each message of `from` in a transaction that also stores it in `to` and, by an exchange, in the
/// topic. Returns the number of stored messages and that of committed transactions.
async fn script(broker: &Arc<Broker>) -> (usize, usize) {
    let mut done = (0, 0);
    let _ = transfer(broker, &mut done).await;
    done
}

async fn transfer(broker: &Arc<Broker>, (stored, committed): &mut (usize, usize)) -> Option<()> {
    let world = World::of(broker);
    let (namespace, messaging) = (Namespace::default(), broker.messaging());
    let declare = |name| messaging.queues().declare(&namespace, name, durable());
    let from = declare("from").await.ok()?;
    declare("to").await.ok()?;
    let new = NewTopic {
        name: "t".into(),
        partitions: Some(1),
        settings: TopicSettings::default(),
    };
    broker.catalog().create(vec![new]).await.remove(0).ok()?;
    let exchange = NewExchange {
        durable: true,
        ..NewExchange::new(ExchangeKind::FanOut)
    };
    let (_, declared) = messaging.exchanges().declare(&namespace, "ex", exchange).ok()?;
    declared.await.ok()?;
    let binding = NewBinding {
        source: "ex".into(),
        destination: Destination::Topic("t".into()),
        key: Bytes::new(),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    };
    messaging.bind(&namespace, binding).ok()?.await.ok()?;
    let published = world.try_publish(&from, messages(0..MESSAGES)).await;
    *stored = published
        .iter()
        .filter(|one| **one == AppendOutcome::Stored)
        .count();
    while let Some((delivery, _)) = from.take_one(true).await {
        let text = body(&delivery);
        let publish = |exchange: &str, key: &str| {
            let message = Message {
                exchange: exchange.into(),
                routing_key: key.into(),
                ..message(&text)
            };
            (exchange.into(), vec![Publish::from(message)])
        };
        let transaction = Transaction {
            messages: vec![publish("", "to"), publish("ex", "")],
            settlements: vec![(Source::of(&from), vec![(delivery.id, Settle::Complete)])],
        };
        messaging.commit(&namespace, transaction).await.ok()?;
        *committed += 1;
    }
    Some(())
}

/// Checks the parts after a failure.
async fn check(broker: &Arc<Broker>, stored: usize, told: usize) {
    let world = World::of(broker);
    let text = |number: usize| number.to_string();
    let mut parts: [Vec<String>; 2] = Default::default();
    for (name, part) in ["from", "to"].iter().zip(&mut parts) {
        if world.get(name).is_some() {
            part.extend(world.drain(name).await.iter().map(body));
        }
    }
    let [mut left, moved] = parts;
    let records = match broker.topics().named("t") {
        Some(topic) => committed(broker, topic.log(0).unwrap()).await,
        None => Vec::new(),
    };
    assert_eq!(records, moved);
    assert!(moved.len() == told || moved.len() == told + 1, "{moved:?}");
    let mut all = moved;
    all.append(&mut left);
    if stored > 0 {
        assert_eq!(all, (0..MESSAGES).map(text).collect::<Vec<_>>());
    }
}

#[test]
fn a_transaction_counts_in_all_queues_and_topics_or_in_none_wherever_the_power_goes() {
    let disk = SimulatedDisk::new();
    let done = on_disk(&disk, 1, async |broker, _| script(broker).await);
    assert_eq!(done, Some((MESSAGES, MESSAGES)));
    let changes = disk.changes();
    assert!(changes > 30, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let done = on_disk(&disk, 1, async |broker, _| script(broker).await);
        disk.lose_power(change);
        let (stored, committed) = done.unwrap_or_default();
        let checked = on_disk(&disk, 2, async |broker, _| {
            check(broker, stored, committed).await;
        });
        assert_eq!(checked, Some(()), "change {change} of {changes}");
    }
}
