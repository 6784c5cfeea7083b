//! Apps over plain HTTP: two workers, one of which falls silent.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::World;

/// A worker that knows its token and its claims.
pub(super) struct Worker<'a> {
    world: &'a World,
    name: &'a str,
    token: String,
    after: u64,
    pub(super) events: Vec<Value>,
}

impl<'a> Worker<'a> {
    pub(super) async fn join(world: &'a World, name: &'a str) -> Worker<'a> {
        Self::join_as(world, name, "{}").await
    }

    pub(super) async fn join_as(world: &'a World, name: &'a str, wishes: &str) -> Worker<'a> {
        let path = format!("POST /v1/apps/sum/workers/{name}/join");
        let (status, joined) = world.send(&path, wishes).await;
        assert_eq!(status, StatusCode::OK, "{joined}");
        Self {
            world,
            name,
            token: joined["token"].as_str().unwrap().to_owned(),
            after: 0,
            events: Vec::new(),
        }
    }

    pub(super) async fn ask(&self, command: &str, body: Value) -> (StatusCode, Value) {
        let path = format!("POST /v1/apps/sum/workers/{}/{command}", self.name);
        let headers = [("stafett-worker", &*self.token)];
        let response = self.world.response_to(&path, &headers, &body.to_string()).await;
        super::read(response).await
    }

    async fn poll(&mut self) -> Vec<Value> {
        let asked = json!({"after": self.after, "wait_ms": 60_000});
        let (status, answer) = self.ask("poll", asked).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let events = answer["events"].as_array().unwrap().clone();
        if let Some(last) = events.last() {
            self.after = last["number"].as_u64().unwrap();
        }
        self.events.extend(events.iter().cloned());
        events
    }

    /// Polls until the worker was told this, and returns it.
    pub(super) async fn event(&mut self, word: &str) -> Value {
        loop {
            if let Some(event) = self.events.iter().rev().find(|event| event["event"] == word) {
                return event.clone();
            }
            self.poll().await;
        }
    }

    /// Polls until the worker was told this many claims.
    pub(super) async fn claims(&mut self, count: usize) -> Vec<Value> {
        loop {
            let claims: Vec<_> = self
                .events
                .iter()
                .filter(|it| it["event"] == "claimed")
                .cloned()
                .collect();
            if claims.len() >= count {
                return claims;
            }
            self.poll().await;
        }
    }

    /// Fetches the waiting records and adds them to the sums in the state. Returns the number of records.
    async fn work(&self, task: &Value, epoch: &Value, seq: &mut u64) -> usize {
        let asked = json!({"task": task, "epoch": epoch, "records_max": 2});
        let (status, fetched) = self.ask("fetch", asked).await;
        assert_eq!(status, StatusCode::OK, "{fetched}");
        let records = fetched["records"].as_array().unwrap();
        if records.is_empty() {
            return 0;
        }
        let mut keys: Vec<Value> = records.iter().map(|record| record["key"].clone()).collect();
        keys.sort_by_key(Value::to_string);
        keys.dedup();
        let asked = json!({"task": task, "epoch": epoch, "table": "sums", "keys": keys});
        let (_, got) = self.ask("get", asked).await;
        let mut put = Vec::new();
        for (key, before) in keys.iter().zip(got["values"].as_array().unwrap()) {
            let new = records.iter().filter(|record| record["key"] == *key);
            let new: u64 = new.map(|record| record["value"].as_u64().unwrap()).sum();
            put.push(json!([key, before["value"].as_u64().unwrap_or(0) + new]));
        }
        *seq += 1;
        let emit: Vec<_> = put
            .iter()
            .map(|it| json!({"topic": "out", "key": it[0], "value": it[1]}))
            .collect();
        let commit = json!({"task": task, "epoch": epoch, "seq": *seq, "next": fetched["next"], "put": {"sums": put}, "emit": emit});
        let (status, stored) = self.ask("commit", commit.clone()).await;
        assert_eq!(status, StatusCode::OK, "{stored}");
        // The answer is lost, and the commit sent again.
        let (_, again) = self.ask("commit", commit).await;
        assert_eq!((&again["seq"], &again["repeated"]), (&json!(*seq), &json!(true)));
        records.len()
    }
}

