//! Power loss at every change of the disk during a deletion with very many bindings, which are removed in
//! steps: afterwards either everything exists, or nothing of it and of its dependents.

use std::sync::Arc;

use bytes::Bytes;
use stafett_access::Caller;
use stafett_broker::Broker;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{DiskJournal, Journal, StateItem, StateSpace};
use stafett_messaging::queues::{Declare, OwnerId};
use stafett_messaging::{Destination, NewBinding, NewExchange};
use stafett_model::Namespace;
use stafett_routing::{ExchangeKind, HeaderMatch};
use stafett_topics::{NewTopic, TopicSettings};

use super::support::{to_exchange, to_queue};
use crate::simulated::{losing_power_at, on_disk};

/// More than two steps.
const BINDINGS: usize = 600;

fn default() -> Namespace {
    Namespace::default()
}

fn shop() -> Namespace {
    Namespace::new("shop")
}

async fn exchange(broker: &Broker, namespace: &Namespace, name: &str, auto_delete: bool) {
    let new = NewExchange {
        auto_delete,
        ..NewExchange::new(ExchangeKind::Topic)
    };
    let declared = broker.messaging().exchanges().declare(namespace, name, new);
    if let Ok((_, stored)) = declared {
        // The power may be lost.
        let _ = stored.await;
    }
}

async fn queue(broker: &Broker, namespace: &Namespace, name: &str) {
    let durable = Declare {
        durable: true,
        ..Declare::default()
    };
    let _ = broker
        .messaging()
        .queues()
        .declare(namespace, name, durable)
        .await;
}

async fn bind(broker: &Broker, namespace: &Namespace, source: &str, to: Destination, count: usize) {
    let mut last = None;
    for number in 0..count {
        let new = NewBinding {
            source: source.into(),
            destination: to.clone(),
            key: format!("key.{number}").into(),
            headers: HeaderMatch::default(),
            arguments: Bytes::new(),
        };
        last = broker.messaging().bind(namespace, new).ok();
    }
    if let Some(stored) = last {
        let _ = stored.await;
    }
}

/// `also` leads to `goes`; both are deleted with their last binding.
async fn chain(broker: &Broker, namespace: &Namespace, to: Destination) {
    exchange(broker, namespace, "goes", true).await;
    exchange(broker, namespace, "also", true).await;
    exchange(broker, namespace, "idle", true).await;
    bind(broker, namespace, "goes", to, 1).await;
    bind(broker, namespace, "also", to_exchange("goes"), 1).await;
}

/// Returns the definitions, and the number of bindings between each source and destination.
fn defined(broker: &Broker) -> Vec<String> {
    let exchanges = broker.messaging().exchanges();
    let mut found = Vec::new();
    for namespace in [default(), shop()] {
        let names = exchanges.list(&namespace);
        found.extend(
            names
                .iter()
                .map(|one| format!("{namespace} exchange {}", one.name)),
        );
        let bindings = exchanges.bindings(&namespace);
        let mut ways: Vec<_> = bindings
            .iter()
            .map(|one| format!("{namespace} {} {:?}", one.source, one.destination))
            .collect();
        ways.sort();
        for way in ways.chunk_by(|one, other| one == other) {
            found.extend(way.first().map(|one| format!("{one} {}", way.len())));
        }
    }
    let queues = broker.messaging().queues().all();
    found.extend(queues.iter().map(|queue| format!("queue {}", queue.name)));
    let topics = broker.topics().all();
    found.extend(topics.iter().map(|topic| format!("topic {}", topic.name)));
    found.retain(|what| !what.ends_with("exchange "));
    found.sort();
    found
}

/// Returns the number of stored items of exchanges and bindings.
fn stored(journal: &DiskJournal) -> usize {
    let mut count = 0;
    for space in [7, 8] {
        let mut see = |item: StateItem<'_>| count += usize::from(matches!(item, StateItem::Value { .. }));
        journal.load_state(StateSpace(space), &mut see).unwrap();
    }
    count
}

