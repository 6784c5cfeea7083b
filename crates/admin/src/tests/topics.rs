//! Topics: made, listed, changed, truncated, deleted.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_broker::BrokerSettings;
use stafett_journal::MemoryJournal;
use stafett_messaging::queues::{Declare, TopicQueueSpec};
use stafett_model::{BatchBuilder, Codec, Namespace, Record, Tenure};
use stafett_topics::{Append, NewTopic, TopicSettings};

use super::{ManualWorld, World};

/// Appends records with these values to a partition.
pub(super) async fn append(world: &World, topic: &str, partition: u32, values: &[&str]) {
    let topic = world.broker.topics().named(topic).unwrap();
    let mut batch = BatchBuilder::new(Codec::None);
    for value in values {
        let record = Record {
            value: Some(value.as_bytes()),
            timestamp: 1_000,
            ..Record::default()
        };
        batch.push(&record).unwrap();
    }
    let log = topic.log(partition).unwrap();
    let append = Append::batch(log, batch.finish().unwrap());
    world.broker.catalog().append(vec![append]).await;
}

/// Asserts that requests are refused with a code.
pub(super) async fn refused(world: &World, all: &[(&str, &str, u16, &str)]) {
    for (request, body, status, code) in all {
        let (found, why) = world.send(request, body).await;
        let found = (found.as_u16(), &why["code"]);
        assert_eq!(found, (*status, &json!(code)), "{request} {body}: {why}");
    }
}

