//! Scripts for sessions: commands, answers and pushed messages.

use bytes::BytesMut;
use serde_json::{Value, json};
use stafett_model::Namespace;
use stafett_ws::Session as _;
use stafett_ws::session::Step;
use tokio::time::timeout;

use super::*;
use crate::tests::World;

/// A session without a connection: its messages are texts with a line each.
pub(crate) struct Client {
    session: Session,
    out: BytesMut,
}

fn put_line(json: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n");
}

impl Client {
    pub(crate) fn new(world: &World, caller: Option<&str>) -> Self {
        let states = crate::routes()
            .endpoints()
            .iter()
            .filter(|it| it.shows_state())
            .map(stafett_http::api::Endpoint::path)
            .collect();
        let sockets = WebSockets::default();
        let router = crate::routes().into_router().with_state(world.backend.clone());
        let front = Front::new(world.backend.broker.clone(), sockets, router, states);
        let session = Session::new(Parts {
            broker: Arc::clone(&world.broker),
            caller: Caller(caller.map(str::to_owned)),
            namespace: Namespace::default(),
            routes: front.routes(None),
            watches: front.watches,
            only_shows: false,
            dialect: Dialect {
                frame: put_line,
                read_binary: None,
            },
        });
        Self {
            session,
            out: BytesMut::new(),
        }
    }

    /// Feeds commands as a connection does that has read all of them at once, and returns the answers.
    pub(crate) async fn all(&mut self, commands: &[String]) -> Vec<Value> {
        let mut left = commands.iter().peekable();
        while let Some(command) = left.peek() {
            if self.session.on_message(Ok(command), &mut self.out) == Step::Done {
                left.next();
                if left.peek().is_some() {
                    continue;
                }
            }
            while let Some(work) = self.session.take_work() {
                let done = work.await;
                self.session.on_done(done, &mut self.out);
            }
        }
        self.came()
    }

    pub(crate) async fn ask(&mut self, command: Value) -> Value {
        let mut came = self.all(&[command.to_string()]).await;
        assert_eq!(came.len(), 1, "{came:?}");
        came.pop().unwrap()
    }

    fn came(&mut self) -> Vec<Value> {
        let text = self.out.split();
        let lines = text[..]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Waits for pushed messages.
    pub(crate) async fn pushed(&mut self, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < count {
            let ready = timeout(Duration::from_secs(30), self.session.ready()).await;
            assert!(ready.is_ok(), "{} of {count} came: {all:?}", all.len());
            self.session.push(&mut self.out).unwrap();
            all.extend(self.came());
        }
        all
    }
}

fn send(id: usize, queue: &str, content: &Value) -> String {
    json!({"op": "send", "id": id, "to": {"queues": [queue]}, "content": content}).to_string()
}

fn ids(messages: &[Value]) -> Vec<String> {
    let ids = messages
        .iter()
        .map(|it| it["message"]["id"].as_str().unwrap().to_owned());
    ids.collect()
}

#[tokio::test]
async fn messages_sent_ahead_are_stored_together_and_answered_in_order() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let mut client = Client::new(&world, None);
    let mut commands: Vec<String> = (0..5).map(|id| send(id, "work", &json!(id))).collect();
    commands.insert(2, send(100, "absent", &json!(0)));
    commands.insert(3, json!({"op": "ping", "id": "p"}).to_string());
    commands.push("{".to_owned());
    commands.push(json!({"op": "peek", "id": "last", "queue": "work"}).to_string());
    let came = client.all(&commands).await;
    let shape: Vec<_> = came
        .iter()
        .map(|it| (&it["id"], it["error"]["code"].as_str()))
        .collect();
    let expected = [
        (json!(0), None),
        (json!(1), None),
        (json!(100), Some("no_such_queue")),
        (json!("p"), None),
        (json!(2), None),
        (json!(3), None),
        (json!(4), None),
        (json!(null), Some("bad_json")),
        (json!("last"), None),
    ];
    assert_eq!(shape.len(), expected.len());
    for ((id, code), (wanted, error)) in shape.iter().zip(&expected) {
        assert_eq!((*id, code), (wanted, error), "{came:?}");
    }
    assert_eq!(came[0]["ok"]["queues"], json!(["work"]));
    let messages = came[8]["ok"]["messages"].as_array().unwrap();
    let contents: Vec<_> = messages.iter().map(|it| &it["content"]).collect();
    assert_eq!(contents, [&json!(0), &json!(1), &json!(2), &json!(3), &json!(4)]);
    let sent = came.iter().filter(|it| it["ok"]["places"].is_array());
    let places: Vec<_> = sent.map(|it| &it["ok"]["places"]).collect();
    let expected = messages
        .iter()
        .map(|it| json!([{ "queue": "work", "id": it["id"] }]));
    assert!(
        places.into_iter().eq(expected.collect::<Vec<_>>().iter()),
        "{came:?}"
    );
}