/// Returns the definitions, once all work of the start is on disk.
async fn settled(broker: &Broker) -> Vec<String> {
    let found = defined(broker);
    exchange(broker, &default(), "passing", false).await;
    if let Ok(stored) = broker
        .messaging()
        .exchanges()
        .delete(&default(), "passing", false)
    {
        let _ = stored.await;
    }
    found
}

/// Loses the power at every change that the deletion makes.
fn all_or_nothing(prepare: &impl AsyncFn(&Arc<Broker>), delete: &impl AsyncFn(&Arc<Broker>) -> bool) {
    let disk = SimulatedDisk::new();
    let whole = on_disk(&disk, 1, async |broker, _| {
        prepare(broker).await;
        let before = (defined(broker), disk.changes());
        assert!(delete(broker).await);
        (before, defined(broker))
    });
    let ((before, prepared), after) = whole.unwrap();
    let changes = disk.changes();
    let left = on_disk(&disk, 2, async |broker, journal| {
        (settled(broker).await, stored(journal))
    });
    let (found, left) = left.unwrap();
    assert_eq!(found, after);
    assert!(changes > prepared + 3, "{prepared} to {changes}");
    for change in prepared + 1..=changes {
        let disk = losing_power_at(change);
        let mut confirmed = false;
        on_disk(&disk, 1, async |broker, _| {
            prepare(broker).await;
            confirmed = delete(broker).await;
        });
        disk.lose_power(change);
        let at = format!("change {change} of {prepared} to {changes}");
        let found = on_disk(&disk, 2, async |broker, _| settled(broker).await).expect(&at);
        assert!(
            found == after || (found == before && !confirmed),
            "{at}: {found:#?}"
        );
        disk.kill();
        let again = on_disk(&disk, 3, async |broker, journal| {
            (defined(broker), stored(journal))
        });
        let (again, stored) = again.expect(&at);
        assert_eq!(again, found, "{at}: it stays so");
        if found == after {
            assert_eq!(stored, left, "{at}: nothing else is left");
        }
    }
}

#[test]
fn an_exchange_goes_with_those_that_go_with_their_last_binding() {
    all_or_nothing(
        &async |broker| {
            exchange(broker, &default(), "x", false).await;
            queue(broker, &default(), "q").await;
            chain(broker, &default(), to_exchange("x")).await;
            bind(broker, &default(), "x", to_queue("q"), BINDINGS).await;
        },
        &async |broker| match broker.messaging().exchanges().delete(&default(), "x", false) {
            Ok(stored) => stored.await.is_ok(),
            Err(_) => false,
        },
    );
}

#[test]
fn a_queue_goes_with_exchanges_that_go_with_their_last_binding() {
    all_or_nothing(
        &async |broker| {
            exchange(broker, &default(), "x", false).await;
            queue(broker, &default(), "q").await;
            chain(broker, &default(), to_queue("q")).await;
            bind(broker, &default(), "x", to_queue("q"), BINDINGS).await;
        },
        &async |broker| {
            let namespace = default();
            let deleted = broker
                .messaging()
                .queues()
                .delete(&namespace, "q", false, false, OwnerId(0));
            deleted.await.is_ok()
        },
    );
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    all_or_nothing(
        &async |broker| {
            if let Ok((_, stored)) = broker.messaging().exchanges().create_namespace(&shop()) {
                let _ = stored.await;
            }
            exchange(broker, &shop(), "x", false).await;
            for name in ["q", "r"] {
                queue(broker, &shop(), name).await;
            }
            chain(broker, &shop(), to_exchange("x")).await;
            bind(broker, &shop(), "x", to_queue("q"), BINDINGS).await;
            let stream = NewTopic {
                name: "stream-shop.s".into(),
                partitions: Some(1),
                settings: TopicSettings {
                    declared: Some(Bytes::from_static(b"as a stream")),
                    ..TopicSettings::default()
                },
            };
            broker.catalog().create(vec![stream]).await;
        },
        &async |broker| {
            broker
                .delete_namespace(&Arc::new(Caller::internal()), &shop())
                .await
                .is_ok()
        },
    );
}
