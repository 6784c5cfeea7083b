//! Consumers of queues and of topics, listed and cancelled.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use stafett_delivery::{Consumer, ConsumerSpec, Event, Outbox};
use stafett_messaging::queues::QueueId;
use stafett_messaging::readers::{ReaderHandle, ReaderSpec};
use stafett_messaging::{ConsumerFacts, ConsumerHolder, ConsumerSource, ListedConsumer};
use stafett_model::Namespace;
use stafett_topics::{NewTopic, TopicSettings};

use super::World;

fn facts(source: ConsumerSource, source_name: &str, name: &str, connection: u64) -> ConsumerFacts {
    ConsumerFacts {
        connection,
        channel: 3,
        name: name.into(),
        source,
        namespace: Namespace::default(),
        source_name: source_name.into(),
        settles: true,
        exclusive: false,
        priority: 0,
        credit: Some(10),
        arguments: Bytes::new(),
    }
}

impl World {
    /// Consumes a queue, under token 7.
    fn consume(&self, name: &str, consumer: &str, outbox: &Arc<Outbox>) -> (Consumer, ListedConsumer) {
        let messaging = self.broker.messaging();
        let queue = messaging.queues().get(&Namespace::default(), name).unwrap();
        let spec = ConsumerSpec {
            settles: true,
            exclusive: false,
            priority: 0,
            credit: Some(10),
            shared_credit: None,
            filter: None,
        };
        let owner = messaging.queues().new_owner();
        let made = queue.consume(owner, spec, Arc::clone(outbox), 7).unwrap();
        let facts = facts(ConsumerSource::Queue(queue.id), name, consumer, 1);
        let listed = messaging
            .consumers()
            .add(facts, ConsumerHolder::Queue(made.downgrade()));
        (made, listed)
    }

