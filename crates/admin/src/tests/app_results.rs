//! Results of apps in queues and before their commits, timers that fail, and tasks split and merged, over
//! plain HTTP.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::apps::{Worker, world};

#[tokio::test]
async fn results_go_into_queues_together_with_their_commit() {
    let world = world().await;
    world.queue("/", "alerts").await;
    let bounded = r#"{"length_max": 1, "overflow": "reject"}"#;
    let (status, made) = world.send("PUT /v1/queues/bounded", bounded).await;
    assert!(status.is_success(), "{made}");
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let commit = |seq: u64, emit: Value| {
        let put = json!({"sums": [["a", seq]]});
        one.ask(
            "commit",
            json!({"task": "0", "epoch": 1, "seq": seq, "put": put, "emit": emit}),
        )
    };
    let both = json!([
        {"queue": "alerts", "value": {"a": 1}, "priority": 5, "headers": {"from": "sum"}},
        {"topic": "out", "key": "a", "value": 1},
        {"queue": "alerts", "value_base64": "/w=="}
    ]);
    let (status, stored) = commit(1, both.clone()).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    assert_eq!(
        stored["emitted"],
        json!([{"topic": "out", "partition": 0, "base": 0, "count": 1}, {"queue": "alerts", "count": 2}])
    );
    let (_, again) = commit(1, both).await;
    assert_eq!(
        (&again["repeated"], &again["emitted"]),
        (&json!(true), &json!([]))
    );
    let (_, peeked) = world.ask("GET /v1/queues/alerts/messages").await;
    let messages = peeked["messages"].as_array().unwrap();
    assert_eq!(
        (messages.len(), &messages[0]["content"]),
        (2, &json!({"a": 1})),
        "{peeked}"
    );
    assert_eq!(messages[0]["headers"]["from"], "sum", "{peeked}");
    // All or nothing: one refused message, and neither state nor records are stored.
    for (emit, code) in [
        (
            json!([{"topic": "out", "value": 2}, {"queue": "none", "value": 2}]),
            "no_such_queue",
        ),
        (
            json!([{"topic": "out", "value": 2}, {"queue": "bounded", "value": 2}, {"queue": "bounded", "value": 3}]),
            "queue_full",
        ),
        (json!([{"value": 2}]), "bad_request"),
        (
            json!([{"queue": "alerts", "topic": "out", "value": 2}]),
            "bad_request",
        ),
        (
            json!([{"topic": "out", "value": 2, "priority": 1}]),
            "bad_request",
        ),
    ] {
        let (_, refused) = commit(2, emit).await;
        assert_eq!(refused["code"], code, "{refused}");
    }
    let (_, state) = world.ask("GET /v1/apps/sum/state/sums/a?task=0").await;
    assert_eq!((&state["value"], &state["seq"]), (&json!(1), &json!(1)));
    let (_, out) = world.ask("GET /v1/topics/out/partitions/0/records?as=json").await;
    assert_eq!(out["records"].as_array().unwrap().len(), 1, "{out}");
    let (_, bounded) = world.ask("GET /v1/queues/bounded/messages").await;
    assert!(bounded["messages"].as_array().unwrap().is_empty(), "{bounded}");
}

