use bytes::Bytes;
use bytestring::ByteString;
use stafett_messaging::queues::{Declare, Overflow, QueueSettings};
use stafett_messaging::{NewBinding, NewExchange};
use stafett_messaging::{Publish, PublishError, PublishRefusal, Published};
use stafett_model::Message;
use stafett_routing::{ExchangeKind, HashOn, HeaderMatch, HeaderValue, Property};

use super::support::{World, message, to_exchange, to_queue};

#[tokio::test]
async fn a_batch_goes_where_its_keys_lead_and_what_goes_nowhere_comes_back() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Topic).await;
    for (queue, pattern) in [("orders", "order.#"), ("all", "#.eu"), ("all", "order.eu")] {
        world.queue(queue).await;
        world.bind("x", pattern, to_queue(queue)).await;
    }
    let keys = [
        "order.eu", "nothing", "order.eu", "order.us", "bill.eu", "order.eu", "",
    ];
    let messages: Vec<Publish> = keys.iter().map(|key| message(key).into()).collect();
    let mut ticket = world
        .broker
        .messaging()
        .publish(&world.namespace, "x", messages)
        .unwrap();
    let unroutable = ticket.take_unroutable();
    let back: Vec<_> = unroutable
        .iter()
        .map(|(index, publish)| (*index, &*publish.message.routing_key))
        .collect();
    assert_eq!(back, [(1, "nothing"), (6, "")]);
    let published = ticket.await;
    let stored = published
        .iter()
        .filter(|published| **published == Published::Stored);
    assert_eq!(stored.count(), 5);
    assert_eq!((world.ready("orders"), world.ready("all")), (4, 4));
}

#[tokio::test]
async fn any_of_several_keys_will_do_and_a_queue_gets_a_message_once() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Direct).await;
    world.queue("q").await;
    world.queue("r").await;
    world.bind("x", "a", to_queue("q")).await;
    world.bind("x", "b", to_queue("q")).await;
    world.bind("x", "b", to_queue("r")).await;
    let with = |key: &str, more: &[&str]| Publish {
        message: message(key),
        more_keys: more.iter().map(|key| ByteString::from(*key)).collect(),
    };
    let messages = vec![
        with("a", &["b"]),
        with("a", &[]),
        with("c", &["a"]),
        with("a", &["c"]),
    ];
    assert_eq!(world.publish_all("x", messages).await, [Published::Stored; 4]);
    assert_eq!((world.ready("q"), world.ready("r")), (4, 1));
}

#[tokio::test]
async fn internal_and_missing_exchanges_take_nothing_from_outside() {
    let world = World::new().await;
    let internal = NewExchange {
        internal: true,
        ..NewExchange::new(ExchangeKind::FanOut)
    };
    world.declare("in", internal).await;
    world.exchange("out", ExchangeKind::FanOut).await;
    world.queue("q").await;
    world.bind("out", "", to_exchange("in")).await;
    world.bind("in", "", to_queue("q")).await;
    let publish = |exchange: &str| {
        let ticket = world
            .broker
            .messaging()
            .publish(&world.namespace, exchange, vec![message("").into()]);
        ticket.err()
    };
    assert_eq!(publish("in"), Some(PublishError::Internal));
    assert_eq!(publish("no"), Some(PublishError::NoSuchExchange));
    assert_eq!(world.publish("out", "").await, Published::Stored);
    assert_eq!(world.ready("q"), 1);
}

#[tokio::test]
async fn an_alternate_gets_what_matches_nothing() {
    let world = World::new().await;
    let new = NewExchange {
        alternate: Some("rest".into()),
        ..NewExchange::new(ExchangeKind::Direct)
    };
    world.declare("x", new).await;
    assert_eq!(
        world.publish("x", "a").await,
        Published::Unroutable,
        "it does not exist yet"
    );
    world.exchange("rest", ExchangeKind::FanOut).await;
    world.queue("q").await;
    world.queue("lost").await;
    world.bind("x", "a", to_queue("q")).await;
    world.bind("rest", "", to_queue("lost")).await;
    world.publish("x", "a").await;
    world.publish("x", "b").await;
    assert_eq!((world.ready("q"), world.ready("lost")), (1, 1));
}