    /// Reads a topic, under token 8.
    async fn read_topic(&self, name: &'static str, outbox: &Arc<Outbox>) -> (ReaderHandle, ListedConsumer) {
        let new = NewTopic {
            name: name.into(),
            partitions: Some(1),
            settings: TopicSettings::default(),
        };
        let topic = self.broker.catalog().create(vec![new]).await.remove(0).unwrap();
        let messaging = self.broker.messaging();
        let reader = messaging
            .readers()
            .open(&topic, &ReaderSpec::default(), Arc::clone(outbox), 8);
        let facts = facts(ConsumerSource::Topic(topic.id), name, "reader", 2);
        let listed = messaging
            .consumers()
            .add(facts, ConsumerHolder::Reader(reader.downgrade()));
        (reader, listed)
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn consumers_are_listed_by_queue_topic_and_connection_and_cancelled() {
    let world = World::new().await;
    for queue in ["jobs", "other"] {
        world.queue("/", queue).await;
    }
    world.publish("jobs", b"one", 0, None).await;
    let outbox = Outbox::new(1 << 20);
    let first = world.consume("jobs", "a/ö\n", &outbox);
    let _second = world.consume("other", "b", &outbox);
    let _reader = world.read_topic("events", &outbox).await;
    outbox.filled().await;
    for (query, expected) in [
        ("consumers", &["a/ö\n", "b", "reader"][..]),
        ("consumers?sort=-in_flight", &["a/ö\n", "b", "reader"]),
        ("consumers?queue=jobs", &["a/ö\n"]),
        ("consumers?topic=events", &["reader"]),
        ("consumers?connection=1", &["a/ö\n", "b"]),
        ("consumers?connection=1&q=B", &["b"]),
        ("consumers?namespace=none", &[]),
        ("queues/other/consumers", &["b"]),
    ] {
        let (status, list) = world.ask(&format!("GET /v1/{query}")).await;
        assert_eq!(
            (status.as_u16(), names(&list)),
            (200, expected.to_vec()),
            "{query}"
        );
    }
    let (_, list) = world.ask("GET /v1/consumers?queue=jobs").await;
    let expected = json!({
        "id": "1", "name": "a/ö\n", "connection": "1", "channel": 3, "namespace": "/", "queue": "jobs", "topic": null,
        "settles": true, "exclusive": false, "priority": 0, "prefetch": 10, "in_flight": 1, "active": true,
    });
    assert_eq!(list["items"], json!([expected]));
    for (query, status, code) in [
        ("consumers?queue=none", 404, "no_such_queue"),
        ("consumers?topic=none", 404, "no_such_topic"),
        ("consumers?queue=jobs&topic=events", 400, "bad_request"),
        ("queues/none/consumers", 404, "no_such_queue"),
    ] {
        let (found, refused) = world.ask(&format!("GET /v1/{query}")).await;
        assert_eq!(
            (found.as_u16(), &refused["code"]),
            (status, &json!(code)),
            "{query}"
        );
    }

    let (status, cancelled) = world.ask("DELETE /v1/consumers/1").await;
    assert_eq!((status.as_u16(), cancelled), (200, expected));
    assert_eq!(world.ask("DELETE /v1/consumers/3").await.0, 200);
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    outbox.take(&mut runs, &mut events);
    let gone = |token| Event::ConsumerGone { token };
    assert_eq!((runs.len(), &events[..]), (0, &[gone(7), gone(8)][..]));
    let (_, queue) = world.ask("GET /v1/queues/jobs").await;
    assert_eq!(
        (&queue["ready"], &queue["in_flight"], &queue["consumers"]),
        (&json!(1), &json!(0), &json!(0))
    );
    for id in ["1", "3", "99", "x", "-1"] {
        let (status, refused) = world.ask(&format!("DELETE /v1/consumers/{id}")).await;
        assert_eq!(
            (status.as_u16(), &refused["code"]),
            (404, &json!("no_such_consumer"))
        );
    }
    drop(first);
    let consumers = world.broker.messaging().consumers();
    assert!(consumers.of(ConsumerSource::Queue(QueueId(0))).is_empty());
    assert_eq!(consumers.len(), 2);
}

#[tokio::test]
async fn messages_in_flight_are_listed_with_their_holders() {
    let world = World::new().await;
    world.queue("/", "jobs").await;
    for body in [&b"leased"[..], b"one", b"two"] {
        world.publish("jobs", body, 0, None).await;
    }
    let leased = world.ask("POST /v1/queues/jobs/receive?ack=lease:30s").await;
    assert_eq!(leased.0, 200);
    let outbox = Outbox::new(1 << 20);
    let _consumer = world.consume("jobs", "a", &outbox);
    outbox.filled().await;
    let list = "GET /v1/queues/jobs/messages?state=in_flight";
    let (_, found) = world.ask(list).await;
    let shown = |at: usize| {
        let message = &found["messages"][at];
        (&message["content"], &message["state"], &message["holder"])
    };
    let in_flight = json!("in_flight");
    assert_eq!((shown(0).0, shown(0).1), (&json!("leased"), &in_flight));
    assert!(shown(0).2["lease_until"].is_string(), "{found}");
    let consumer = json!({"consumer": "1"});
    assert_eq!(shown(1), (&json!("one"), &in_flight, &consumer));
    assert_eq!(shown(2), (&json!("two"), &in_flight, &consumer));
    assert_eq!(found["next"], Value::Null);
    let (_, first) = world.ask(&format!("{list}&count=2")).await;
    let next = first["next"].as_str().unwrap();
    let (_, rest) = world.ask(&format!("{list}&count=2&after={next}")).await;
    assert_eq!(
        (&rest["messages"][0]["content"], &rest["next"]),
        (&json!("two"), &Value::Null)
    );
    for (query, code) in [
        ("state=settled", "bad_request"),
        ("state=in_flight&after=7", "bad_request"),
    ] {
        let (status, why) = world.ask(&format!("GET /v1/queues/jobs/messages?{query}")).await;
        assert_eq!((status.as_u16(), &why["code"]), (400, &json!(code)), "{query}");
    }
    let (_, queue) = world.ask("GET /v1/queues/jobs").await;
    assert_eq!(
        (&queue["ready"], &queue["in_flight"]),
        (&json!(0), &json!(3)),
        "nothing was taken"
    );
}