#[tokio::test]
async fn a_consumer_gets_messages_within_its_credit_and_settles_them() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let mut client = Client::new(&world, None);
    let sends: Vec<String> = (0..7).map(|id| send(id, "work", &json!("x"))).collect();
    client.all(&sends).await;
    let answer = client
        .ask(json!({"op": "consume", "id": 1, "queue": "work", "credit": 3}))
        .await;
    assert_eq!(
        answer,
        json!({"id": 1, "ok": {"consumer": 1, "queue": "work", "credit": 3}})
    );
    let first = client.pushed(3).await;
    assert_eq!((first.len(), &first[0]["consumer"]), (3, &json!(1)));
    assert_eq!(first[0]["message"]["state"], "in_flight");
    let mut ids = ids(&first);
    let settle = json!({"op": "settle", "id": 2, "consumer": 1, "complete": ids, "requeue": [ids[0], "x"]});
    let answer = client.ask(settle).await;
    assert_eq!(
        answer["ok"],
        json!({"settled": 3, "extended": 0, "unknown": [ids[0], "x"]})
    );
    let next = client.pushed(3).await;
    ids = self::ids(&next);
    let answer = client
        .ask(json!({"op": "settle", "id": 3, "consumer": 1, "requeue": [ids[1]]}))
        .await;
    assert_eq!(answer["ok"]["settled"], 1);
    let queue = world
        .broker
        .messaging()
        .queues()
        .get(&Namespace::default(), "work")
        .unwrap();
    let again = client.pushed(1).await;
    assert_eq!(
        (&again[0]["message"]["id"], &again[0]["message"]["redelivered"]),
        (&json!(ids[1]), &json!(true))
    );
    let answer = client.ask(json!({"op": "cancel", "id": 4, "consumer": 1})).await;
    assert_eq!(answer, json!({"id": 4, "ok": {}}));
    assert_eq!(
        (queue.counts().ready, queue.counts().in_flight),
        (4, 0),
        "unsettled ones are back"
    );
    let answer = client
        .ask(json!({"op": "settle", "id": 5, "consumer": 1, "complete": ids}))
        .await;
    assert_eq!(answer["error"]["code"], "bad_request");
}

#[tokio::test]
async fn a_consumer_with_a_filter_leaves_other_messages() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let mut client = Client::new(&world, None);
    let sends: Vec<String> = (0..6).map(|id| send(id, "work", &json!({"n": id}))).collect();
    client.all(&sends).await;
    let wrong = client
        .ask(json!({"op": "consume", "queue": "work", "filter": "value.n >"}))
        .await;
    assert_eq!(wrong["error"]["code"], "bad_request");
    let why = wrong["error"]["detail"].as_str().unwrap();
    assert!(why.starts_with("filter: "), "{why}");
    client
        .ask(json!({"op": "consume", "queue": "work", "filter": "value.n % 2 == 1"}))
        .await;
    let odd = client.pushed(3).await;
    let numbers: Vec<_> = odd.iter().map(|it| &it["message"]["content"]["n"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(3), &json!(5)]);
    client.ask(json!({"op": "consume", "queue": "work"})).await;
    let rest = client.pushed(3).await;
    assert!(
        rest.iter().all(|it| it["consumer"] == 3 || it["consumer"] == 2),
        "{rest:?}"
    );
}

#[tokio::test]
async fn a_consumer_that_ends_leaves_nothing_in_flight() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let mut client = Client::new(&world, None);
    let mut other = Client::new(&world, None);
    let sends: Vec<String> = (0..200).map(|id| send(id, "work", &json!(id))).collect();
    client.all(&sends).await;
    client
        .ask(json!({"op": "consume", "queue": "work", "credit": 50}))
        .await;
    other
        .ask(json!({"op": "consume", "queue": "work", "credit": 10}))
        .await;
    let held = client.pushed(50).await;
    other.pushed(10).await;
    let queue = world
        .broker
        .messaging()
        .queues()
        .get(&Namespace::default(), "work")
        .unwrap();
    assert_eq!(queue.held_by_consumers(), 60);
    let some: Vec<_> = ids(&held).split_off(40);
    client
        .ask(json!({"op": "settle", "consumer": 1, "complete": some}))
        .await;
    drop(client);
    assert_eq!((queue.held_by_consumers(), queue.counts().in_flight), (10, 10));
    drop(other);
    assert_eq!((queue.counts().ready, queue.counts().in_flight), (190, 0));
}

