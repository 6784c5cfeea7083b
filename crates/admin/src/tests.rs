//! The routes, over a broker on a journal in memory.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use stafett_broker::{Broker, BrokerSettings};
use stafett_http::{Problem, Slot};
use stafett_journal::MemoryJournal;
use stafett_messaging::Published;
use stafett_messaging::queues::{Declare, Overflow, QueueSettings, TopicQueueSpec};
use stafett_model::{Message, Namespace};
use stafett_topics::{NewTopic, TopicSettings};

use crate::{messages, namespaces, queues};

struct World {
    broker: Arc<Broker>,
    slot: Slot<Broker>,
}

impl World {
    async fn new() -> Self {
        let journal = Arc::new(MemoryJournal::new());
        let broker = Broker::start(journal, BrokerSettings::default()).await;
        let (broker, slot) = (Arc::new(broker.unwrap()), Slot::default());
        slot.open(Arc::clone(&broker));
        Self { broker, slot }
    }

    async fn queue(&self, namespace: &str, name: &str) {
        let namespace = Namespace::new(namespace);
        let durable = Declare {
            durable: true,
            ..Declare::default()
        };
        let declared = self
            .broker
            .messaging()
            .queues()
            .declare(&namespace, name, durable)
            .await;
        declared.unwrap();
    }

    async fn publish(&self, queue: &str, body: &'static [u8], priority: u8, user: Option<&'static str>) {
        let user = user.map(|user| ("user-id".into(), Some(Bytes::from_static(user.as_bytes()))));
        let message = Message {
            routing_key: queue.into(),
            value: Bytes::from_static(body),
            priority,
            headers: user.into_iter().collect(),
            ..Message::default()
        };
        let ticket = self
            .broker
            .messaging()
            .publish(&Namespace::default(), "", vec![message.into()]);
        assert_eq!(ticket.unwrap().await, [Published::Stored]);
    }

    fn asked(&self, query: &str) -> (State<Slot<Broker>>, RawQuery) {
        (State(self.slot.clone()), RawQuery(Some(query.to_owned())))
    }
}

async fn read(response: Result<Response, Problem>) -> (StatusCode, Value) {
    let response = response.into_response();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
}

macro_rules! ask {
    ($world:expr, $route:path, $query:expr) => {{
        let (state, query) = $world.asked($query);
        read($route(state, query).await).await
    }};
}

#[tokio::test]
async fn queues_are_listed_looked_at_moved_emptied_and_deleted() {
    let world = World::new().await;
    for name in ["work", "aside"] {
        world.queue("/", name).await;
    }
    world.publish("work", b"one", 0, Some("ann")).await;
    world.publish("work", b"\xff", 7, None).await;
    world.publish("work", b"three", 7, Some("bob")).await;
    let (status, listed) = ask!(world, queues::list, "namespace=/");
    assert_eq!(status, StatusCode::OK);
    let counts = |at: usize| {
        (
            listed["queues"][at]["queue"].clone(),
            listed["queues"][at]["ready"].clone(),
        )
    };
    assert_eq!(
        [counts(0), counts(1)],
        [(json!("aside"), json!(0)), (json!("work"), json!(3))]
    );
    let values = |seen: &Value| -> Vec<Value> {
        let seen = seen["messages"].as_array().unwrap().iter();
        seen.map(|message| message["value"].clone()).collect()
    };
    let (_, seen) = ask!(world, messages::peek, "queue=work");
    assert_eq!(
        values(&seen),
        [json!("one"), json!({ "base64": "/w==" }), json!("three")]
    );
    assert_eq!(seen["messages"][0]["headers"], json!({ "user-id": "ann" }));
    for (query, expected) in [
        ("queue=work&count=1", vec![json!("one")]),
        ("queue=work&priority=7&header.user-id=bob", vec![json!("three")]),
        ("queue=work&header.user-id=nobody", vec![]),
    ] {
        assert_eq!(values(&ask!(world, messages::peek, query).1), expected, "{query}");
    }
    let moved = ask!(world, queues::move_messages, "queue=work&to=aside&count=2");
    assert_eq!(moved, (StatusCode::OK, json!({ "messages": 2 })));
    let (_, seen) = ask!(world, messages::peek, "queue=aside");
    assert_eq!(values(&seen).len(), 2, "looking took nothing away");
    let (status, _) = ask!(world, queues::delete, "queue=aside&if_empty=true");
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(
        ask!(world, queues::purge, "queue=work").1,
        json!({ "messages": 1 })
    );
    assert_eq!(
        ask!(world, queues::delete, "queue=aside").1,
        json!({ "messages": 2 })
    );
    let (status, why) = ask!(world, messages::peek, "queue=aside");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(why["code"], "no_such_queue");
    assert_eq!(why["detail"], "there is no queue \"aside\" in namespace /");
}

