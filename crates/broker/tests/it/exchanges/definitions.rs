use std::sync::Arc;

use bytes::Bytes;
use stafett_access::Caller;
use stafett_messaging::Published;
use stafett_messaging::exchanges::{
    BindError, DeclareError, DeleteError, Difference, NamespaceError, UnbindError,
};
use stafett_messaging::queues::{Declare, OwnerId};
use stafett_messaging::{NewBinding, NewExchange};
use stafett_model::Namespace;
use stafett_routing::{ExchangeKind, HeaderMatch, HeaderValue, Mode};
use stafett_topics::{NewTopic, TopicSettings};

use super::support::{World, to_exchange, to_queue};

fn auto_delete(kind: ExchangeKind) -> NewExchange {
    NewExchange {
        auto_delete: true,
        ..NewExchange::new(kind)
    }
}

#[tokio::test]
async fn what_is_durable_comes_back_and_the_rest_does_not() {
    let world = World::new().await;
    world.exchange("kept", ExchangeKind::Topic).await;
    let transient = NewExchange {
        durable: false,
        ..NewExchange::new(ExchangeKind::Topic)
    };
    world.declare("gone", transient).await;
    world.queue("q").await;
    world.queue_as("transient", Declare::default()).await;
    let exclusive = Declare {
        durable: true,
        exclusive: Some(OwnerId(1)),
        ..Declare::default()
    };
    world.queue_as("exclusive", exclusive).await;
    for queue in ["q", "transient", "exclusive"] {
        world.bind("kept", "a.#", to_queue(queue)).await;
        world.bind("gone", "a.#", to_queue(queue)).await;
    }
    world.bind("kept", "b", to_exchange("gone")).await;
    world.bind("gone", "b", to_exchange("kept")).await;
    let world = world.restart().await;
    let exchanges = world.broker.messaging().exchanges();
    let names: Vec<_> = exchanges
        .list(&world.namespace)
        .iter()
        .map(|exchange| exchange.name.to_string())
        .collect();
    assert_eq!(names, ["", "kept"]);
    let bindings = exchanges.bindings(&world.namespace);
    let found: Vec<_> = bindings
        .iter()
        .map(|binding| (&*binding.source, binding.destination.clone()))
        .collect();
    assert_eq!(found, [("kept", to_queue("q"))]);
    assert_eq!(world.publish("kept", "a.b").await, Published::Stored);
    assert_eq!(world.ready("q"), 1);
}

#[tokio::test]
async fn an_exchange_comes_back_as_it_was_declared_with_bindings_by_headers() {
    let world = World::new().await;
    let new = NewExchange {
        alternate: Some("other".into()),
        arguments: Bytes::from_static(b"opaque"),
        ..NewExchange::new(ExchangeKind::Headers)
    };
    world.declare("x", new.clone()).await;
    world.queue("q").await;
    let binding = NewBinding {
        source: "x".into(),
        destination: to_queue("q"),
        key: Bytes::from_static(b"\xff"),
        headers: HeaderMatch {
            filter: None,
            mode: Mode::Any,
            pairs: vec![(Bytes::from_static(b"a"), Some(HeaderValue::Integer(1)))],
        },
        arguments: Bytes::from_static(b"arguments"),
    };
    world
        .broker
        .messaging()
        .bind(&world.namespace, binding)
        .unwrap()
        .await
        .unwrap();
    let before = world
        .broker
        .messaging()
        .exchanges()
        .bindings_to(&world.namespace, &to_queue("q"));
    let world = world.restart().await;
    let exchanges = world.broker.messaging().exchanges();
    assert_eq!(exchanges.get(&world.namespace, "x").unwrap().is, new);
    assert_eq!(exchanges.bindings_from(&world.namespace, "x"), before);
    assert_eq!(before.len(), 1);
}

