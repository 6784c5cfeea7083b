//! Scripts for workers of an app over a WebSocket.

use bytes::BytesMut;
use serde_json::{Value, json};
use stafett_ws::Session as _;
use stafett_ws::session::Step;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::work::Session;
use super::*;
use crate::apps::find;
use crate::tests::World;

/// A worker without a connection: its messages are texts with a line each.
struct Worker {
    session: Session,
    out: BytesMut,
    pushed: Vec<Value>,
    ids: u64,
}

fn put_line(json: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n");
}

impl Worker {
    fn new(world: &World) -> Self {
        let router = crate::routes().into_router().with_state(world.backend.clone());
        let sockets = WebSockets::default();
        let front = Front::new(world.backend.broker.clone(), sockets, router, Vec::new());
        let dialect = Dialect {
            frame: put_line,
            read_binary: None,
        };
        let app = find(&world.broker, "sum").unwrap();
        let tasks = TaskTracker::new();
        let session = Session::new(Arc::clone(&world.broker), app, front.routes(None), tasks, dialect);
        Self {
            session,
            out: BytesMut::new(),
            pushed: Vec::new(),
            ids: 0,
        }
    }

    async fn join(world: &World, name: &str, more: Value) -> (Self, Value) {
        let mut worker = Self::new(world);
        let mut join = json!({"command": "join", "worker": name});
        join.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let joined = worker.ask(join).await;
        (worker, joined)
    }

    async fn ask(&mut self, mut command: Value) -> Value {
        self.ids += 1;
        command["id"] = self.ids.into();
        let step = self.session.on_message(Ok(&command.to_string()), &mut self.out);
        assert_eq!(step, Step::Done);
        while let Some(work) = self.session.take_work() {
            let done = work.await;
            self.session.on_done(done, &mut self.out);
        }
        let mut came = self.came();
        let answer = came.pop().unwrap();
        self.pushed.extend(came);
        assert_eq!(answer["id"], self.ids, "{answer}");
        answer
    }