#[tokio::test]
async fn a_queue_that_refuses_refuses_for_all() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::FanOut).await;
    let full = Declare {
        durable: true,
        settings: QueueSettings {
            length_max: Some(1),
            overflow: Overflow::RejectPublish,
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    world.queue_as("full", full).await;
    world.queue("free").await;
    world.bind("x", "", to_queue("full")).await;
    world.bind("x", "", to_queue("free")).await;
    assert_eq!(world.publish("x", "").await, Published::Stored);
    assert_eq!(
        world.publish("x", "").await,
        Published::Refused(PublishRefusal::QueueFull)
    );
    assert_eq!(
        (world.ready("full"), world.ready("free")),
        (1, 1),
        "nothing of it is stored"
    );
}

#[tokio::test]
async fn headers_and_properties_are_what_the_front_end_reads() {
    let world = World::new().await;
    world.exchange("headers", ExchangeKind::Headers).await;
    world
        .exchange("ids", ExchangeKind::Hashed(HashOn::Property(Property::MessageId)))
        .await;
    let kept = |kind: &'static str| Message {
        headers: [("front".into(), Some(Bytes::from_static(kind.as_bytes())))]
            .into_iter()
            .collect(),
        ..message("")
    };
    let plain = Message {
        headers: [("kind".into(), Some(Bytes::from_static(b"a")))]
            .into_iter()
            .collect(),
        ..message("")
    };
    for queue in ["a", "b"] {
        world.queue(queue).await;
        let binding = NewBinding {
            source: "headers".into(),
            destination: to_queue(queue),
            key: Bytes::new(),
            headers: HeaderMatch {
                pairs: vec![(
                    Bytes::from_static(b"kind"),
                    Some(HeaderValue::Text(queue.to_owned().into())),
                )],
                ..HeaderMatch::default()
            },
            arguments: Bytes::new(),
        };
        world
            .broker
            .messaging()
            .bind(&world.namespace, binding)
            .unwrap()
            .await
            .unwrap();
        world.bind("ids", "1", to_queue(queue)).await;
    }
    let messages = vec![
        kept("a").into(),
        kept("b").into(),
        kept("a").into(),
        kept("c").into(),
        plain.into(),
    ];
    let published = world.publish_all("headers", messages).await;
    assert_eq!(
        published
            .iter()
            .filter(|published| **published == Published::Unroutable)
            .count(),
        1
    );
    assert_eq!((world.ready("a"), world.ready("b")), (3, 1));
    let ids = (0..40).map(|_| kept("always the same").into()).collect();
    assert_eq!(world.publish_all("ids", ids).await, vec![Published::Stored; 40]);
    assert_eq!(
        world.ready("a").max(world.ready("b") + 2),
        43,
        "all of one id went to one queue"
    );
}

#[tokio::test]
async fn dead_letters_are_routed_as_they_were_published() {
    let world = World::new().await;
    world.exchange("dead", ExchangeKind::Topic).await;
    world.queue("lost").await;
    world.bind("dead", "order.*", to_queue("lost")).await;
    let short = Declare {
        durable: true,
        settings: QueueSettings {
            length_max: Some(1),
            dead_letter: Some(stafett_messaging::queues::DeadLetter {
                exchange: "dead".into(),
                routing_key: None,
            }),
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    let queue = world.queue_as("short", short).await;
    world.exchange("x", ExchangeKind::FanOut).await;
    world.bind("x", "", to_queue("short")).await;
    for _ in 0..3 {
        world.publish("x", "order.eu").await;
    }
    let lost = world
        .broker
        .messaging()
        .queues()
        .get(&world.namespace, "lost")
        .unwrap();
    while (queue.counts().ready, lost.counts().ready) != (1, 2) {
        tokio::task::yield_now().await;
    }
}