#[tokio::test]
async fn a_move_that_ends_before_its_time_says_how_far_it_came_and_why() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let short = Declare {
        durable: true,
        settings: QueueSettings {
            length_max: Some(1),
            overflow: Overflow::RejectPublish,
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    let queues = world.broker.messaging().queues();
    let declaring = queues.declare(&Namespace::default(), "short", short);
    declaring.await.unwrap();
    for body in [b"one", b"two"] {
        world.publish("work", body, 0, None).await;
    }
    let (status, why) = ask!(world, queues::move_messages, "queue=work&to=short");
    assert_eq!(status, StatusCode::CONFLICT);
    let expected = "1 messages moved, and no more: the queue that they go to is as long as it may be";
    assert_eq!(
        (&why["code"], &why["detail"]),
        (&json!("queue_full"), &json!(expected))
    );
    let (_, seen) = ask!(world, messages::peek, "queue=work");
    assert_eq!(seen["messages"][0]["value"], json!("two"), "it is where it was");
}

#[tokio::test]
async fn nothing_moves_between_two_queues_over_one_topic() {
    let world = World::new().await;
    let new = NewTopic {
        name: "events".into(),
        partitions: Some(1),
        settings: TopicSettings::default(),
    };
    let topic = world.broker.catalog().create(vec![new]).await.remove(0).unwrap();
    for name in ["a", "b"] {
        let over = Declare {
            durable: true,
            over: Some(TopicQueueSpec {
                topic: topic.id,
                from_end: false,
            }),
            ..Declare::default()
        };
        let queues = world.broker.messaging().queues();
        let declaring = queues.declare(&Namespace::default(), name, over);
        declaring.await.unwrap();
    }
    let (status, _) = ask!(world, queues::move_messages, "queue=a&to=b");
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn of_large_messages_the_front_is_shown_and_an_answer_ends() {
    let world = World::new().await;
    world.queue("/", "q").await;
    let long = |byte: u8, bytes: usize| Bytes::from(vec![byte; bytes]);
    for number in 0..20_u8 {
        let message = Message {
            routing_key: "q".into(),
            key: (number == 0).then(|| long(b'k', 400 << 10)),
            value: long(b'v', 1 << 20),
            headers: vec![
                ("small".into(), Some(Bytes::from_static(b"s"))),
                ("large".into(), Some(long(b'h', 300 << 10))),
            ]
            .into(),
            ..Message::default()
        };
        let ticket = world
            .broker
            .messaging()
            .publish(&Namespace::default(), "", vec![message.into()]);
        assert_eq!(ticket.unwrap().await, [Published::Stored]);
    }
    let (state, query) = world.asked("queue=q&count=1000");
    let response = messages::peek(state, query).await.into_response();
    let text = to_bytes(response.into_body(), 16 << 20).await.unwrap();
    assert!((4 << 20..5 << 20).contains(&text.len()), "{}", text.len());
    let seen: Value = serde_json::from_slice(&text).unwrap();
    let seen = seen["messages"].as_array().unwrap();
    assert!((14..=16).contains(&seen.len()), "{}", seen.len());
    let bytes = |field: &str| seen[0][field].as_str().unwrap().len();
    assert_eq!((bytes("key"), bytes("value")), (256 << 10, 256 << 10));
    assert_eq!(seen[0]["bytes"], json!(1 << 20));
    assert_eq!(seen[0]["headers"], json!({ "small": "s" }));
    assert_eq!(seen[0]["headers_cut"], json!(true));
}

#[tokio::test]
async fn queues_are_listed_in_pages() {
    let world = World::new().await;
    ask!(world, namespaces::create, "namespace=shop");
    for (namespace, name) in [("/", "b"), ("shop", "a"), ("/", "a"), ("shop", "c"), ("/", "c")] {
        world.queue(namespace, name).await;
    }
    let names = |listed: &Value| -> Vec<String> {
        let queues = listed["queues"].as_array().unwrap().iter();
        let text = |queue: &Value, field: &str| queue[field].as_str().unwrap().to_owned();
        queues
            .map(|queue| text(queue, "namespace") + " " + &text(queue, "queue"))
            .collect()
    };
    let mut query = "count=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let (status, listed) = ask!(world, queues::list, &query);
        assert_eq!(status, StatusCode::OK);
        pages.push(names(&listed).join(", "));
        let next = &listed["next"];
        let (Some(namespace), Some(name)) = (next["after_namespace"].as_str(), next["after"].as_str()) else {
            break;
        };
        query = format!("count=2&after_namespace={namespace}&after={name}");
    }
    assert_eq!(pages, ["/ a, / b", "/ c, shop a", "shop c"]);
    for (query, expected) in [
        ("after=a", "/ b, / c, shop a, shop c"),
        ("namespace=shop&after=a", "shop c"),
        ("namespace=shop&count=1", "shop a"),
        ("after_namespace=shop", "shop a, shop c"),
        ("after_namespace=shop&after=c", ""),
    ] {
        let (_, listed) = ask!(world, queues::list, query);
        assert_eq!(names(&listed).join(", "), expected, "{query}");
    }
    let (status, _) = ask!(world, queues::list, "count=10001");
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn namespaces_are_made_and_deleted_with_what_is_in_them() {
    let world = World::new().await;
    assert_eq!(
        ask!(world, namespaces::create, "namespace=shop").0,
        StatusCode::CREATED
    );
    assert_eq!(
        ask!(world, namespaces::create, "namespace=shop").0,
        StatusCode::OK
    );
    world.queue("shop", "orders").await;
    let (_, listed) = ask!(world, namespaces::list, "");
    assert_eq!(listed, json!({ "namespaces": ["/", "shop"] }));
    let (_, queues) = ask!(world, queues::list, "namespace=shop");
    assert_eq!(queues["queues"][0]["queue"], "orders");
    assert_eq!(
        ask!(world, namespaces::delete, "namespace=shop").0,
        StatusCode::OK
    );
    assert_eq!(ask!(world, queues::list, "").1, json!({ "queues": [] }));
    assert_eq!(
        ask!(world, namespaces::delete, "namespace=shop").0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        ask!(world, namespaces::delete, "namespace=/").0,
        StatusCode::CONFLICT
    );
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_nothing_is_answered_without_a_broker() {
    let world = World::new().await;
    world.queue("/", "q").await;
    for query in [
        "",
        "queue=",
        "queue=q&count=1001",
        "queue=q&priority=x",
        "queue=q&what=7",
    ] {
        assert_eq!(
            ask!(world, messages::peek, query).0,
            StatusCode::BAD_REQUEST,
            "{query}"
        );
    }
    let same = ask!(world, queues::move_messages, "queue=q&to=q");
    assert_eq!(same.0, StatusCode::BAD_REQUEST);
    world.slot.close();
    assert_eq!(ask!(world, queues::list, "").0, StatusCode::SERVICE_UNAVAILABLE);
}
