//! Power loss at every change of the disk: exchanges, bindings and queues are as after the last confirmed
//! change, or as after the one in progress, and never in between.

use std::sync::Arc;

use bytes::Bytes;
use stafett_broker::Broker;
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::{Declare, OwnerId};
use stafett_messaging::{NewBinding, NewExchange, Unbind};
use stafett_model::Namespace;
use stafett_routing::{ExchangeKind, HeaderMatch};

use super::support::{to_exchange, to_queue};
use crate::simulated::{losing_power_at, on_disk};

#[derive(Debug)]
enum Step {
    Exchange(&'static str, ExchangeKind),
    Alternate(&'static str, &'static str),
    Queue(&'static str),
    BindQueue(&'static str, &'static str, &'static str),
    BindExchange(&'static str, &'static str, &'static str),
    UnbindQueue(&'static str, &'static str, &'static str),
    DeleteExchange(&'static str),
    DeleteQueue(&'static str),
    Namespace(&'static str),
}

const STEPS: &[Step] = &[
    Step::Exchange("topics", ExchangeKind::Topic),
    Step::Queue("a"),
    Step::BindQueue("topics", "a", "kern.#"),
    Step::Exchange("all", ExchangeKind::FanOut),
    Step::Queue("b"),
    Step::BindExchange("topics", "all", "*.info"),
    Step::BindQueue("all", "b", ""),
    Step::Namespace("other"),
    Step::BindQueue("topics", "b", "mail.#"),
    Step::UnbindQueue("topics", "a", "kern.#"),
    Step::Alternate("strict", "all"),
    Step::BindQueue("strict", "a", "x"),
    // With all its bindings, on both sides.
    Step::DeleteExchange("all"),
    Step::DeleteQueue("b"),
    Step::Exchange("all", ExchangeKind::Direct),
    Step::Queue("b"),
    Step::DeleteQueue("a"),
];

/// Applies a step. Returns true if it was confirmed.
async fn apply(broker: &Broker, step: &Step) -> bool {
    let space = Namespace::default();
    let messaging = broker.messaging();
    let exchanges = messaging.exchanges();
    let bind = |source: &str, destination, key: &str| NewBinding {
        source: source.into(),
        destination,
        key: Bytes::copy_from_slice(key.as_bytes()),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    };
    let stored = match step {
        Step::Exchange(name, kind) => exchanges
            .declare(&space, name, NewExchange::new(kind.clone()))
            .ok()
            .map(|(_, stored)| stored),
        Step::Alternate(name, other) => {
            let new = NewExchange {
                alternate: Some((*other).into()),
                ..NewExchange::new(ExchangeKind::Direct)
            };
            exchanges
                .declare(&space, name, new)
                .ok()
                .map(|(_, stored)| stored)
        }
        Step::Namespace(name) => exchanges
            .create_namespace(&Namespace::new(name))
            .ok()
            .map(|(_, stored)| stored),
        Step::BindQueue(source, queue, key) => {
            messaging.bind(&space, bind(source, to_queue(queue), key)).ok()
        }
        Step::BindExchange(source, to, key) => {
            messaging.bind(&space, bind(source, to_exchange(to), key)).ok()
        }
        Step::UnbindQueue(source, queue, key) => {
            let which = Unbind {
                source,
                destination: &to_queue(queue),
                key: key.as_bytes(),
                arguments: b"",
            };
            exchanges.unbind(&space, &which).ok()
        }
        Step::DeleteExchange(name) => exchanges.delete(&space, name, false).ok(),
        Step::Queue(name) => {
            let durable = Declare {
                durable: true,
                ..Declare::default()
            };
            return messaging.queues().declare(&space, name, durable).await.is_ok();
        }
        Step::DeleteQueue(name) => {
            let deleted = messaging.queues().delete(&space, name, false, false, OwnerId(0));
            return deleted.await.is_ok();
        }
    };
    match stored {
        Some(stored) => stored.await.is_ok(),
        None => false,
    }
}

/// Returns all definitions.
fn defined(broker: &Broker) -> Vec<String> {
    let space = Namespace::default();
    let exchanges = broker.messaging().exchanges();
    let mut defined: Vec<String> = exchanges
        .list(&space)
        .iter()
        .map(|one| format!("{} {:?} {:?}", one.name, one.is.kind, one.is.alternate))
        .collect();
    let bindings = exchanges.bindings(&space);
    defined.extend(
        bindings
            .iter()
            .map(|one| format!("{} {:?} {:?}", one.source, one.destination, one.key)),
    );
    defined.extend(
        broker
            .messaging()
            .queues()
            .all()
            .iter()
            .map(|queue| queue.name.to_string()),
    );
    if exchanges.has_namespace(&Namespace::new("other")) {
        defined.push("other".to_owned());
    }
    defined.sort();
    defined
}

/// Applies all steps until one is not confirmed. Returns the definitions after each.
async fn script(broker: &Arc<Broker>) -> Vec<Vec<String>> {
    let mut after = vec![defined(broker)];
    for step in STEPS {
        if !apply(broker, step).await {
            break;
        }
        after.push(defined(broker));
    }
    after
}

#[test]
fn whenever_the_power_goes_definitions_are_those_of_a_moment() {
    let disk = SimulatedDisk::new();
    let states = on_disk(&disk, 1, async |broker, _| script(broker).await).unwrap();
    assert_eq!(states.len(), STEPS.len() + 1, "all of it works");
    for (before, after) in states.iter().zip(states.iter().skip(1)) {
        assert_ne!(before, after, "each step can be seen");
    }
    let changes = disk.changes();
    assert!(changes > 30, "{changes}");
    for change in 1..=changes {
        let disk = losing_power_at(change);
        let mut confirmed = 0;
        on_disk(&disk, 1, async |broker, _| {
            for step in STEPS {
                if !apply(broker, step).await {
                    break;
                }
                confirmed += 1;
            }
        });
        disk.lose_power(change);
        let at = format!("change {change} of {changes}, {confirmed} steps confirmed");
        let found = on_disk(&disk, 2, async |broker, _| defined(broker)).expect(&at);
        let possible = &states[confirmed..states.len().min(confirmed + 2)];
        assert!(
            possible.contains(&found),
            "{at}: {found:#?}\nnone of {possible:#?}"
        );
        disk.kill();
        let again = on_disk(&disk, 2, async |broker, _| defined(broker)).expect(&at);
        assert_eq!(again, found, "{at}: it stays so");
    }
}