fn names(listed: &Value) -> Vec<&str> {
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_topic_is_made_once_and_found_as_it_is() {
    let world = World::new().await;
    let body = r#"{"partitions": 3, "settings": {"durability": "os", "retention_bytes": "unlimited"}}"#;
    let (status, dry) = world.send("PUT /v1/topics/orders?dry_run=true", body).await;
    assert_eq!(
        (status, dry),
        (StatusCode::OK, json!({"creates": true, "changes": []}))
    );
    assert_eq!(world.ask("GET /v1/topics/orders").await.0, StatusCode::NOT_FOUND);
    let (status, made) = world.send("PUT /v1/topics/orders", body).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(made["set"], json!(["durability", "retention_bytes"]));
    assert_eq!(
        (&made["durability"], &made["partitions"], &made["retention_bytes"]),
        (&json!("os"), &json!(3), &Value::Null)
    );
    assert_eq!(made["settings"]["retention_bytes"], "unlimited");
    assert_eq!(made["id"].as_str().unwrap().len(), 32);
    for body in [body, "", r#"{"settings": {"durability": "os"}}"#] {
        let found = world.send("PUT /v1/topics/orders", body).await;
        assert_eq!(found, (StatusCode::OK, made.clone()), "{body}");
    }
    for (body, field, is, wanted) in [
        (r#"{"partitions": 4}"#, "partitions", json!(3), json!(4)),
        (
            r#"{"settings": {"retention_ms": 5}}"#,
            "retention_ms",
            made["settings"]["retention_ms"].clone(),
            json!(5),
        ),
        (
            r#"{"settings": {"durability": null}}"#,
            "durability",
            json!("os"),
            json!("sync"),
        ),
    ] {
        let (status, why) = world.send("PUT /v1/topics/orders", body).await;
        assert_eq!(
            (status.as_u16(), &why["code"]),
            (409, &json!("exists_differently"))
        );
        assert_eq!(
            (&why["field"], &why["is"], &why["wanted"]),
            (&json!(field), &is, &wanted)
        );
    }
    // What an answer shows can be sent back.
    let again = json!({"partitions": 3, "settings": made["settings"]}).to_string();
    assert_eq!(
        world.send("PUT /v1/topics/orders", &again).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn settings_change_one_by_one_and_go_back_to_those_of_the_broker() {
    let world = World::new().await;
    world.ask("PUT /v1/topics/t").await;
    let before = world.ask("GET /v1/topics/t").await.1;
    let all = json!({
        "durability": "interval:10,20", "retention_ms": 7, "retention_bytes": 8, "cleanup": "compact",
        "message_bytes_max": 9, "timestamps": "append", "timestamp_earlier_ms_max": 10,
        "timestamp_later_ms_max": "unlimited", "codec": "zstd", "tombstones_kept_ms": 11,
        "compaction_lag_ms_min": 12, "compaction_lag_ms_max": 13, "dirty_share_min": 0.25, "spread": false,
    });
    let body = json!({"settings": all, "partitions": 2}).to_string();
    let (_, dry) = world.send("PATCH /v1/topics/t?dry_run=true", &body).await;
    assert_eq!(dry["changes"].as_array().unwrap().len(), 14, "{dry}");
    assert_eq!(world.ask("GET /v1/topics/t").await.1, before);
    let (status, changed) = world.send("PATCH /v1/topics/t", &body).await;
    assert_eq!((status, &changed["settings"]), (StatusCode::OK, &all));
    assert_eq!(changed["set"].as_array().unwrap().len(), 13);
    assert_eq!(
        (&changed["partitions"], &changed["id"]),
        (&json!(2), &before["id"])
    );
    let (status, moved) = world
        .send("PATCH /v1/topics/t", r#"{"settings": {"spread": true}}"#)
        .await;
    assert_eq!(
        (status, &moved["field"]),
        (StatusCode::BAD_REQUEST, &json!("spread"))
    );
    let (_, one) = world
        .send("PATCH /v1/topics/t", r#"{"settings": {"codec": null}}"#)
        .await;
    assert_eq!(
        (&one["settings"]["codec"], &one["settings"]["cleanup"]),
        (&json!("producer"), &json!("compact"))
    );
    let nulls: serde_json::Map<String, Value> = all
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (name.clone(), Value::Null))
        .collect();
    let (_, back) = world
        .send("PATCH /v1/topics/t", &json!({"settings": nulls}).to_string())
        .await;
    assert_eq!(
        (&back["settings"], &back["set"]),
        (&before["settings"], &json!([]))
    );
}

#[tokio::test]
async fn topics_are_listed_by_kind_name_and_number() {
    let world = World::new().await;
    for (name, partitions) in [("b.small", 1), ("a.large", 5), ("c.other", 2)] {
        let body = json!({ "partitions": partitions }).to_string();
        world.send(&format!("PUT /v1/topics/{name}"), &body).await;
    }
    append(&world, "c.other", 1, &["one", "two"]).await;
    world.queue("/", "work").await;
    let internal = NewTopic {
        name: "__consumer_offsets".into(),
        partitions: Some(1),
        settings: TopicSettings::default(),
    };
    world.broker.catalog().create(vec![internal]).await;
    for (query, expected) in [
        ("", vec!["a.large", "b.small", "c.other", "queue.work"]),
        ("?kind=stored", vec!["a.large", "b.small", "c.other"]),
        ("?kind=queue", vec!["queue.work"]),
        ("?kind=stored&internal=true&prefix=_", vec!["__consumer_offsets"]),
        ("?q=OTHER", vec!["c.other"]),
        ("?sort=-records&count=1", vec!["c.other"]),
        (
            "?kind=stored&sort=-partitions",
            vec!["a.large", "c.other", "b.small"],
        ),
    ] {
        let (status, listed) = world.ask(&format!("GET /v1/topics{query}")).await;
        assert_eq!((status, names(&listed)), (StatusCode::OK, expected), "{query}");
    }
    let (_, shown) = world.ask("GET /v1/topics/queue.work").await;
    assert_eq!(
        (&shown["kind"], &shown["settings"]),
        (&json!("queue"), &Value::Null)
    );
    refused(
        &world,
        &[
            ("GET /v1/topics?kind=log", "", 400, "bad_request"),
            ("GET /v1/topics?sort=age", "", 400, "bad_request"),
            ("PATCH /v1/topics/queue.work", "{}", 409, "immutable"),
            ("DELETE /v1/topics/queue.work", "", 409, "immutable"),
            ("DELETE /v1/topics/__consumer_offsets", "", 409, "immutable"),
            ("PUT /v1/topics/__transaction_state", "", 409, "immutable"),
        ],
    )
    .await;
}

#[tokio::test]
async fn partitions_are_truncated_before_an_offset() {
    let world = World::new().await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 12}"#).await;
    append(&world, "t", 2, &["a", "b", "c"]).await;
    append(&world, "t", 10, &["d"]).await;
    let (_, listed) = world.ask("GET /v1/topics/t/partitions?count=3").await;
    assert_eq!(
        (&listed["total"], &listed["items"][2]["records"]),
        (&json!(12), &json!(3))
    );
    let next = listed["next"].as_str().unwrap();
    let (_, listed) = world
        .ask(&format!("GET /v1/topics/t/partitions?count=1&after={next}"))
        .await;
    assert_eq!(listed["items"][0]["partition"], 3, "by number, not by digits");
    let body = r#"{"before": [{"partition": 2, "offset": 2}, {"partition": 10}]}"#;
    let (status, cut) = world.send("POST /v1/topics/t/truncate", body).await;
    let expected = json!([{"partition": 2, "start": 2}, {"partition": 10, "start": 1}]);
    assert_eq!((status, &cut["partitions"]), (StatusCode::OK, &expected));
    let (_, shown) = world.ask("GET /v1/topics/t").await;
    assert_eq!(shown["records"], 1);
    let id = shown["id"].as_str().unwrap();
    let path = "POST /v1/topics/t/truncate";
    refused(
        &world,
        &[
            (
                path,
                r#"{"before": [{"partition": 2, "offset": 4}]}"#,
                422,
                "out_of_range",
            ),
            (
                path,
                r#"{"before": [{"partition": 12}]}"#,
                404,
                "no_such_partition",
            ),
            (path, r#"{"before": [{"partition": -1}]}"#, 400, "bad_request"),
            (
                path,
                r#"{"before": [{"partition": 1}, {"partition": 1}]}"#,
                400,
                "bad_request",
            ),
            (path, r#"{"before": [[0, 0]]}"#, 400, "bad_request"),
            (path, "{}", 400, "bad_request"),
            (&format!("{path}?if_id=0"), r#"{"before": []}"#, 409, "changed"),
        ],
    )
    .await;
    let (status, _) = world
        .send(&format!("{path}?if_id={id}"), r#"{"before": []}"#)
        .await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn producers_of_a_topic_are_listed() {
    let world = World::new().await;
    world.ask("PUT /v1/topics/t").await;
    let id = world.broker.catalog().new_producer_id().await.unwrap();
    let mut batch = BatchBuilder::new(Codec::None).producer(id, 3, 0);
    batch.push(&Record::default()).unwrap();
    let log = world.broker.topics().named("t").unwrap().log(0).unwrap();
    let append = Append::batch(log, batch.finish().unwrap());
    world.broker.catalog().append(vec![append]).await;
    let (_, listed) = world.ask("GET /v1/topics/t/producers").await;
    let producer = &listed["items"][0];
    assert_eq!(
        (&producer["producer"], &producer["epoch"], &producer["sequence"]),
        (&json!(id.0.to_string()), &json!(3), &json!(0))
    );
    assert_eq!(producer["open_from"], Value::Null);
}

#[tokio::test]
async fn a_topic_in_use_goes_by_force_only_and_under_its_id_only() {
    let world = World::new().await;
    let (_, made) = world.ask("PUT /v1/topics/t").await;
    append(&world, "t", 0, &["a", "b"]).await;
    let over = Declare {
        durable: true,
        over: Some(TopicQueueSpec {
            topic: world.broker.topics().named("t").unwrap().id,
            from_end: false,
        }),
        ..Declare::default()
    };
    let queues = world.broker.messaging().queues();
    queues.declare(&Namespace::default(), "q", over).await.unwrap();
    let (status, why) = world.ask("DELETE /v1/topics/t").await;
    assert_eq!((status.as_u16(), &why["code"]), (409, &json!("in_use")));
    let over = &why["queues_over"][0];
    assert_eq!((&over["namespace"], &over["name"]), (&json!("/"), &json!("q")));
    let (_, why) = world.ask("DELETE /v1/topics/t?force=true&if_id=abc").await;
    assert_eq!((&why["code"], &why["id"]), (&json!("changed"), &made["id"]));
    let id = made["id"].as_str().unwrap();
    let (status, freed) = world
        .ask(&format!("DELETE /v1/topics/t?force=true&if_id={id}"))
        .await;
    assert_eq!((status, &freed["records"]), (StatusCode::OK, &json!(2)));
    let (_, again) = world.ask("PUT /v1/topics/t").await;
    assert_ne!(again["id"], made["id"]);
}

const ODD_TOPICS: &[(&str, u16, &str)] = &[
    (r#"{"partitions": 0}"#, 422, "out_of_range"),
    (r#"{"partitions": 10001}"#, 422, "out_of_range"),
    (r#"{"partitions": 4294967296}"#, 400, "bad_request"),
    (r#"{"partitions": "3"}"#, 400, "bad_request"),
    (r#"{"partitions": 1"#, 400, "bad_json"),
    (r#"{"replicas": 1}"#, 400, "unknown_field"),
    (r#"{"settings": ["os"]}"#, 400, "bad_request"),
    (
        r#"{"settings": {"codec": "none", "codec": "gzip"}}"#,
        400,
        "bad_request",
    ),
    (r#"{"settings": {"retention.ms": 1}}"#, 400, "unknown_field"),
    (r#"{"settings": {"retention_ms": -1}}"#, 400, "bad_request"),
    (
        r#"{"settings": {"retention_ms": 9007199254740992}}"#,
        422,
        "out_of_range",
    ),
    (r#"{"settings": {"durability": "never"}}"#, 400, "bad_request"),
    (r#"{"settings": {"cleanup": ""}}"#, 400, "bad_request"),
    (r#"{"settings": {"codec": "bzip2"}}"#, 400, "bad_request"),
    (r#"{"settings": {"dirty_share_min": 1.5}}"#, 422, "out_of_range"),
    (
        r#"{"settings": {"message_bytes_max": 2147483648}}"#,
        422,
        "out_of_range",
    ),
];

#[tokio::test]
async fn odd_names_numbers_and_bodies_are_refused_with_a_code() {
    let world = World::new().await;
    world.ask("PUT /v1/topics/a.b").await;
    let long = format!("PUT /v1/topics/{}", "x".repeat(250));
    refused(
        &world,
        &[
            (&long, "", 400, "bad_request"),
            ("PUT /v1/topics/a%2Fb", "", 400, "bad_request"),
            ("PUT /v1/topics/..", "", 400, "bad_request"),
            ("PUT /v1/topics/%00", "", 400, "bad_request"),
            ("PUT /v1/topics/%ff", "", 400, "bad_request"),
            ("PUT /v1/topics/%F0%9F%92%A9", "", 400, "bad_request"),
            ("PUT /v1/topics/a_b", "", 409, "name_taken"),
            ("GET /v1/topics/a_b", "", 404, "no_such_topic"),
            ("GET /v1/topics/%2e%2e/partitions", "", 404, "no_such_topic"),
            ("GET /v1/topics/none/producers", "", 404, "no_such_topic"),
            ("PATCH /v1/topics/none", "{}", 404, "no_such_topic"),
            ("DELETE /v1/topics/none", "", 404, "no_such_topic"),
            (
                "PATCH /v1/topics/a.b",
                r#"{"partitions": 0}"#,
                422,
                "out_of_range",
            ),
            ("PUT /v1/topics/n?dry_run=maybe", "", 400, "bad_request"),
        ],
    )
    .await;
    for (body, status, code) in ODD_TOPICS {
        refused(&world, &[("PUT /v1/topics/n", body, *status, code)]).await;
    }
    assert_eq!(world.ask("GET /v1/topics/n").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_full_disk_and_a_stopped_broker_are_refusals() {
    let ManualWorld { world, journal } = ManualWorld::new().await;
    world.ask("PUT /v1/topics/t").await;
    journal.set_used_up(true);
    refused(
        &world,
        &[
            ("PUT /v1/topics/n", "", 507, "disk_full"),
            ("PATCH /v1/topics/t", r#"{"partitions": 2}"#, 507, "disk_full"),
            (
                "PATCH /v1/topics/t",
                r#"{"settings": {"durability": "os"}}"#,
                507,
                "disk_full",
            ),
        ],
    )
    .await;
    assert_eq!(world.ask("GET /v1/topics/t").await.1["partitions"], 1);
    world.backend.broker.close();
    refused(&world, &[("GET /v1/topics", "", 503, "not_serving")]).await;
}

#[tokio::test]
async fn a_change_that_was_done_when_the_broker_may_have_lost_its_place_is_not_called_undone() {
    let settings = BrokerSettings {
        tenure: Tenure::new(|| false),
        ..BrokerSettings::default()
    };
    let world = World::with(Arc::new(MemoryJournal::new()), settings).await;
    let (status, done) = world.ask("PUT /v1/topics/t").await;
    assert_eq!(
        (status, &done["code"]),
        (StatusCode::INTERNAL_SERVER_ERROR, &json!("outcome_unknown"))
    );
    assert!(world.broker.topics().named("t").is_some());
    for request in ["GET /v1/topics/t", "PUT /v1/topics/%00"] {
        let (status, late) = world.ask(request).await;
        assert_eq!(
            (status, &late["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("not_serving")),
            "{request}"
        );
    }
}
