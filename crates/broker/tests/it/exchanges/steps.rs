//! Deletions with very many bindings: the item is gone at once, its bindings are removed in steps, and other
//! tasks get their turns. The runtime has one thread, so each yield is one step.

use std::sync::Arc;

use stafett_access::Caller;
use stafett_messaging::NewExchange;
use stafett_messaging::exchanges::{DeclareError, NamespaceError};
use stafett_messaging::queues::{Declare, DeclareError as DeclareQueueError, DeleteQueueError, OwnerId};
use stafett_messaging::{PublishError, Published};
use stafett_model::Namespace;
use stafett_routing::ExchangeKind;
use tokio::task::{JoinSet, yield_now};

use super::support::{World, message, to_queue};

const BINDINGS: usize = 2000;
/// Bound on the bindings removed in one step.
const STEP: usize = 256;

/// Creates very many bindings from `x` to `q`, and one from `other` to `aside`.
async fn crowded() -> World {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Topic).await;
    world.exchange("other", ExchangeKind::Direct).await;
    world.queue("q").await;
    world.queue("aside").await;
    for number in 0..BINDINGS {
        world
            .bind("x", &format!("device.{number}.*"), to_queue("q"))
            .await;
    }
    world.bind("other", "k", to_queue("aside")).await;
    world
}

impl World {
    fn left(&self) -> usize {
        let exchanges = self.broker.messaging().exchanges();
        exchanges.bindings_from(&self.namespace, "x").len()
    }

    fn delete_queue(&self) -> JoinSet<Result<u64, DeleteQueueError>> {
        let (queues, namespace) = (
            Arc::clone(self.broker.messaging().queues()),
            self.namespace.clone(),
        );
        let mut deleting = JoinSet::new();
        deleting.spawn(async move { queues.delete(&namespace, "q", false, false, OwnerId(0)).await });
        deleting
    }

    fn has_queue(&self) -> bool {
        self.broker
            .messaging()
            .queues()
            .get(&self.namespace, "q")
            .is_some()
    }

    /// Lets tasks in progress take their steps, and does other work after each. Returns the number of
    /// remaining bindings after each.
    async fn meanwhile(&self) -> Vec<usize> {
        let mut seen = vec![self.left()];
        while self.left() > 0 {
            assert_eq!(self.publish("other", "k").await, Published::Stored);
            let key = format!("at {}", self.left());
            self.bind("other", &key, to_queue("aside")).await;
            yield_now().await;
            seen.push(self.left());
        }
        assert_eq!(self.ready("aside"), seen.len() as u64 - 1);
        seen.dedup();
        seen
    }
}

fn assert_steps(seen: &[usize]) {
    assert!(seen.len() > BINDINGS / STEP, "{seen:?}");
    for (before, after) in seen.iter().zip(seen.iter().skip(1)) {
        assert!(before > after && before - after <= 2 * STEP, "{seen:?}");
    }
}

#[tokio::test]
async fn an_exchange_is_gone_at_once_and_its_bindings_go_in_steps() {
    let world = crowded().await;
    let deleting = world
        .broker
        .messaging()
        .exchanges()
        .delete(&world.namespace, "x", false)
        .unwrap();
    assert!(!world.exists("x"));
    assert_eq!(world.left(), BINDINGS);
    let nowhere = world
        .broker
        .messaging()
        .publish(&world.namespace, "x", vec![message("device.7.t").into()]);
    assert_eq!(nowhere.err(), Some(PublishError::NoSuchExchange));
    assert!(world.try_bind("x", "late", to_queue("q")).await.is_err());
    assert_steps(&world.meanwhile().await);
    deleting.await.unwrap();
    assert_eq!(world.ready("q"), 0);
    let world = world.restart().await;
    assert_eq!((world.exists("x"), world.left()), (false, 0));
    assert_eq!(world.publish("other", "k").await, Published::Stored);
}

#[tokio::test]
async fn an_exchange_that_is_made_anew_has_none_of_the_bindings_that_still_go() {
    let world = crowded().await;
    let deleting = world
        .broker
        .messaging()
        .exchanges()
        .delete(&world.namespace, "x", false)
        .unwrap();
    yield_now().await;
    assert!(world.left() > 0, "it is under way");
    world.exchange("x", ExchangeKind::Topic).await;
    assert_eq!(world.left(), 0);
    world.bind("x", "device.1.*", to_queue("q")).await;
    deleting.await.unwrap();
    assert_eq!(world.left(), 1);
    assert_eq!(world.publish("x", "device.2.t").await, Published::Unroutable);
    let world = world.restart().await;
    assert_eq!(world.left(), 1);
    assert_eq!(world.publish("x", "device.1.t").await, Published::Stored);
}

#[tokio::test]
async fn a_queue_is_gone_at_once_and_what_led_to_it_goes_in_steps() {
    let world = crowded().await;
    let mut deleting = world.delete_queue();
    while world.has_queue() {
        yield_now().await;
    }
    assert!(world.left() >= BINDINGS - 2 * STEP);
    let last = format!("device.{}.t", BINDINGS - 1);
    assert_eq!(world.publish("x", &last).await, Published::Unroutable);
    assert!(world.try_bind("x", "late", to_queue("q")).await.is_err());
    assert_steps(&[&[BINDINGS], &*world.meanwhile().await].concat());
    assert_eq!(deleting.join_next().await.unwrap().unwrap().unwrap(), 0);
    let world = world.restart().await;
    assert_eq!((world.has_queue(), world.left()), (false, 0));
}