pub(super) async fn world() -> World {
    let world = World::new().await;
    world.send("PUT /v1/topics/in", r#"{"partitions": 2}"#).await;
    world.send("PUT /v1/topics/out", r#"{"partitions": 1}"#).await;
    let definition = r#"{"topics": ["in"], "tables": {"sums": {}}, "worker_timeout_ms": 2000}"#;
    let (status, declared) = world.send("PUT /v1/apps/sum", definition).await;
    assert_eq!(
        (status, declared),
        (StatusCode::CREATED, json!({"name": "sum", "tasks": 2}))
    );
    world
}

#[tokio::test]
async fn app_shows_its_settings_as_they_are_changed() {
    let world = world().await;
    let settings = async || world.send("GET /v1/apps/sum", "").await.1["settings"].clone();
    let at_first = json!({
        "balance": "count", "rebalance": "auto", "worker_timeout_ms": 2000, "revoke_ms": 30000,
        "time": {"clock": "record", "grace_ms": 5000, "idle_ms": 1000}, "state_bytes_max": 256 << 20,
        "on_gap": "stop", "attempts_max": 5, "dead_letter": null, "filter": null,
    });
    assert_eq!(settings().await, at_first);
    let change = r#"{"filter": "value.n > 1", "balance": "load", "on_gap": "skip", "time": {"clock": "wall"}, "dead_letter": "out"}"#;
    let (status, said) = world.send("PATCH /v1/apps/sum", change).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    let changed = settings().await;
    assert_eq!(changed["balance"], "load");
    assert_eq!(changed["on_gap"], "skip");
    assert_eq!(changed["time"]["clock"], "wall");
    assert_eq!(changed["dead_letter"], "out");
    assert_eq!(changed["attempts_max"], 5);
    assert_eq!(changed["filter"], "value.n > 1");
    let (_, said) = world
        .send("PATCH /v1/apps/sum", r#"{"filter": "exchange == 'x'"}"#)
        .await;
    assert_eq!(
        (&said["code"], &said["field"]),
        (&json!("bad_request"), &json!("filter")),
        "{said}"
    );
    world.send("PATCH /v1/apps/sum", r#"{"filter": null}"#).await;
    assert_eq!(settings().await["filter"], json!(null));
}

/// Two changes at once are both there.
#[tokio::test]
async fn changes_at_once_do_not_undo_each_other() {
    let world = world().await;
    let change = async |body: &str| world.send("PATCH /v1/apps/sum", body).await.0;
    let (one, two, three) = tokio::join!(
        change(r#"{"balance": "load"}"#),
        change(r#"{"revoke_ms": 7}"#),
        change(r#"{"time": {"grace_ms": 9}}"#),
    );
    assert_eq!([one, two, three], [StatusCode::OK; 3]);
    let settings = world.send("GET /v1/apps/sum", "").await.1["settings"].clone();
    let found = [
        &settings["balance"],
        &settings["revoke_ms"],
        &settings["time"]["grace_ms"],
    ];
    assert_eq!(found, [&json!("load"), &json!(7), &json!(9)]);
}

pub(super) async fn produce(world: &World, partition: u32, records: &[(&str, u64)]) {
    let records: Vec<_> = records
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value, "partition": partition}))
        .collect();
    let path = "POST /v1/topics/in/records?as=record";
    let headers = [("content-type", "application/json")];
    let response = world
        .response_to(path, &headers, &json!(records).to_string())
        .await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_over_from_a_silent_one_and_nothing_is_lost_or_doubled() {
    let world = world().await;
    produce(&world, 0, &[("a", 1), ("b", 2), ("a", 3), ("a", 4)]).await;
    produce(&world, 1, &[("c", 5)]).await;
    let mut one = Worker::join(&world, "one").await;
    let claims = one.claims(2).await;
    assert_eq!(
        (&claims[0]["reason"], &claims[0]["next"]),
        (&json!("start"), &json!({"in": 0}))
    );
    let (task, epoch, mut seq) = (json!("0"), claims[0]["epoch"].clone(), 0);
    assert_eq!(one.work(&task, &epoch, &mut seq).await, 2);
    // It has fetched more, and is killed before it commits.
    let (_, in_hand) = one.ask("fetch", json!({"task": "0", "epoch": epoch})).await;
    assert_eq!(in_hand["records"].as_array().unwrap().len(), 2);
    let mut two = Worker::join(&world, "two").await;
    let claims = two.claims(2).await;
    let claim = claims.iter().find(|claim| claim["task"] == "0").unwrap();
    assert_eq!(
        (&claim["epoch"], &claim["seq"], &claim["next"]),
        (&json!(2), &json!(1), &json!({"in": 2}))
    );
    assert_eq!(
        (&claim["reason"], &claim["from"]),
        (&json!("takeover"), &json!("one"))
    );
    // The first one wakes up and goes on.
    let late =
        json!({"task": "0", "epoch": 1, "seq": 2, "next": 4, "emit": [{"topic": "out", "value": "late"}]});
    let (status, refused) = one.ask("commit", late.clone()).await;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::NOT_FOUND, &json!("no_such_worker"))
    );
    let one = Worker::join(&world, "one").await;
    let (status, refused) = one.ask("commit", late).await;
    assert_eq!(
        (status, &refused["code"], &refused["epoch"]),
        (StatusCode::CONFLICT, &json!("lost_claim"), &json!(2))
    );
    for claim in &claims {
        let mut seq = claim["seq"].as_u64().unwrap();
        while two.work(&claim["task"], &claim["epoch"], &mut seq).await > 0 {}
    }
    let (_, sums) = world.ask("GET /v1/apps/sum/state/sums").await;
    let items = sums["items"].as_array().unwrap();
    let mut sums: Vec<_> = items
        .iter()
        .map(|it| (it["key"].to_string(), it["value"].clone()))
        .collect();
    sums.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("\"a\"", 8), ("\"b\"", 2), ("\"c\"", 5)].map(|(key, sum)| (key.to_owned(), json!(sum)));
    assert_eq!(sums, expected);
    let (_, out) = world.ask("GET /v1/topics/out/partitions/0/records?as=json").await;
    let values: Vec<_> = out["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["value"].clone())
        .collect();
    assert_eq!(values.len(), 4, "a and b, a, c: {values:?}");
    let (_, shown) = world.ask("GET /v1/apps/sum").await;
    assert_eq!(shown["lag"], 0, "{shown}");
}

#[tokio::test]
async fn refusals_have_stable_codes() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let commit = |change: Value| {
        let mut commit = json!({"task": "0", "epoch": 1, "seq": 1});
        commit
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        one.ask("commit", commit)
    };
    for (change, status, code) in [
        (json!({"seq": 2}), 409, "out_of_order"),
        (json!({"next": 1}), 400, "bad_offset"),
        (json!({"next": {"other": 1}}), 400, "bad_request"),
        (json!({"put": {"none": [["a", 1]]}}), 404, "no_such_table"),
        (
            json!({"emit": [{"topic": "none", "value": 1}]}),
            404,
            "no_such_topic",
        ),
        (
            json!({"emit": [{"topic": "out", "value": 1, "partition": 7}]}),
            400,
            "bad_request",
        ),
        (json!({"task": "7"}), 404, "no_such_task"),
        (json!({"task": "x"}), 404, "no_such_task"),
        (json!({"epoch": 2}), 409, "lost_claim"),
        (json!({"epoch": 0}), 409, "lost_claim"),
        (json!({"more": 1}), 400, "unknown_field"),
        (json!({"put": {"sums": [["a", 1], ["a", 2]]}}), 400, "bad_request"),
        (json!({"done": [["a", 5]]}), 400, "bad_offset"),
    ] {
        let said = change.to_string();
        let (given, refused) = commit(change).await;
        assert_eq!(
            (given.as_u16(), &refused["code"]),
            (status, &json!(code)),
            "{said}: {refused}"
        );
    }
    let (status, gone) = world.ask("GET /v1/apps/sum/state/sums/a").await;
    assert_eq!(
        (status, &gone["code"]),
        (StatusCode::NOT_FOUND, &json!("no_such_key"))
    );
}

#[tokio::test]
async fn wrong_requests_of_operators_have_stable_codes() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    for (request, body, status, code) in [
        (
            "PUT /v1/apps/sum",
            r#"{"topics": ["in"]}"#,
            409,
            "exists_differently",
        ),
        ("PUT /v1/apps/x", r#"{"topics": []}"#, 400, "bad_request"),
        (
            "PUT /v1/apps/sum/tasks/0/worker",
            r#"{"worker": ""}"#,
            400,
            "bad_request",
        ),
        ("PUT /v1/apps/x", r#"{"topics": ["none"]}"#, 404, "no_such_topic"),
        (
            "PUT /v1/apps/x",
            r#"{"topics": ["in", "out"]}"#,
            422,
            "not_copartitioned",
        ),
        (
            "PUT /v1/apps/x",
            r#"{"topics": ["in"], "worker_timeout_ms": 1}"#,
            400,
            "bad_request",
        ),
        ("DELETE /v1/apps/sum", "", 409, "in_use"),
        ("DELETE /v1/topics/in", "", 409, "in_use"),
        (
            "PATCH /v1/topics/in",
            r#"{"partitions": 3}"#,
            409,
            "topic_has_apps",
        ),
        ("DELETE /v1/apps/none", "", 404, "no_such_app"),
        ("POST /v1/apps/sum/workers/none/drain", "", 404, "no_such_worker"),
        (
            "PUT /v1/apps/sum/tasks/0/worker",
            r#"{"worker": "none", "absent": "refuse"}"#,
            404,
            "no_such_worker",
        ),
        ("POST /v1/apps/sum/workers/one/poll", "{}", 400, "bad_request"),
    ] {
        let (given, refused) = world.send(request, body).await;
        assert_eq!(
            (given.as_u16(), &refused["code"]),
            (status, &json!(code)),
            "{request}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_paused_app_delivers_nothing_and_one_without_its_topic_says_so() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    world.ask("POST /v1/apps/sum/pause").await;
    let (status, paused) = one.ask("fetch", json!({"task": "0", "epoch": 1})).await;
    assert_eq!((status.as_u16(), &paused["code"]), (423, &json!("paused")));
    world.ask("POST /v1/apps/sum/resume").await;
    let (status, _) = one.ask("fetch", json!({"task": "0", "epoch": 1})).await;
    assert_eq!(status, StatusCode::OK);
    world.ask("DELETE /v1/topics/in?force=true").await;
    let (status, gone) = one.ask("fetch", json!({"task": "0", "epoch": 1})).await;
    assert_eq!((status.as_u16(), &gone["code"]), (404, &json!("no_such_topic")));
    let (status, _) = world.ask("DELETE /v1/apps/sum?force=true").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_drained_worker_hands_over_what_it_has() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let mut two = Worker::join(&world, "two").await;
    world.ask("POST /v1/apps/sum/workers/one/drain").await;
    while one
        .events
        .iter()
        .filter(|event| event["event"] == "revoke")
        .count()
        < 2
    {
        for event in one.poll().await {
            if event["event"] == "revoke" {
                let (status, _) = one
                    .ask("release", json!({"task": event["task"], "epoch": event["epoch"]}))
                    .await;
                assert_eq!(status, StatusCode::OK);
            }
        }
    }
    assert_eq!(two.claims(2).await.len(), 2);
    let (_, shown) = world.ask("GET /v1/apps/sum").await;
    assert_eq!(
        (&shown["workers"][0]["tasks"], &shown["workers"][0]["draining"]),
        (&json!(0), &json!(true))
    );
    let (_, listed) = world.ask("GET /v1/apps").await;
    assert_eq!(
        (&listed["items"][0]["workers"], &listed["items"][0]["free"]),
        (&json!(2), &json!(0))
    );
}

#[tokio::test]
async fn a_failing_record_goes_to_the_dead_letters_and_a_reset_brings_it_back() {
    let world = world().await;
    produce(&world, 0, &[("a", 1), ("b", 2)]).await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let fail = |seq: u64, offset: u64| {
        let failed =
            json!({"task": "0", "epoch": 1, "seq": seq, "offset": offset, "error": "odd", "retry": false});
        one.ask("fail", failed)
    };
    let fetch = json!({"task": "0", "epoch": 1});
    one.ask("fetch", fetch.clone()).await;
    let (status, refused) = fail(1, 1).await;
    assert_eq!((status.as_u16(), &refused["code"]), (400, &json!("bad_offset")));
    let (status, failed) = fail(1, 0).await;
    assert_eq!(
        (status.as_u16(), &failed["retry"]),
        (200, &Value::Null),
        "{failed}"
    );
    let (status, stopped) = one.ask("fetch", fetch.clone()).await;
    assert_eq!(
        (status.as_u16(), &stopped["code"]),
        (409, &json!("record_failed")),
        "{stopped}"
    );
    let (_, shown) = world.ask("GET /v1/apps/sum").await;
    assert_eq!(shown["tasks"][0]["failure"]["error"], "odd", "{shown}");

    for (body, status) in [
        (r#"{"dead_letter": "none"}"#, 404),
        (r#"{"attempts_max": 0}"#, 400),
        (r#"{"topics": ["out"]}"#, 400),
        (r#"{"dead_letter": "out", "attempts_max": 1}"#, 200),
    ] {
        let (given, answer) = world.send("PATCH /v1/apps/sum", body).await;
        assert_eq!(given.as_u16(), status, "{body}: {answer}");
    }
    let (_, failed) = fail(2, 0).await;
    assert_eq!(
        (&failed["dead_letter"], &failed["attempts"]),
        (&json!("out"), &json!(2))
    );
    let (_, letters) = world.ask("GET /v1/topics/out/partitions/0/records?as=json").await;
    assert_eq!(letters["records"][0]["value"], 1, "{letters}");

    let reset = r#"{"to": "earliest"}"#;
    let (status, refused) = world.send("POST /v1/apps/sum/reset", reset).await;
    assert_eq!((status.as_u16(), &refused["code"]), (409, &json!("not_paused")));
    let (_, plan) = world.send("POST /v1/apps/sum/reset?dry_run=true", reset).await;
    assert_eq!(
        plan["tasks"][0],
        json!({"task": "0", "from": {"in": 1}, "to": {"in": 0}})
    );
    world.send("POST /v1/apps/sum/pause", "").await;
    for (body, status) in [
        (r#"{"to": "some day"}"#, 400),
        (r#"{"to": 9, "task": "0"}"#, 400),
        (r#"{"to": 0, "task": "9"}"#, 404),
        (r#"{"to": "-1h"}"#, 200),
        (r#"{"to": {"in": 1}, "task": "0", "state": "drop"}"#, 200),
        (reset, 200),
    ] {
        let (given, answer) = world.send("POST /v1/apps/sum/reset", body).await;
        assert_eq!(given.as_u16(), status, "{body}: {answer}");
    }
    world.send("POST /v1/apps/sum/resume", "").await;
    let (_, shown) = world.ask("GET /v1/apps/sum").await;
    assert_eq!(shown["lag"], 2, "{shown}");
}