    fn came(&mut self) -> Vec<Value> {
        let text = self.out.split();
        let lines = text[..].split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Waits for a pushed message with this event or notice, and gives signs of life.
    async fn event(&mut self, word: &str) -> Value {
        let mut beats = 0;
        loop {
            let is_it = |message: &Value| message["event"] == word || message["notice"] == word;
            if let Some(at) = self.pushed.iter().position(is_it) {
                return self.pushed.remove(at);
            }
            beats += 1;
            assert!(beats < 1000, "no {word} in {:?}", self.pushed);
            if timeout(Duration::from_millis(500), self.session.ready())
                .await
                .is_err()
            {
                self.ask(json!({"command": "beat"})).await;
            }
            self.session.push(&mut self.out).unwrap();
            let came = self.came();
            self.pushed.extend(came);
        }
    }

    async fn commit(&mut self, seq: u64, next: u64) -> Value {
        let commit = json!({"command": "commit", "task": "0", "epoch": 1, "seq": seq, "next": next});
        self.ask(commit).await
    }
}

async fn world() -> World {
    let world = World::new().await;
    world.send("PUT /v1/topics/in", r#"{"partitions": 1}"#).await;
    let definition = r#"{"topics": ["in"], "tables": {"sums": {}}, "worker_timeout_ms": 2000}"#;
    world.send("PUT /v1/apps/sum", definition).await;
    world
}

async fn produce(world: &World, count: u64) {
    let records: Vec<_> = (0..count)
        .map(|value| json!({"key": "k", "value": value}))
        .collect();
    let headers = [("content-type", "application/json")];
    let path = "POST /v1/topics/in/records?as=record";
    let response = world
        .response_to(path, &headers, &json!(records).to_string())
        .await;
    assert!(response.status().is_success());
}

fn offsets(records: &Value) -> Vec<u64> {
    let records = records["records"].as_array().unwrap();
    records
        .iter()
        .map(|record| record["offset"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn records_come_as_far_as_credit_goes_and_commits_bring_it_back() {
    let world = world().await;
    produce(&world, 5).await;
    let credit = json!({"credit": {"records": 2, "bytes": 1_000_000}});
    let (mut worker, joined) = Worker::join(&world, "w", credit).await;
    assert_eq!(
        (&joined["result"], &joined["tasks"]),
        (&json!("success"), &json!(1))
    );
    let claimed = worker.event("claimed").await;
    assert_eq!((&claimed["task"], &claimed["epoch"]), (&json!("0"), &json!(1)));
    assert_eq!(offsets(&worker.event("records").await), [0, 1]);
    let stored = worker.commit(1, 2).await;
    assert_eq!(
        (&stored["result"], &stored["seq"]),
        (&json!("success"), &json!(1))
    );
    assert_eq!(offsets(&worker.event("records").await), [2, 3]);
    // A record that failed comes again, with the records behind it.
    let fail = json!({"command": "fail", "task": "0", "epoch": 1, "seq": 2, "offset": 2, "error": "odd"});
    assert_eq!(worker.ask(fail).await["attempts"], 1);
    assert_eq!(offsets(&worker.event("records").await), [2, 3]);
    let stored = worker.commit(3, 4).await;
    assert_eq!(stored["result"], "success", "{stored}");
    assert_eq!(offsets(&worker.event("records").await), [4]);
    let get = json!({"command": "get", "task": "0", "epoch": 1, "table": "sums", "keys": ["k"]});
    assert_eq!(worker.ask(get).await["values"], json!([null]));
}

/// Commits of such an app name no place.
#[tokio::test]
async fn at_most_once_any_commit_brings_the_credit_back() {
    let world = World::new().await;
    world.send("PUT /v1/topics/in", r#"{"partitions": 1}"#).await;
    let definition = r#"{"topics": ["in"], "guarantee": "at-most-once", "worker_timeout_ms": 2000}"#;
    world.send("PUT /v1/apps/sum", definition).await;
    produce(&world, 5).await;
    let credit = json!({"credit": {"records": 2, "bytes": 1_000_000}});
    let (mut worker, _) = Worker::join(&world, "w", credit).await;
    for (seq, expected) in [(1, vec![0, 1]), (2, vec![2, 3]), (3, vec![4])] {
        assert_eq!(offsets(&worker.event("records").await), expected);
        let commit = json!({"command": "commit", "task": "0", "epoch": 1, "seq": seq});
        assert_eq!(worker.ask(commit).await["result"], "success");
    }
}

/// At once, before its silence counts.
#[tokio::test(start_paused = true)]
async fn a_worker_is_told_that_its_app_was_deleted() {
    let world = world().await;
    let (mut worker, _) = Worker::join(&world, "w", json!({})).await;
    worker.event("claimed").await;
    world.send("DELETE /v1/apps/sum?force=true", "").await;
    while !worker.pushed.iter().any(|message| message["notice"] == "over") {
        let ready = timeout(Duration::from_secs(1), worker.session.ready());
        ready.await.expect("a notice");
        worker.session.push(&mut worker.out).unwrap();
        let came = worker.came();
        worker.pushed.extend(came);
    }
}

#[tokio::test]
async fn refusals_have_the_codes_of_the_routes() {
    let world = world().await;
    let mut stranger = Worker::new(&world);
    let refused = stranger.ask(json!({"command": "beat"})).await;
    assert_eq!(refused["error"], "no_such_worker", "{refused}");
    for command in [json!({"command": "sing"}), json!({"command": "join"})] {
        let refused = stranger.ask(command).await;
        assert_eq!(refused["error"], "bad_request", "{refused}");
    }
    let (mut worker, _) = Worker::join(&world, "w", json!({})).await;
    worker.event("claimed").await;
    for (command, error) in [
        (
            json!({"command": "commit", "task": "0", "epoch": 7, "seq": 1}),
            "lost_claim",
        ),
        (
            json!({"command": "commit", "task": "0", "epoch": 1, "seq": 5}),
            "out_of_order",
        ),
        (json!({"command": "beat", "more": 1}), "unknown_field"),
        (json!({"command": "drain", "over": 1}), "unknown_field"),
        (
            json!({"command": "release", "task": "9", "epoch": 1}),
            "no_such_task",
        ),
    ] {
        let said = command.to_string();
        let refused = worker.ask(command).await;
        assert_eq!(refused["error"], error, "{said}: {refused}");
        assert!(refused["info"].is_string() && refused.get("status").is_none());
    }
    assert_eq!(worker.session.on_message(Ok("{"), &mut worker.out), Step::Done);
    assert_eq!(worker.came()[0]["error"], "bad_json");
}

#[tokio::test(start_paused = true)]
async fn an_open_connection_is_no_sign_of_life_and_another_takes_over() {
    let world = world().await;
    produce(&world, 1).await;
    let (mut silent, _) = Worker::join(&world, "silent", json!({})).await;
    silent.event("records").await;
    let (mut other, _) = Worker::join(&world, "other", json!({})).await;
    let claimed = other.event("claimed").await;
    assert_eq!(
        (&claimed["reason"], &claimed["epoch"]),
        (&json!("takeover"), &json!(2))
    );
    assert_eq!(offsets(&other.event("records").await), [0]);
    silent.event("over").await;
    // Under the same name, the later connection has the claims.
    let (mut later, joined) = Worker::join(&world, "other", json!({})).await;
    assert_eq!(joined["resumed"][0]["task"], "0", "{joined}");
    assert_eq!(offsets(&later.event("records").await), [0]);
    other.event("taken_over").await;
    let refused = other.ask(json!({"command": "beat"})).await;
    assert_eq!(refused["error"], "taken_over", "{refused}");
    let left = later.ask(json!({"command": "leave"})).await;
    assert_eq!(left["result"], "success", "{left}");
}

#[tokio::test]
async fn a_worker_that_reads_by_itself_gets_events_alone() {
    let world = world().await;
    produce(&world, 2).await;
    let (mut worker, _) = Worker::join(&world, "w", json!({"deliver": false})).await;
    worker.event("claimed").await;
    // It read both by another way.
    let stored = worker.commit(1, 2).await;
    assert_eq!(stored["result"], "success", "{stored}");
    let split = world.send("POST /v1/apps/sum/tasks/0/split", "{}").await;
    assert_eq!(split.1["code"], "not_splittable", "{split:?}");
    let drained = worker.ask(json!({"command": "drain", "over_ms": 0})).await;
    assert_eq!(drained["result"], "success", "{drained}");
    assert_eq!(worker.event("revoke").await["task"], "0");
    let released = worker
        .ask(json!({"command": "release", "task": "0", "epoch": 1}))
        .await;
    assert_eq!(released["result"], "success", "{released}");
    assert!(worker.pushed.iter().all(|it| it["event"] != "records"));
}

/// A worker that reads nothing is sent a bounded number of messages, whatever its credit is.
#[tokio::test(start_paused = true)]
async fn messages_for_a_worker_that_never_reads_are_bounded() {
    const RECORDS: u64 = 100_000;
    let world = world().await;
    produce(&world, RECORDS).await;
    let credit = json!({"credit": {"records": 1_u64 << 40, "bytes": 1_u64 << 50}});
    let (mut worker, _) = Worker::join(&world, "w", credit).await;
    // Until nothing is left to do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.session.push(&mut worker.out).unwrap();
    let waited = worker.came();
    assert!(waited.len() <= 65, "{} messages", waited.len());
    worker.pushed.extend(waited);
    let mut count = 0;
    while count < RECORDS {
        count += offsets(&worker.event("records").await).len() as u64;
    }
}

/// Timers count against the credit, too: those that are due come as they are committed.
#[tokio::test]
async fn timers_come_as_far_as_credit_goes() {
    let world = world().await;
    produce(&world, 1).await;
    let change = r#"{"time": {"clock": "wall"}}"#;
    world.send("PATCH /v1/apps/sum", change).await;
    let credit = json!({"credit": {"records": 1000, "bytes": 1_000_000}});
    let (mut worker, _) = Worker::join(&world, "w", credit).await;
    worker.event("records").await;
    let timers: Vec<_> = (0..3000).map(|number| json!([number.to_string(), 1])).collect();
    let set = json!({"command": "commit", "task": "0", "epoch": 1, "seq": 1, "next": 1, "timers": timers});
    assert_eq!(worker.ask(set).await["result"], "success");
    for seq in 2..=4 {
        let time = worker.event("time").await;
        let due = time["due"].as_array().unwrap().clone();
        assert_eq!(due.len(), 1000);
        assert!(worker.pushed.iter().all(|message| message["event"] != "time"));
        let cleared: Vec<_> = due.iter().map(|timer| json!([timer[0], null])).collect();
        let clear = json!({"command": "commit", "task": "0", "epoch": 1, "seq": seq, "timers": cleared});
        assert_eq!(worker.ask(clear).await["result"], "success");
    }
}

#[tokio::test]
async fn a_worker_of_slices_gets_the_records_of_each() {
    let world = world().await;
    let headers = [("content-type", "application/json")];
    let records: Vec<_> = (0..20)
        .map(|number| json!({"key": format!("k{number}"), "value": number}))
        .collect();
    let path = "POST /v1/topics/in/records?as=record";
    world
        .response_to(path, &headers, &json!(records).to_string())
        .await;
    let (mut worker, _) = Worker::join(&world, "w", json!({})).await;
    assert_eq!(offsets(&worker.event("records").await).len(), 20);
    let split = world.send("POST /v1/apps/sum/tasks/0/split", "{}").await;
    assert_eq!(split.1["tasks"], json!(["0.0", "0.1"]), "{split:?}");
    assert_eq!(worker.event("lost").await["task"], "0");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let records = worker.event("records").await;
        let (task, epoch) = (records["task"].clone(), records["epoch"].clone());
        assert_ne!(task, "0");
        seen.extend(offsets(&records));
        let commit =
            json!({"command": "commit", "task": task, "epoch": epoch, "seq": 1, "next": records["next"]});
        let stored = worker.ask(commit).await;
        assert_eq!(stored["result"], "success", "{stored}");
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    let stale = json!({"command": "commit", "task": "0", "epoch": 1, "seq": 1, "next": 20});
    assert_eq!(worker.ask(stale).await["error"], "lost_claim");
    let early = json!({"command": "emit", "task": "0.0", "epoch": 2, "emit": []});
    assert_eq!(
        worker.ask(early).await["error"],
        "bad_request",
        "the app is exactly-once"
    );
}