#[tokio::test]
async fn a_queue_that_is_made_anew_gets_nothing_that_was_for_the_one_before() {
    let world = crowded().await;
    let mut deleting = world.delete_queue();
    while world.has_queue() {
        yield_now().await;
    }
    assert!(world.left() > 0, "it is under way");
    world.queue("q").await;
    assert_eq!(world.left(), 0);
    world.bind("x", "device.1.*", to_queue("q")).await;
    deleting.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(world.left(), 1);
    let world = world.restart().await;
    assert_eq!(world.left(), 1);
    assert_eq!(world.publish("x", "device.1.t").await, Published::Stored);
    assert_eq!(world.publish("x", "device.2.t").await, Published::Unroutable);
}

#[tokio::test]
async fn a_crash_in_the_middle_leaves_none_of_it() {
    for is_queue in [false, true] {
        let world = crowded().await;
        let exchanges = world.broker.messaging().exchanges();
        let (deleting, stored) = if is_queue {
            (Some(world.delete_queue()), None)
        } else {
            let stored = exchanges.delete(&world.namespace, "x", false).unwrap();
            (None, Some(stored))
        };
        while world.left() + 2 * STEP > BINDINGS {
            yield_now().await;
        }
        assert!(world.left() > 0, "it is under way");
        drop((deleting, stored));
        let world = world.crash().await;
        assert_eq!((world.exists("x"), world.has_queue()), (is_queue, !is_queue));
        assert_eq!(world.left(), 0);
        world.exchange("x", ExchangeKind::Topic).await;
        world.queue("q").await;
        assert_eq!(world.publish("x", "device.7.t").await, Published::Unroutable);
    }
}

const QUEUES: usize = 130;

/// Creates a namespace with very many bindings and queues, besides the default one.
async fn crowded_namespace() -> (World, Namespace) {
    let mut world = World::new().await;
    world.exchange("other", ExchangeKind::Direct).await;
    world.queue("aside").await;
    world.bind("other", "k", to_queue("aside")).await;
    let shop = Namespace::new("shop");
    let (_, stored) = world
        .broker
        .messaging()
        .exchanges()
        .create_namespace(&shop)
        .unwrap();
    stored.await.unwrap();
    let outside = std::mem::replace(&mut world.namespace, shop.clone());
    world.exchange("x", ExchangeKind::Topic).await;
    for number in 0..QUEUES {
        world.queue(&format!("q{number}")).await;
    }
    for number in 0..BINDINGS {
        world
            .bind("x", &format!("device.{number}.*"), to_queue("q7"))
            .await;
    }
    world.namespace = outside;
    (world, shop)
}

#[tokio::test]
async fn a_namespace_is_gone_at_once_and_what_was_in_it_goes_in_steps() {
    let (world, shop) = crowded_namespace().await;
    let (broker, exchanges) = (&world.broker, world.broker.messaging().exchanges());
    let mut deleting = JoinSet::new();
    deleting.spawn(broker.delete_namespace(&Arc::new(Caller::internal()), &shop));
    while exchanges.has_namespace(&shop) {
        yield_now().await;
    }
    let declared = exchanges.declare(&shop, "late", NewExchange::new(ExchangeKind::Direct));
    assert!(matches!(declared, Err(DeclareError::NoSuchNamespace)));
    let declared = broker
        .messaging()
        .queues()
        .declare(&shop, "late", Declare::default())
        .await;
    assert_eq!(declared.err(), Some(DeclareQueueError::NoSuchNamespace));
    let nowhere = broker
        .messaging()
        .publish(&shop, "x", vec![message("device.7.t").into()]);
    assert_eq!(nowhere.err(), Some(PublishError::NoSuchNamespace));
    let anew = exchanges.create_namespace(&shop).err();
    assert_eq!(anew, Some(NamespaceError::Closing));
    let again = broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await;
    assert_eq!(again, Err(NamespaceError::Closing));
    let mut turns = 0_u64;
    while deleting.try_join_next().is_none() {
        assert_eq!(world.publish("other", "k").await, Published::Stored);
        turns += 1;
        yield_now().await;
    }
    assert!(turns > (BINDINGS / STEP) as u64, "{turns}");
    assert_eq!(world.ready("aside"), turns);
    assert_eq!(broker.messaging().queues().all().len(), 1);
    let (is_new, stored) = exchanges.create_namespace(&shop).unwrap();
    stored.await.unwrap();
    assert!(is_new);
    let world = world.restart().await;
    let exchanges = world.broker.messaging().exchanges();
    assert!(exchanges.has_namespace(&shop), "it was made anew, and stays");
    assert!(exchanges.get(&shop, "x").is_none() && exchanges.bindings(&shop).is_empty());
    assert_eq!(world.broker.messaging().queues().all().len(), 1);
}

#[tokio::test]
async fn a_crash_while_a_namespace_goes_leaves_none_of_it() {
    for turns in [0, 1, 2, 3, 5, 8, 13] {
        let (world, shop) = crowded_namespace().await;
        let deleting = world
            .broker
            .delete_namespace(&Arc::new(Caller::internal()), &shop);
        while world.broker.messaging().exchanges().has_namespace(&shop) {
            yield_now().await;
        }
        for _ in 0..turns {
            yield_now().await;
        }
        drop(deleting);
        let world = world.crash().await;
        let exchanges = world.broker.messaging().exchanges();
        assert!(!exchanges.has_namespace(&shop), "after {turns} turns");
        assert_eq!(
            world.broker.messaging().queues().all().len(),
            1,
            "after {turns} turns"
        );
        let (is_new, stored) = exchanges.create_namespace(&shop).unwrap();
        stored.await.unwrap();
        assert!(is_new);
        assert!(exchanges.get(&shop, "x").is_none() && exchanges.bindings(&shop).is_empty());
        assert_eq!(world.publish("other", "k").await, Published::Stored);
    }
}
