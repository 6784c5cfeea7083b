//! The routes, over a broker on a journal in memory.

mod app_results;
mod app_topics;
mod apps;
mod consumers;
mod copy;
mod definitions;
mod document;
mod exchanges;
mod groups;
mod hostile;
mod idle;
mod journal;
mod live;
mod metrics;
mod mlmq;
mod node;
mod polling;
mod queue_changes;
mod queue_events;
mod records;
mod search;
mod sinks;
mod topics;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use stafett_broker::{Broker, BrokerSettings};
use stafett_http::{Access, Problem, Slot, slot};
use stafett_journal::{Append, Journal, ManualJournal, MemoryJournal};
use stafett_messaging::Published;
use stafett_messaging::queues::{Declare, Overflow, QueueSettings, TopicQueueSpec};
use stafett_model::{BatchBuilder, Codec, Message, Namespace, Record};
use stafett_topics::{NewTopic, TopicSettings};
use tower::ServiceExt;

use crate::node::{Commanded, Listener, LogLevel, Node, ProcessMemory, Reloaded, Setting, Thread, Usage};
use crate::{Backend, JournalDesk, Operations, Overviews, PollingMembers, Reads, WebSockets};

/// A node that takes no commands.
#[derive(Debug)]
struct TestNode;

impl Node for TestNode {
    fn name(&self) -> String {
        "n1".to_owned()
    }

    fn state(&self) -> &'static str {
        "ok"
    }

    fn started_at(&self) -> i64 {
        0
    }

    fn listeners(&self) -> Vec<Listener> {
        let listener = |protocol, address: &str| Listener {
            protocol,
            address: address.to_owned(),
            connections: 3,
            overload: "backpressure",
        };
        vec![
            listener("kafka", "127.0.0.1:9092"),
            listener("http", "127.0.0.1:7070"),
        ]
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |key, value: &str, source: &str| Setting {
            key,
            value: value.to_owned(),
            default: "sync",
            source: source.to_owned(),
            reloads: false,
            about: "A setting.".to_owned(),
        };
        vec![
            setting("durability", "os", "stafett.toml:7"),
            setting("other", "sync", "default"),
        ]
    }

    fn memory(&self) -> ProcessMemory {
        ProcessMemory {
            resident_bytes: Some(7),
            requests: (1, 2),
            waiting: 0,
        }
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn threads(&self) -> std::io::Result<Vec<Thread>> {
        Ok(vec![Thread {
            name: "journal-sync".to_owned(),
            state: "D".to_owned(),
            cpu_s: 1.5,
            waits_in: None,
        }])
    }

    fn shut_down(&self, _: Option<Duration>) -> Result<(), Problem> {
        Ok(())
    }

    fn reload(&self) -> Commanded<Reloaded> {
        Box::pin(async { Err(slot::closed()) })
    }

    fn set_log_level(&self, level: String, time: Option<Duration>) -> Commanded<LogLevel> {
        let for_s = time.map(|time| time.as_secs());
        Box::pin(async move { Ok(LogLevel { level, for_s }) })
    }
}

pub(crate) struct World {
    pub(crate) broker: Arc<Broker>,
    pub(crate) backend: Backend,
}

/// A world whose journal a test controls.
struct ManualWorld {
    world: World,
    journal: Arc<ManualJournal>,
}