#[tokio::test]
async fn a_task_is_split_and_merged() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let (status, cut) = world
        .send("POST /v1/apps/sum/tasks/1/split", r#"{"into": 2}"#)
        .await;
    assert_eq!(
        (status, cut),
        (StatusCode::OK, json!({"tasks": ["1.0", "1.1"], "at": {"in": 0}}))
    );
    let claims = one.claims(4).await;
    assert_eq!(claims[3]["reason"], "split", "{claims:?}");
    let lost = one.events.iter().find(|event| event["event"] == "lost").unwrap();
    assert_eq!((&lost["task"], &lost["reason"]), (&json!("1"), &json!("split")));
    for (request, body, code) in [
        ("POST /v1/apps/sum/tasks/1/split", "{}", "no_such_task"),
        ("POST /v1/apps/sum/tasks/0/split", r#"{"into": 3}"#, "bad_request"),
        ("POST /v1/apps/sum/tasks/0/split", r#"{"into": 4096}"#, "too_fine"),
        ("POST /v1/apps/sum/tasks/0/merge", "", "bad_request"),
        ("POST /v1/apps/none/tasks/0/split", "{}", "no_such_app"),
    ] {
        let (_, refused) = world.send(request, body).await;
        assert_eq!(refused["code"], code, "{request}: {refused}");
    }
    let (status, cut) = world.send("POST /v1/apps/sum/tasks/1/merge", "").await;
    assert_eq!((status, &cut["tasks"]), (StatusCode::OK, &json!(["1"])), "{cut}");
    let (_, shown) = world.ask("GET /v1/apps/sum").await;
    assert_eq!(shown["tasks_total"], 2, "{shown}");
}

#[tokio::test]
async fn an_app_that_is_at_least_once_emits_before_it_commits() {
    let world = world().await;
    world.queue("/", "alerts").await;
    let mut exact = Worker::join(&world, "one").await;
    exact.claims(2).await;
    let emit = json!([{"topic": "out", "value": 1}, {"queue": "alerts", "value": 2}]);
    let early = json!({"task": "0", "epoch": 1, "emit": emit});
    let (status, refused) = exact.ask("emit", early.clone()).await;
    assert_eq!(
        (status.as_u16(), &refused["field"]),
        (400, &json!("guarantee")),
        "{refused}"
    );
    world.send("DELETE /v1/apps/sum?force=true", "").await;
    let definition = r#"{"topics": ["in"], "guarantee": "at-least-once"}"#;
    world.send("PUT /v1/apps/sum", definition).await;
    assert_eq!(
        world.ask("GET /v1/apps/sum").await.1["guarantee"],
        "at-least-once"
    );
    let mut worker = Worker::join(&world, "one").await;
    worker.claims(2).await;
    let (status, stored) = worker.ask("emit", early.clone()).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    let places =
        json!([{"topic": "out", "partition": 0, "base": 0, "count": 1}, {"queue": "alerts", "count": 1}]);
    assert_eq!(stored["emitted"], places);
    // Sent again, it is stored again.
    let (_, again) = worker.ask("emit", early).await;
    assert_eq!(again["emitted"][0]["base"], 1, "{again}");
    for (body, code) in [
        (json!({"task": "0", "epoch": 7, "emit": []}), "lost_claim"),
        (json!({"task": "9", "epoch": 1, "emit": []}), "no_such_task"),
        (json!({"task": "0", "epoch": 1}), "bad_request"),
        (
            json!({"task": "0", "epoch": 1, "emit": [{"topic": "none", "value": 1}]}),
            "no_such_topic",
        ),
        (
            json!({"task": "0", "epoch": 1, "emit": [{"queue": "none", "value": 1}]}),
            "no_such_queue",
        ),
        (
            json!({"task": "0", "epoch": 1, "emit": [], "seq": 1}),
            "unknown_field",
        ),
    ] {
        let (_, refused) = worker.ask("emit", body.clone()).await;
        assert_eq!(refused["code"], code, "{body}: {refused}");
    }
}

#[tokio::test]
async fn a_failing_timer_is_shown_and_goes_to_the_dead_letters() {
    let world = world().await;
    let change = r#"{"time": {"clock": "wall"}, "attempts_max": 2}"#;
    world.send("PATCH /v1/apps/sum", change).await;
    let mut worker = Worker::join(&world, "one").await;
    worker.claims(2).await;
    let timers = json!([["ann", 1, "late"]]);
    let set = json!({"task": "0", "epoch": 1, "seq": 1, "timers": timers});
    assert_eq!(worker.ask("commit", set).await.0, StatusCode::OK);
    let fail = |seq: u64, more: Value| {
        let mut body = json!({"task": "0", "epoch": 1, "seq": seq, "error": "odd"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        worker.ask("fail", body)
    };
    for more in [
        json!({}),
        json!({"timer": "ann"}),
        json!({"timer": "bob", "timer_name": "late"}),
    ] {
        let (status, refused) = fail(2, more.clone()).await;
        assert_eq!(
            (status.as_u16(), &refused["code"]),
            (400, &json!("bad_request")),
            "{more}: {refused}"
        );
    }
    let late = json!({"timer": "ann", "timer_name": "late", "retry": false});
    let (_, failed) = fail(2, late.clone()).await;
    assert_eq!(
        (&failed["attempts"], &failed["retry"]),
        (&json!(1), &json!(null)),
        "{failed}"
    );
    let (_, stopped) = worker.ask("fetch", json!({"task": "0", "epoch": 1})).await;
    assert_eq!(
        (&stopped["code"], &stopped["due"]),
        (&json!("record_failed"), &json!(1)),
        "{stopped}"
    );
    let shown = world.ask("GET /v1/apps/sum").await.1["tasks"][0]["failure"].clone();
    assert_eq!(shown["timer"], json!(["ann", 1, "late"]), "{shown}");
    assert_eq!(shown["topic"], json!(null), "{shown}");
    world
        .send("PATCH /v1/apps/sum", r#"{"dead_letter": "out"}"#)
        .await;
    let (_, failed) = fail(3, late).await;
    assert_eq!(failed["dead_letter"], "out", "{failed}");
    let (_, letters) = world.ask("GET /v1/topics/out/partitions/0/records?as=json").await;
    let letter = &letters["records"][0];
    assert_eq!(
        (&letter["key"], &letter["headers"]["stafett-timer"]),
        (&json!("ann"), &json!("late")),
        "{letters}"
    );
}
