//! Concurrent changes: conflicts are decided once, and a restart gives the same state.

use std::sync::Arc;

use bytes::Bytes;
use stafett_messaging::queues::{Declare, OwnerId};
use stafett_messaging::{NewBinding, NewExchange, Unbind};
use stafett_routing::{ExchangeKind, HeaderMatch};
use tokio::task::JoinSet;

use super::support::{World, to_queue};

fn binding(key: usize) -> NewBinding {
    NewBinding {
        source: "x".into(),
        destination: to_queue("q"),
        key: Bytes::from(format!("k{}", key % 7)),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_kinds_declared_at_once_one_wins_for_all() {
    let world = Arc::new(World::new().await);
    for round in 0..50 {
        let name = format!("x{round}");
        let declare = |kind: ExchangeKind| {
            let (world, name) = (Arc::clone(&world), name.clone());
            tokio::task::spawn_blocking(move || {
                let new = NewExchange::new(kind.clone());
                let declared = world
                    .broker
                    .messaging()
                    .exchanges()
                    .declare(&world.namespace, &name, new);
                declared.is_ok().then_some(kind)
            })
        };
        let (one, other) = tokio::join!(declare(ExchangeKind::FanOut), declare(ExchangeKind::Direct));
        let won: Vec<_> = [one.unwrap(), other.unwrap()].into_iter().flatten().collect();
        assert_eq!(won.len(), 1);
        let found = world
            .broker
            .messaging()
            .exchanges()
            .get(&world.namespace, &name)
            .unwrap();
        assert_eq!(Some(&found.is.kind), won.first());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_binds_while_others_delete_leaves_nothing_that_a_restart_would_change() {
    let world = Arc::new(World::new().await);
    let mut tasks = JoinSet::new();
    for worker in 0..4 {
        let world = Arc::clone(&world);
        tasks.spawn(async move {
            let durable = Declare {
                durable: true,
                ..Declare::default()
            };
            for step in 0..200 {
                let exchanges = world.broker.messaging().exchanges();
                let new = NewExchange::new(ExchangeKind::Topic);
                match (worker + step) % 6 {
                    0 => drop(exchanges.declare(&world.namespace, "x", new)),
                    1 => drop(
                        world
                            .broker
                            .messaging()
                            .queues()
                            .declare(&world.namespace, "q", durable.clone())
                            .await,
                    ),
                    5 if step % 4 == 0 => drop(exchanges.delete(&world.namespace, "x", false)),
                    5 => {
                        let queues = world.broker.messaging().queues();
                        let deleting = queues.delete(&world.namespace, "q", false, false, OwnerId(0));
                        // Another task may have been faster.
                        let _gone = deleting.await;
                    }
                    2 => {
                        let key = format!("k{}", step % 7);
                        let to = to_queue("q");
                        drop(exchanges.unbind(
                            &world.namespace,
                            &Unbind {
                                source: "x",
                                destination: &to,
                                key: key.as_bytes(),
                                arguments: b"",
                            },
                        ));
                    }
                    _ => {
                        if let Ok(stored) = world.broker.messaging().bind(&world.namespace, binding(step)) {
                            stored.await.unwrap();
                        }
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let world = Arc::into_inner(world).unwrap();
    let state = |world: &World| {
        let bindings = world.broker.messaging().exchanges().bindings(&world.namespace);
        let keys: Vec<_> = bindings.iter().map(|binding| binding.key.clone()).collect();
        let has_queue = world
            .broker
            .messaging()
            .queues()
            .get(&world.namespace, "q")
            .is_some();
        assert!(bindings.is_empty() || (has_queue && world.exists("x")));
        (keys, has_queue, world.exists("x"))
    };
    // Everything staged is stored once a later change is.
    world.exchange("last", ExchangeKind::FanOut).await;
    let before = state(&world);
    let world = world.restart().await;
    assert_eq!(state(&world), before);
}
