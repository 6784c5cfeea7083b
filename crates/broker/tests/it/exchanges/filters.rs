//! Bindings with filters on the content of messages.

use bytes::Bytes;
use stafett_messaging::exchanges::BindError;
use stafett_messaging::{Destination, NewBinding, Published};
use stafett_model::Message;
use stafett_routing::{BadPattern, ExchangeKind, Filter, HashOn, HeaderMatch};

use super::support::{World, message, to_exchange, to_queue};

fn filtered(source: &str, key: &str, to: Destination, filter: &str) -> NewBinding {
    NewBinding {
        source: source.into(),
        destination: to,
        key: Bytes::copy_from_slice(key.as_bytes()),
        headers: HeaderMatch {
            filter: Some(std::sync::Arc::new(Filter::compile(filter).unwrap())),
            ..HeaderMatch::default()
        },
        arguments: Bytes::copy_from_slice(filter.as_bytes()),
    }
}

async fn bind(world: &World, new: NewBinding) {
    let bound = world.broker.messaging().bind(&world.namespace, new).unwrap();
    bound.await.unwrap();
}

fn json(key: &str, value: &'static str) -> Message {
    Message {
        value: Bytes::from_static(value.as_bytes()),
        ..message(key)
    }
}

async fn publish(world: &World, key: &str, value: &'static str) -> Published {
    world
        .publish_all("x", vec![json(key, value).into()])
        .await
        .remove(0)
}

#[tokio::test]
async fn a_message_goes_where_rule_and_filter_say_also_after_a_restart() {
    let mut world = World::new().await;
    world.exchange("x", ExchangeKind::Topic).await;
    for queue in ["dear", "all"] {
        world.queue(queue).await;
    }
    world.bind("x", "#", to_queue("all")).await;
    let dear = "value.price > 100 && routing_key == 'order.eu'";
    bind(&world, filtered("x", "order.*", to_queue("dear"), dear)).await;
    for _ in 0..2 {
        let before = (world.ready("dear"), world.ready("all"));
        for (key, value) in [
            ("order.eu", r#"{"price": 101}"#),
            ("order.us", r#"{"price": 101}"#),
            ("order.eu", r#"{"price": 100}"#),
            ("order.eu", r#"{"cost": 101}"#),
            ("order.eu", "no JSON"),
            ("bill.eu", r#"{"price": 101}"#),
        ] {
            assert_eq!(publish(&world, key, value).await, Published::Stored);
        }
        assert_eq!(
            (world.ready("dear"), world.ready("all")),
            (before.0 + 1, before.1 + 6)
        );
        world = world.restart().await;
    }
}

#[tokio::test]
async fn a_message_that_no_filter_lets_through_goes_to_the_alternate_exchange() {
    let world = World::new().await;
    let spec = stafett_messaging::NewExchange {
        alternate: Some("others".into()),
        ..stafett_messaging::NewExchange::new(ExchangeKind::FanOut)
    };
    world.exchange("others", ExchangeKind::FanOut).await;
    world.declare("x", spec).await;
    world.exchange("y", ExchangeKind::FanOut).await;
    for queue in ["even", "odd", "rest"] {
        world.queue(queue).await;
    }
    bind(&world, filtered("x", "", to_queue("even"), "value.n % 2 == 0")).await;
    bind(&world, filtered("x", "", to_exchange("y"), "value.n % 2 == 1")).await;
    // Two bindings with one destination: one of them is enough, and it gets the message once.
    bind(&world, filtered("x", "k", to_queue("even"), "value.n >= 0")).await;
    world.bind("y", "", to_queue("odd")).await;
    world.bind("others", "", to_queue("rest")).await;
    for value in [r#"{"n": 2}"#, r#"{"n": 3}"#, r#"{"n": -1}"#, "[]"] {
        assert_eq!(publish(&world, "", value).await, Published::Stored);
    }
    assert_eq!(
        (world.ready("even"), world.ready("odd"), world.ready("rest")),
        (2, 1, 2)
    );
}

#[tokio::test]
async fn an_exchange_that_spreads_by_hash_takes_no_filter() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Hashed(HashOn::Key)).await;
    world.queue("q").await;
    let new = filtered("x", "1", to_queue("q"), "true");
    let refused = world.broker.messaging().bind(&world.namespace, new).map(drop);
    assert!(
        matches!(refused, Err(BindError::BadPattern(BadPattern::Filtered))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_namespace_has_a_bound_on_distinct_filters_and_equal_ones_count_once() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Direct).await;
    for queue in ["q", "r"] {
        world.queue(queue).await;
    }
    let condition = |number: usize| format!("value.n == {number}");
    for number in 0..1000 {
        let new = filtered("x", "k", to_queue("q"), &condition(number));
        drop(world.broker.messaging().bind(&world.namespace, new).unwrap());
    }
    let one_more = || filtered("x", "k", to_queue("q"), &condition(1000));
    let refused = world.broker.messaging().bind(&world.namespace, one_more());
    assert!(matches!(refused, Err(BindError::TooManyFilters { max: 1000 })));
    bind(&world, filtered("x", "k", to_queue("r"), &condition(7))).await;
    let unbind = |queue| {
        let (destination, arguments) = (to_queue(queue), condition(7));
        let which = stafett_messaging::Unbind {
            source: "x",
            destination: &destination,
            key: b"k",
            arguments: arguments.as_bytes(),
        };
        drop(
            world
                .broker
                .messaging()
                .exchanges()
                .unbind(&world.namespace, &which)
                .unwrap(),
        );
    };
    unbind("q");
    let refused = world.broker.messaging().bind(&world.namespace, one_more());
    assert!(refused.is_err(), "another binding has the filter");
    unbind("r");
    bind(&world, one_more()).await;
    assert_eq!(publish(&world, "k", r#"{"n": 1000}"#).await, Published::Stored);
    assert_eq!(publish(&world, "k", r#"{"n": 7}"#).await, Published::Unroutable);
}