impl ManualWorld {
    async fn new() -> Self {
        let journal = Arc::new(ManualJournal::over(Arc::new(MemoryJournal::new())));
        let world = World::over(Arc::clone(&journal) as Arc<dyn Journal>).await;
        Self { world, journal }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(MemoryJournal::new())).await
    }

    async fn over(journal: Arc<dyn Journal>) -> Self {
        Self::with(journal, BrokerSettings::default()).await
    }

    async fn with(journal: Arc<dyn Journal>, settings: BrokerSettings) -> Self {
        let broker = Broker::start(journal, settings).await;
        let broker = Arc::new(broker.unwrap());
        let backend = Backend {
            connections: Arc::default(),
            broker: Slot::default(),
            journal: JournalDesk::default(),
            operations: Operations::default(),
            reads: Reads::default(),
            members: PollingMembers::default(),
            overviews: Overviews::default(),
            node: Arc::new(TestNode),
            sockets: WebSockets::default(),
            feeds: crate::events::Feeds::default(),
            sinks: Arc::new(sinks::TestDesk),
            masks: crate::Masks::of("secret"),
        };
        backend.broker.open(Arc::clone(&broker));
        Self { broker, backend }
    }

    pub(crate) async fn queue(&self, namespace: &str, name: &str) {
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

    async fn response(&self, request: &str, body: &str) -> Response {
        self.response_to(request, &[], body).await
    }

    pub(crate) async fn response_to(
        &self,
        request: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Response {
        let (method, uri) = request.split_once(' ').unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(HOST, "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.as_ref().to_vec())).unwrap();
        crate::router(self.backend.clone(), Access::default())
            .oneshot(request)
            .await
            .unwrap()
    }

    /// Sends a request of a client.
    async fn send_as(&self, client: &str, request: &str, body: &str) -> (StatusCode, Value) {
        read(
            self.response_to(request, &[("stafett-client", client)], body)
                .await,
        )
        .await
    }

    pub(crate) async fn ask(&self, request: &str) -> (StatusCode, Value) {
        self.send(request, "").await
    }

    pub(crate) async fn send(&self, request: &str, body: &str) -> (StatusCode, Value) {
        read(self.response(request, body).await).await
    }
}

async fn read(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 22).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
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
    let (status, listed) = world.ask("GET /v1/queues?namespace=/").await;
    assert_eq!(status, StatusCode::OK);
    let counts = |at: usize| {
        (
            listed["items"][at]["name"].clone(),
            listed["items"][at]["ready"].clone(),
        )
    };
    assert_eq!(
        [counts(0), counts(1)],
        [(json!("aside"), json!(0)), (json!("work"), json!(3))]
    );
    let values = |seen: &Value| -> Vec<Value> {
        let seen = seen["messages"].as_array().unwrap().iter();
        seen.map(|message| json!([message["content"], message["content_base64"]]))
            .collect()
    };
    let (_, seen) = world.ask("GET /v1/queues/work/messages").await;
    assert_eq!(
        values(&seen),
        [
            json!(["one", null]),
            json!([null, "/w=="]),
            json!(["three", null])
        ]
    );
    assert_eq!(seen["messages"][0]["sender"], "ann");
    for (query, expected) in [
        ("count=1", vec![json!(["one", null])]),
        ("priority=7&header.user-id=bob", vec![json!(["three", null])]),
        ("header.user-id=nobody", vec![]),
    ] {
        let (_, seen) = world.ask(&format!("GET /v1/queues/work/messages?{query}")).await;
        assert_eq!(values(&seen), expected, "{query}");
    }
    let moved = world.send(
        "POST /v1/queues/work/move",
        r#"{"to": {"queue": "aside"}, "count": 2}"#,
    );
    let expected = json!({ "messages": 2, "stopped": null });
    assert_eq!(moved.await, (StatusCode::OK, expected));
    let (_, seen) = world.ask("GET /v1/queues/aside/messages").await;
    assert_eq!(values(&seen).len(), 2, "looking took nothing away");
    let (status, _) = world.ask("DELETE /v1/queues/aside?if_empty=true").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(
        world.ask("POST /v1/queues/work/purge").await.1,
        json!({ "messages": 1 })
    );
    assert_eq!(
        world.ask("DELETE /v1/queues/aside").await.1,
        json!({ "messages": 2 })
    );
    let (status, why) = world.ask("GET /v1/queues/aside/messages").await;
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
    let (status, why) = world
        .send("POST /v1/queues/work/move", r#"{"to": {"queue": "short"}}"#)
        .await;
    assert_eq!(status, StatusCode::CONFLICT);
    let expected = "1 messages moved, and no more: the queue that they go to is as long as it may be";
    assert_eq!(
        (&why["code"], &why["detail"]),
        (&json!("queue_full"), &json!(expected))
    );
    let (_, seen) = world.ask("GET /v1/queues/work/messages").await;
    assert_eq!(seen["messages"][0]["content"], json!("two"), "it is where it was");
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
    let (status, _) = world
        .send("POST /v1/queues/a/move", r#"{"to": {"queue": "b"}}"#)
        .await;
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
    let response = world.response("GET /v1/queues/q/messages?count=1000", "").await;
    let text = to_bytes(response.into_body(), 16 << 20).await.unwrap();
    assert!((4 << 20..5 << 20).contains(&text.len()), "{}", text.len());
    let seen: Value = serde_json::from_slice(&text).unwrap();
    let seen = seen["messages"].as_array().unwrap();
    assert!((14..=16).contains(&seen.len()), "{}", seen.len());
    let bytes = |field: &str| seen[0][field].as_str().unwrap().len();
    assert_eq!((bytes("key"), bytes("content")), (256 << 10, 256 << 10));
    assert_eq!(seen[0]["bytes"], json!(1 << 20));
    assert_eq!(seen[0]["headers"], json!({ "small": "s" }));
    assert_eq!(seen[0]["cut"], json!(true));
}

#[tokio::test]
async fn queues_are_listed_in_pages() {
    let world = World::new().await;
    world.ask("PUT /v1/namespaces/shop").await;
    for (namespace, name) in [("/", "b"), ("shop", "a"), ("/", "a"), ("shop", "c"), ("/", "c")] {
        world.queue(namespace, name).await;
    }
    let names = |listed: &Value| -> Vec<String> {
        let queues = listed["items"].as_array().unwrap().iter();
        let text = |queue: &Value, field: &str| queue[field].as_str().unwrap().to_owned();
        queues
            .map(|queue| text(queue, "namespace") + " " + &text(queue, "name"))
            .collect()
    };
    let (mut query, mut pages) = ("count=2".to_owned(), Vec::new());
    loop {
        let (status, listed) = world.ask(&format!("GET /v1/queues?{query}")).await;
        assert_eq!((status, &listed["total"]), (StatusCode::OK, &json!(5)));
        pages.push(names(&listed).join(", "));
        let Some(next) = listed["next"].as_str() else {
            break;
        };
        query = format!("count=2&after={next}");
    }
    assert_eq!(pages, ["/ a, / b", "/ c, shop a", "shop c"]);
    world.publish("c", b"one", 0, None).await;
    for (query, expected) in [
        ("namespace=shop&count=1", "shop a"),
        ("ready=true", "/ c"),
        ("sort=-ready&count=2", "/ c, / a"),
        ("pattern=?&q=A", "/ a, shop a"),
    ] {
        let (_, listed) = world.ask(&format!("GET /v1/queues?{query}")).await;
        assert_eq!(names(&listed).join(", "), expected, "{query}");
    }
    let (_, one) = world.ask("GET /v1/queues/c?namespace=shop").await;
    assert_eq!((&one["name"], &one["ready"]), (&json!("c"), &json!(0)));
}

#[tokio::test]
async fn namespaces_are_made_and_deleted_with_what_is_in_them() {
    let world = World::new().await;
    let name = "a%2Fb%20c";
    let shop = format!("/v1/namespaces/{name}");
    for expected in [StatusCode::CREATED, StatusCode::OK] {
        let made = world.ask(&format!("PUT {shop}")).await;
        assert_eq!((made.0, &made.1["name"]), (expected, &json!("a/b c")));
    }
    world.queue("a/b c", "orders").await;
    world.queue("/", "work").await;
    world.publish("work", b"one", 0, None).await;
    let (_, listed) = world
        .ask("GET /v1/namespaces?columns=name,queues,ready&sort=-ready")
        .await;
    assert_eq!(
        listed["items"],
        json!([{ "name": "/", "queues": 1, "ready": 1 }, { "name": "a/b c", "queues": 1, "ready": 0 }])
    );
    world.ask("DELETE /v1/queues/work").await;
    let (_, queues) = world.ask(&format!("GET /v1/queues?namespace={name}")).await;
    assert_eq!(queues["items"][0]["name"], "orders");
    assert_eq!(world.ask(&format!("DELETE {shop}")).await.0, StatusCode::OK);
    assert_eq!(world.ask("GET /v1/queues").await.1["items"], json!([]));
    for method in ["GET", "DELETE"] {
        let (status, why) = world.ask(&format!("{method} {shop}")).await;
        assert_eq!(
            (status, &why["code"]),
            (StatusCode::NOT_FOUND, &json!("no_such_namespace"))
        );
    }
    assert_eq!(
        world.ask("DELETE /v1/namespaces/%2F").await.0,
        StatusCode::CONFLICT
    );
}

#[tokio::test]
async fn an_open_transaction_is_shown_with_the_records_that_wait_for_it() {
    let world = World::new().await;
    let new = NewTopic {
        name: "events".into(),
        partitions: Some(2),
        settings: TopicSettings::default(),
    };
    let topic = world.broker.catalog().create(vec![new]).await.remove(0).unwrap();
    let transactions = world.broker.transactions();
    let instance = transactions.begin_producer("copy/1", 60_000, None).await.unwrap();
    transactions.begin_producer("idle", 60_000, None).await.unwrap();
    let log = topic.log(1).unwrap();
    let mut batch = BatchBuilder::new(Codec::None)
        .producer(instance.producer, instance.epoch, 0)
        .transactional();
    let record = Record {
        key: None,
        value: Some(b"one"),
        headers: &[],
        timestamp: 5,
    };
    batch.push(&record).unwrap();
    let appends = vec![Append::batch(log, batch.finish().unwrap())];
    let sent = transactions.append("copy/1", instance, true, &[log], appends);
    sent.unwrap().await;
    let (_, listed) = world.ask("GET /v1/transactions?columns=id,state").await;
    let expected = json!([{ "id": "copy/1", "state": "open" }, { "id": "idle", "state": "empty" }]);
    assert_eq!(listed["items"], expected);
    let (_, listed) = world.ask("GET /v1/transactions?open=true").await;
    assert_eq!(listed["matched"], 1);
    let (status, shown) = world.ask("GET /v1/transactions/copy%2F1").await;
    assert_eq!((status, &shown["timeout_ms"]), (StatusCode::OK, &json!(60_000)));
    let waiting = json!([{ "topic": "events", "partition": 1, "first": 0, "stable": 0, "waiting": 1,
        "holds": true }]);
    assert_eq!(shown["partitions"], waiting);
    let (status, why) = world.ask("GET /v1/transactions/none").await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::NOT_FOUND, &json!("no_such_transaction"))
    );
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_nothing_is_answered_without_a_broker() {
    let world = World::new().await;
    world.queue("/", "q").await;
    for (request, body, code) in [
        ("GET /v1/queues/q/messages?count=1001", "", "bad_request"),
        ("GET /v1/queues/q/messages?priority=x", "", "bad_request"),
        ("GET /v1/queues/q/messages?what=7", "", "unknown_field"),
        ("GET /v1/queues?count=1001", "", "bad_request"),
        ("GET /v1/queues?after=x", "", "bad_request"),
        ("POST /v1/queues/q/move", "", "bad_request"),
        ("POST /v1/queues/q/move", "{", "bad_json"),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "q"}}"#,
            "bad_request",
        ),
        (
            "POST /v1/queues/q/move",
            r#"{"to": {"queue": "r"}, "cuont": 1}"#,
            "unknown_field",
        ),
    ] {
        let (status, why) = world.send(request, body).await;
        let expected = (StatusCode::BAD_REQUEST, &json!(code));
        assert_eq!((status, &why["code"]), expected, "{request} {body}");
    }
    world.backend.broker.close();
    assert_eq!(
        world.ask("GET /v1/queues").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
}
