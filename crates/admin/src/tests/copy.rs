//! Copies of topics.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::World;
use super::topics::refused;

const RECORDS: &str = r#"[
    {"key": "a", "value": 1, "partition": 0, "headers": {"h": "x"}, "timestamp": "2026-01-01T00:00:00Z"},
    {"key": "b", "value": 2, "partition": 1},
    {"key": "c", "value": 3, "partition": 1},
    {"key": "d", "value": 4, "partition": 1}]"#;

async fn world() -> World {
    let world = World::new().await;
    for topic in ["from", "same"] {
        let put = format!("PUT /v1/topics/{topic}");
        world.send(&put, r#"{"partitions": 2}"#).await;
    }
    world.send("PUT /v1/topics/one", r#"{"partitions": 1}"#).await;
    let headers = [("content-type", "application/json")];
    let stored = world
        .response_to("POST /v1/topics/from/records?as=record", &headers, RECORDS)
        .await;
    assert_eq!(stored.status(), StatusCode::OK);
    world
}

async fn records(world: &World, topic: &str, partition: u32) -> Vec<Value> {
    let request = format!("GET /v1/topics/{topic}/partitions/{partition}/records?as=json");
    let (_, read) = world.ask(&request).await;
    read["records"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_copy_has_the_records_with_all_that_belongs_to_them() {
    let world = world().await;
    let copied = world.send("POST /v1/topics/from/copy", r#"{"to": "same"}"#).await;
    assert_eq!(copied, (StatusCode::OK, json!({"records": 4, "stopped": null})));
    for partition in [0, 1] {
        assert_eq!(
            records(&world, "same", partition).await,
            records(&world, "from", partition).await
        );
    }
}

#[tokio::test]
async fn a_copy_of_a_part_goes_to_the_partitions_that_keys_choose() {
    let world = world().await;
    let wanted = r#"{"to": "one", "from": "1", "until": "2"}"#;
    let (status, copied) = world.send("POST /v1/topics/from/copy", wanted).await;
    assert_eq!((status, &copied["records"]), (StatusCode::OK, &json!(1)));
    let keys: Vec<Value> = records(&world, "one", 0)
        .await
        .iter()
        .map(|one| one["key"].clone())
        .collect();
    assert_eq!(keys, ["c"]);
    let (_, listed) = world.ask("GET /v1/operations").await;
    let operation = &listed["items"][0];
    assert_eq!(
        (&operation["what"], &operation["state"]),
        (&json!("copy"), &json!("done"))
    );
    assert_eq!((&operation["done"], &operation["of"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn odd_copies_are_refused_with_a_code() {
    let world = world().await;
    let copy = "POST /v1/topics/from/copy";
    refused(
        &world,
        &[
            (copy, "{}", 400, "bad_request"),
            (copy, r#"{"to": "from"}"#, 400, "bad_request"),
            (copy, r#"{"to": "none"}"#, 404, "no_such_topic"),
            (copy, r#"{"to": "same", "from": "soon"}"#, 400, "bad_request"),
            (
                "POST /v1/topics/none/copy",
                r#"{"to": "same"}"#,
                404,
                "no_such_topic",
            ),
        ],
    )
    .await;
}