#[tokio::test]
async fn declaring_again_is_compared_and_says_what_differs() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::Direct).await;
    world.exchange("x", ExchangeKind::Direct).await;
    let differs =
        |new: NewExchange| match world
            .broker
            .messaging()
            .exchanges()
            .declare(&world.namespace, "x", new)
        {
            Err(DeclareError::Differs { exchange, difference }) => {
                assert_eq!(
                    exchange.is.kind,
                    ExchangeKind::Direct,
                    "what is there comes along"
                );
                difference
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(differs(NewExchange::new(ExchangeKind::FanOut)), Difference::Kind);
    assert_eq!(differs(auto_delete(ExchangeKind::Direct)), Difference::AutoDelete);
}

#[tokio::test]
async fn the_default_exchange_leads_to_queues_by_name_and_stays_as_it_is() {
    let world = World::new().await;
    world.queue("q").await;
    assert_eq!(world.publish("", "q").await, Published::Stored);
    assert_eq!(world.publish("", "other").await, Published::Unroutable);
    assert_eq!(world.ready("q"), 1);
    let refused = world.try_bind("", "q", to_queue("q")).await;
    assert_eq!(refused, Err(BindError::IsDefault));
    world.exchange("x", ExchangeKind::FanOut).await;
    assert_eq!(
        world.try_bind("x", "", to_exchange("")).await,
        Err(BindError::IsDefault)
    );
    let deleted = world
        .broker
        .messaging()
        .exchanges()
        .delete(&world.namespace, "", false);
    assert_eq!(deleted.unwrap_err(), DeleteError::IsDefault);
}

#[tokio::test]
async fn bindings_to_what_is_not_there_are_refused() {
    let world = World::new().await;
    world.exchange("x", ExchangeKind::FanOut).await;
    for to in [to_queue("no"), to_exchange("no"), super::support::to_topic("no")] {
        assert_eq!(
            world.try_bind("x", "", to).await,
            Err(BindError::NoSuchDestination)
        );
    }
    world.queue("q").await;
    assert_eq!(
        world.try_bind("no", "", to_queue("q")).await,
        Err(BindError::NoSuchExchange)
    );
    let long = "k".repeat(256);
    assert_eq!(
        world.try_bind("x", &long, to_queue("q")).await,
        Err(BindError::KeyTooLong)
    );
    assert_eq!(
        world.unbind("x", "", to_queue("q")).await,
        Err(UnbindError::NoSuchBinding)
    );
    assert_eq!(
        world.unbind("no", "", to_queue("q")).await,
        Err(UnbindError::NoSuchExchange)
    );
}

#[tokio::test]
async fn an_exchange_goes_with_its_last_binding_if_it_is_to_and_takes_others_along() {
    let world = World::new().await;
    world.queue("q").await;
    world.declare("first", auto_delete(ExchangeKind::FanOut)).await;
    world.declare("second", auto_delete(ExchangeKind::FanOut)).await;
    world.exchange("stays", ExchangeKind::FanOut).await;
    world.bind("first", "", to_exchange("second")).await;
    world.bind("stays", "", to_exchange("second")).await;
    world.bind("second", "", to_queue("q")).await;
    world.bind("second", "again", to_queue("q")).await;
    world.unbind("second", "", to_queue("q")).await.unwrap();
    assert!(world.exists("second"), "one binding is left");
    world.unbind("second", "again", to_queue("q")).await.unwrap();
    let after = |world: &World| {
        assert!(!world.exists("second"));
        assert!(!world.exists("first"), "its only binding led to one that went");
        assert!(world.exists("stays"));
        assert!(
            world
                .broker
                .messaging()
                .exchanges()
                .bindings(&world.namespace)
                .is_empty()
        );
    };
    after(&world);
    after(&world.restart().await);
}

#[tokio::test]
async fn a_deleted_exchange_takes_its_bindings_along_on_both_sides() {
    let world = World::new().await;
    world.queue("q").await;
    world.exchange("a", ExchangeKind::FanOut).await;
    world.exchange("b", ExchangeKind::FanOut).await;
    world.bind("a", "", to_exchange("b")).await;
    world.bind("b", "", to_queue("q")).await;
    let exchanges = world.broker.messaging().exchanges();
    let in_use = exchanges.delete(&world.namespace, "b", true);
    assert_eq!(in_use.unwrap_err(), DeleteError::InUse);
    exchanges
        .delete(&world.namespace, "b", false)
        .unwrap()
        .await
        .unwrap();
    let none = exchanges.delete(&world.namespace, "b", false);
    assert_eq!(none.unwrap_err(), DeleteError::NoSuchExchange);
    assert!(exchanges.bindings(&world.namespace).is_empty());
    world.exchange("b", ExchangeKind::FanOut).await;
    assert_eq!(world.publish("a", "").await, Published::Unroutable);
    assert_eq!(world.publish("b", "").await, Published::Unroutable);
    exchanges
        .delete(&world.namespace, "b", true)
        .unwrap()
        .await
        .unwrap();
    let world = world.restart().await;
    assert!(world.exists("a") && !world.exists("b"));
}

#[tokio::test]
async fn a_deleted_queue_takes_its_bindings_along() {
    let world = World::new().await;
    world.queue("q").await;
    world.queue("other").await;
    world.exchange("x", ExchangeKind::Topic).await;
    world.declare("goes", auto_delete(ExchangeKind::FanOut)).await;
    for key in 0..1500 {
        world.bind("x", &format!("k.{key}"), to_queue("q")).await;
    }
    world.bind("x", "k.*", to_queue("other")).await;
    world.bind("goes", "", to_queue("q")).await;
    let queues = world.broker.messaging().queues();
    queues
        .delete(&world.namespace, "q", false, false, OwnerId(0))
        .await
        .unwrap();
    assert!(!world.exists("goes"));
    assert_eq!(
        world
            .broker
            .messaging()
            .exchanges()
            .bindings(&world.namespace)
            .len(),
        1
    );
    world.queue("q").await;
    assert_eq!(world.publish("x", "k.7").await, Published::Stored);
    assert_eq!(
        (world.ready("q"), world.ready("other")),
        (0, 1),
        "one made anew inherits nothing"
    );
    let world = world.restart().await;
    assert_eq!(
        world
            .broker
            .messaging()
            .exchanges()
            .bindings(&world.namespace)
            .len(),
        1
    );
    assert!(!world.exists("goes"));
}

#[tokio::test]
async fn namespaces_keep_to_themselves_and_come_back() {
    let world = World::new().await;
    let exchanges = world.broker.messaging().exchanges();
    let shop = Namespace::new("shop");
    let no = exchanges.declare(&shop, "x", NewExchange::new(ExchangeKind::FanOut));
    assert!(matches!(no, Err(DeclareError::NoSuchNamespace)));
    for is_new in [true, false] {
        let (new, stored) = exchanges.create_namespace(&shop).unwrap();
        stored.await.unwrap();
        assert_eq!(new, is_new);
    }
    let (_, stored) = exchanges
        .declare(&shop, "x", NewExchange::new(ExchangeKind::FanOut))
        .unwrap();
    stored.await.unwrap();
    assert!(!world.exists("x"));
    let world = world.restart().await;
    let exchanges = world.broker.messaging().exchanges();
    assert_eq!(exchanges.namespaces(), [Namespace::default(), shop.clone()]);
    assert!(exchanges.get(&shop, "x").is_some());
    world
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await
        .unwrap();
    assert!(!exchanges.has_namespace(&shop));
    let again = world
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await;
    assert_eq!(again, Err(NamespaceError::NoSuchNamespace));
    let default = world
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &Namespace::default())
        .await;
    assert_eq!(default, Err(NamespaceError::IsDefault));
    let (_, stored) = exchanges.create_namespace(&shop).unwrap();
    stored.await.unwrap();
    let world = world.restart().await;
    assert!(
        world.broker.messaging().exchanges().get(&shop, "x").is_none(),
        "one made anew inherits nothing"
    );
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_queues_and_declared_topics_along() {
    let mut world = World::new().await;
    world.queue("of.the.default").await;
    world.topic("stream-shop.made.elsewhere", 1).await;
    let shop = Namespace::new("shop");
    let (_, stored) = world
        .broker
        .messaging()
        .exchanges()
        .create_namespace(&shop)
        .unwrap();
    stored.await.unwrap();
    world.namespace = shop.clone();
    let queue = world.queue("q").await;
    let declared = TopicSettings {
        declared: Some(Bytes::from_static(b"as a stream")),
        ..TopicSettings::default()
    };
    let new = NewTopic {
        name: "stream-shop.s".into(),
        partitions: Some(1),
        settings: declared,
    };
    world.broker.catalog().create(vec![new]).await.remove(0).unwrap();
    assert!(world.broker.topics().in_namespace(&shop, "s").is_some());
    world
        .broker
        .delete_namespace(&Arc::new(Caller::internal()), &shop)
        .await
        .unwrap();
    assert!(queue.is_deleted());
    let left = |world: &World| {
        let queues = world.broker.messaging().queues().all();
        let mut names: Vec<String> = queues.iter().map(|queue| queue.name.to_string()).collect();
        let topics = world.broker.topics().all();
        names.extend(topics.iter().map(|topic| topic.name.to_string()));
        names.sort();
        names
    };
    let expected = [
        "of.the.default",
        "queue.of.the.default",
        "stream-shop.made.elsewhere",
    ];
    assert_eq!(left(&world), expected);
    let world = world.restart().await;
    assert_eq!(left(&world), expected);
}