#[tokio::test]
async fn messages_that_need_no_settlement_are_done_when_they_are_sent() {
    let world = World::new().await;
    world.queue("/", "work").await;
    let mut client = Client::new(&world, None);
    client
        .ask(json!({"op": "consume", "queue": "work", "ack": "auto"}))
        .await;
    let sends: Vec<String> = (0..20).map(|id| send(id, "work", &json!("x"))).collect();
    assert_eq!(client.all(&sends).await.len(), 20);
    let pushed = client.pushed(20).await;
    assert_eq!(
        (pushed.len(), &pushed[0]["message"]["state"]),
        (20, &json!("settled"))
    );
    let queue = world
        .broker
        .messaging()
        .queues()
        .get(&Namespace::default(), "work")
        .unwrap();
    assert_eq!((queue.counts().ready, queue.counts().in_flight), (0, 0));
    let deleted = world.ask("DELETE /v1/queues/work").await;
    assert_eq!(deleted.0, 200);
    assert_eq!(
        client.pushed(1).await,
        [json!({"consumer": 1, "ended": "queue_gone"})]
    );
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one script of a session")]
async fn operations_of_routes_have_their_answers_and_refusals() {
    let world = World::new().await;
    world.ask("PUT /v1/queues/orders").await;
    world.send("PUT /v1/topics/log", r#"{"partitions": 1}"#).await;
    let mut ann = Client::new(&world, None);
    let mut bob = Client::new(&world, None);
    assert_eq!(
        ann.ask(json!({"op": "register", "id": 1, "client": "ann"})).await["ok"]["name"],
        "ann"
    );
    assert_eq!(
        bob.ask(json!({"op": "register", "client": "bob"})).await["ok"]["name"],
        "bob"
    );
    let sent =
        json!({"op": "send", "to": {"clients": ["bob"]}, "content": "hello", "priority": 7, "request": true});
    let context = ann.ask(sent).await["ok"]["context"].clone();
    let pending = bob.ask(json!({"op": "pending", "count": 5})).await;
    assert_eq!(
        (&pending["ok"]["own"], &pending["ok"]["queues"][0]["name"]),
        (&json!(1), &json!("client.bob"))
    );
    let received = bob
        .ask(json!({"op": "receive", "queue": "client.bob", "sender": "ann", "wait": "5s"}))
        .await;
    let message = &received["ok"]["messages"][0];
    assert_eq!(
        (&message["content"], &message["sender"]),
        (&json!("hello"), &json!("ann"))
    );
    bob.ask(json!({"op": "send", "to": {"clients": ["ann"]}, "content": {"a": 1}, "context": context}))
        .await;
    let got = ann
        .ask(json!({"op": "receive", "context": context, "ack": "lease:30s"}))
        .await;
    let lease = got["ok"]["messages"][0]["lease"].clone();
    assert_eq!(got["ok"]["messages"][0]["content"], json!({"a": 1}));
    let settled = ann
        .ask(json!({"op": "settle", "queue": "client.ann", "complete": [lease]}))
        .await;
    assert_eq!(settled["ok"]["settled"], 1);
    let published = json!({"op": "publish", "exchange": "amq.fanout", "routing_key": "orders", "content": 7});
    let code = ann.ask(published).await["error"]["code"].clone();
    assert!(code == "no_such_exchange" || code == "unroutable", "{code}");
    let produced = json!({"op": "produce", "topic": "log", "key": "k", "value": {"a": 1}});
    assert_eq!(ann.ask(produced).await["ok"]["stored"], 1);
    let several = json!({"op": "produce", "topic": "log", "records": [{"value": 1}, {"value": 2}]});
    assert_eq!(ann.ask(several).await["ok"]["stored"], 2);
    for (command, code) in [
        (json!({"op": "receive", "queue": "absent"}), "no_such_queue"),
        (
            json!({"op": "receive", "queue": "orders", "cuont": 1}),
            "unknown_field",
        ),
        (
            json!({"op": "receive", "queue": "orders", "count": {}}),
            "bad_request",
        ),
        (json!({"op": "receive", "queue": "client.bob"}), "forbidden"),
        (json!({"op": "consume", "queue": "client.bob"}), "forbidden"),
        (
            json!({"op": "consume", "queue": "orders", "credit": 0}),
            "bad_request",
        ),
        (
            json!({"op": "consume", "queue": "orders", "more": 0}),
            "unknown_field",
        ),
        (json!({"op": "consume", "queue": "absent"}), "no_such_queue"),
        (json!({"op": "peek"}), "bad_request"),
        (json!({"op": "register", "client": ""}), "bad_request"),
        (json!({"op": "register", "client": []}), "bad_request"),
        (json!({"op": "cancel", "consumer": 7}), "bad_request"),
        (json!({"op": "unwatch", "watch": 7}), "bad_request"),
        (json!({"op": "settle", "consumer": 7}), "bad_request"),
        (json!({"op": "call", "client": "bob", "wait": "1ms"}), "timed_out"),
        (
            json!({"op": "send", "to": {"queues": ["orders"]}, "priority": 300}),
            "bad_request",
        ),
        (json!({"op": "send", "to": {}}), "bad_request"),
        (
            json!({"op": "watch", "what": [{"list": "nothing"}]}),
            "bad_request",
        ),
        (json!({"op": "watch", "what": [{"of": "ws"}]}), "bad_request"),
        // Rights are checked for these texts, so that they have to be the request.
        (
            json!({"op": "watch", "what": [{"of": "queues/orders?namespace=%2F"}]}),
            "bad_request",
        ),
        (
            json!({"op": "watch", "what": [{"list": "queues", "query": "namespace=a#&namespace=b"}]}),
            "bad_request",
        ),
        (
            json!({"op": "watch", "what": [{"list": "topics", "query": "count=1&cell=1"}]}),
            "bad_request",
        ),
        (
            json!({"op": "watch", "what": [{"list": "queues", "query": " \n"}]}),
            "bad_request",
        ),
        (
            json!({"op": "watch", "what": [{"list": "queues"}], "every_ms": 5}),
            "bad_request",
        ),
    ] {
        let answer = ann.ask(command.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{command} {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_gives_the_present_state_and_not_all_that_was_missed() {
    let world = World::new().await;
    world.queue("/", "one").await;
    let mut client = Client::new(&world, None);
    let what = json!([{"list": "queues", "query": "columns=name"}, {"of": "queues/one"}]);
    let answer = client
        .ask(json!({"op": "watch", "id": 1, "what": what, "every_ms": 1000}))
        .await;
    assert_eq!(answer, json!({"id": 1, "ok": {"watch": 1}}));
    let first = client.pushed(1).await;
    assert_eq!(
        (&first[0]["watch"], &first[0]["items"][1]["name"]),
        (&json!(1), &json!("one"))
    );
    world.queue("/", "two").await;
    // Nothing is read for a while.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let next = client.pushed(1).await;
    assert_eq!(next.len(), 1, "{next:?}");
    assert_eq!(next[0]["items"][0]["matched"], 2);
    let unwatched = client
        .all(&[json!({"op": "unwatch", "watch": 1}).to_string()])
        .await;
    assert_eq!(unwatched, [json!({"ok": {}})]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.session.push(&mut client.out).unwrap();
    assert_eq!(client.came(), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_behind_a_change_shows_it() {
    let world = World::new().await;
    world.queue("/", "one").await;
    let mut client = Client::new(&world, None);
    let watch = json!({"op": "watch", "what": [{"list": "queues", "query": "columns=name"}]});
    client.ask(watch.clone()).await;
    assert_eq!(client.pushed(1).await[0]["items"][0]["matched"], 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    world.queue("/", "two").await;
    let ended = json!({"op": "unwatch", "watch": 1});
    client.all(&[ended.to_string(), watch.to_string()]).await;
    let first = client.pushed(1).await;
    assert_eq!(
        (&first[0]["watch"], &first[0]["items"][0]["matched"]),
        (&json!(2), &json!(2))
    );
}

#[tokio::test]
async fn any_text_is_answered_once() {
    let world = World::new().await;
    let mut client = Client::new(&world, None);
    let deep = format!("{{\"op\":\"send\",\"content\":{}", "[".repeat(100_000));
    let id = format!(r#"{{"op":"ping","id":{}}}"#, "9".repeat(100_000));
    let texts = [
        "",
        "7",
        "null",
        "[]",
        "{}",
        r#"{"op":"ping","op":"ping"}"#,
        r#"{"op":[]}"#,
        &deep,
        &id,
        "\u{feff}{}",
    ];
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let answers = client.all(&texts).await;
    assert_eq!(answers.len(), texts.len());
    assert!(
        answers.iter().all(|it| it["error"]["code"].is_string()),
        "{answers:?}"
    );
    let ahead: Vec<String> = (0..10_000)
        .map(|id| json!({"op": "ping", "id": id}).to_string())
        .collect();
    let answers = client.all(&ahead).await;
    assert!(
        answers.iter().enumerate().all(|(at, it)| it["id"] == at),
        "in order"
    );
}
