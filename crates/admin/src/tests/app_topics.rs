//! Apps whose topic is deleted and made again, and commits of several tasks, over HTTP.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::apps::{Worker, produce, world};

#[tokio::test]
async fn a_topic_that_was_made_again_is_shown_and_accepted() {
    let world = world().await;
    produce(&world, 0, &[("a", 1), ("b", 2)]).await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let fetch = json!({"task": "0", "epoch": 1});
    one.ask("fetch", fetch.clone()).await;
    let (status, stored) = one
        .ask("commit", json!({"task": "0", "epoch": 1, "seq": 1, "next": 1}))
        .await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    world.ask("DELETE /v1/topics/in?force=true").await;
    let lost = async || {
        let (_, shown) = world.ask("GET /v1/apps/sum").await;
        let (_, listed) = world.ask("GET /v1/apps").await;
        (shown, listed["items"][0]["stopped"].clone())
    };
    let (shown, stopped) = lost().await;
    assert_eq!(
        shown["lost"],
        json!([{"topic": "in", "made_again": false}]),
        "{shown}"
    );
    assert_eq!(
        (&stopped, &shown["tasks"][0]["position"]["end"]),
        (&json!(2), &json!({}))
    );
    world.send("PUT /v1/topics/in", r#"{"partitions": 2}"#).await;
    produce(&world, 0, &[("c", 3), ("d", 4), ("e", 5)]).await;
    let (status, refused) = one.ask("fetch", fetch).await;
    assert_eq!(
        (status.as_u16(), &refused["code"], &refused["topic"]),
        (409, &json!("topic_made_again"), &json!("in"))
    );
    let (shown, _) = lost().await;
    assert_eq!(
        (&shown["lost"][0]["made_again"], &shown["lag"]),
        (&json!(true), &json!(3)),
        "{shown}"
    );
    let (status, accepted) = world.ask("POST /v1/apps/sum/accept-gap").await;
    assert_eq!(status, StatusCode::OK, "{accepted}");
    let (shown, stopped) = lost().await;
    assert_eq!((&shown["lost"], &stopped), (&json!([]), &json!(0)));
    let claims = one.claims(4).await;
    let claim = claims.iter().rev().find(|claim| claim["task"] == "0").unwrap();
    let asked = json!({"task": "0", "epoch": claim["epoch"]});
    let (_, fetched) = one.ask("fetch", asked).await;
    assert_eq!(fetched["records"][0]["key"], "c", "{fetched}");
    assert_eq!(fetched["next"], json!({"in": 3}));
}

#[tokio::test]
async fn commits_of_several_tasks_are_one_request() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let commit = |task: &str, seq: u64| {
        json!({"task": task, "epoch": 1, "seq": seq, "put": {"sums": [[task, seq]]},
               "emit": [{"topic": "out", "value": task}]})
    };
    let (status, refused) = one
        .ask("commit", json!({"tasks": [commit("0", 1), commit("1", 7)]}))
        .await;
    assert_eq!(
        (status.as_u16(), &refused["code"], &refused["expected"]),
        (409, &json!("out_of_order"), &json!(1))
    );
    let both = json!({"tasks": [commit("1", 1), commit("0", 1)]});
    let (status, stored) = one.ask("commit", both.clone()).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    assert_eq!(stored["tasks"][0]["emitted"][0]["base"], 0, "{stored}");
    assert_eq!(stored["tasks"][1]["emitted"][0]["base"], 1, "{stored}");
    let (_, again) = one.ask("commit", both).await;
    assert_eq!(again["tasks"][1]["repeated"], true, "{again}");
    for (body, code) in [
        (json!({"tasks": []}), "bad_request"),
        (json!({"tasks": [commit("0", 2), commit("0", 3)]}), "bad_request"),
        (json!({"tasks": [[1, 2]]}), "bad_request"),
        (json!({"tasks": [commit("0", 2)], "zeal": 1}), "unknown_field"),
        (
            json!({"tasks": [{"task": "0", "epoch": 1, "seq": 2, "more": 1}]}),
            "unknown_field",
        ),
    ] {
        let said = body.to_string();
        let (_, refused) = one.ask("commit", body).await;
        assert_eq!(refused["code"], code, "{said}: {refused}");
    }
    // One alone in the list is answered as a list.
    let (_, stored) = one.ask("commit", json!({"tasks": [commit("0", 2)]})).await;
    assert_eq!(stored["tasks"][0]["seq"], 2, "{stored}");
}

#[tokio::test]
async fn a_worker_reads_the_state_of_a_task_before_it_comes() {
    let world = world().await;
    let mut one = Worker::join(&world, "one").await;
    one.claims(2).await;
    let commit = |seq: u64, put: Value, delete: Value| {
        let commit =
            json!({"task": "1", "epoch": 1, "seq": seq, "put": {"sums": put}, "delete": {"sums": delete}});
        one.ask("commit", commit)
    };
    commit(1, json!([["a", 1], ["b", 2]]), json!([])).await;
    let mut two = Worker::join_as(&world, "two", r#"{"state": "eager"}"#).await;
    let prepare = two.event("prepare").await;
    assert_eq!(
        (&prepare["task"], &prepare["epoch"], &prepare["from"]),
        (&json!("1"), &json!(1), &json!("one"))
    );
    let scan = |epoch: u64, after: Value| {
        two.ask(
            "scan",
            json!({"task": "1", "epoch": epoch, "table": "sums", "after": after}),
        )
    };
    let (status, read) = scan(1, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{read}");
    assert_eq!(
        (read["entries"].as_array().unwrap().len(), &read["deleted"]),
        (2, &json!([]))
    );
    let (status, _) = two
        .ask("scan", json!({"task": "0", "epoch": 1, "table": "sums"}))
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "of this one only");
    // The holder goes on until the other has read.
    let (status, stored) = commit(2, json!([["c", 3], ["b", 4]]), json!(["a"])).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    let prepared = json!({"task": "1", "epoch": 1});
    let (status, _) = two.ask("prepared", prepared.clone()).await;
    assert_eq!(status, StatusCode::OK);
    one.event("revoke").await;
    let (status, _) = one.ask("release", prepared.clone()).await;
    assert_eq!(status, StatusCode::OK);
    let claimed = two.event("claimed").await;
    assert_eq!((&claimed["epoch"], &claimed["seq"]), (&json!(2), &json!(2)));
    let scan = json!({"task": "1", "epoch": 2, "table": "sums", "after": read["place"]});
    let (_, changed) = two.ask("scan", scan).await;
    assert_eq!(
        (&changed["entries"], &changed["deleted"]),
        (
            &json!([{"key": "c", "value": 3}, {"key": "b", "value": 4}]),
            &json!(["a"])
        )
    );
    let (status, refused) = two.ask("prepared", prepared).await;
    assert_eq!((status.as_u16(), &refused["code"]), (409, &json!("lost_claim")));
}
