//! Records of all partitions: looked over by time, and followed as events.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::BodyDataStream;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use stafett_model::{BatchBuilder, Codec, Record};
use stafett_topics::Append;
use tokio::time::timeout;

use super::World;
use super::topics::{append, refused};

/// Appends one batch of records with these timestamps, which are their values too.
async fn append_at(world: &World, partition: u32, times: &[i64]) {
    let topic = world.broker.topics().named("t").unwrap();
    let mut batch = BatchBuilder::new(Codec::None);
    for time in times {
        let (key, value) = (format!("k{}", time % 10), format!("{{\"at\": {time}}}"));
        let headers: [(&[u8], Option<&[u8]>); 1] =
            [(b"even", Some(if time % 2 == 0 { b"yes" } else { b"no" }))];
        let record = Record {
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &headers,
            timestamp: *time,
        };
        batch.push(&record).unwrap();
    }
    let append = Append::batch(topic.log(partition).unwrap(), batch.finish().unwrap());
    world.broker.catalog().append(vec![append]).await;
}

async fn world() -> World {
    let world = World::new().await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 3}"#).await;
    append_at(&world, 0, &[10, 40, 30, 60]).await;
    append_at(&world, 1, &[20, 50]).await;
    append_at(&world, 1, &[70]).await;
    world
}

fn times(answer: &Value) -> Vec<i64> {
    let records = answer["records"].as_array().unwrap().iter();
    records
        .map(|record| record["value"]["at"].as_i64().unwrap())
        .collect()
}

async fn search(world: &World, query: &str) -> Value {
    let (status, found) = world
        .ask(&format!("GET /v1/topics/t/records?as=json&{query}"))
        .await;
    assert_eq!(status, StatusCode::OK, "{found}");
    found
}

#[tokio::test]
async fn records_of_all_partitions_come_by_time() {
    let world = world().await;
    let newest = search(&world, "").await;
    // Record 40 stands before 30 in its partition, and so comes behind it.
    assert_eq!(times(&newest), [70, 60, 50, 30, 40, 20, 10]);
    assert_eq!((&newest["next"], &newest["looked_at"]), (&Value::Null, &json!(7)));
    let oldest = search(&world, "order=oldest").await;
    assert_eq!(times(&oldest), [10, 20, 40, 30, 50, 60, 70]);
    for (query, expected) in [
        ("from=-1", vec![70, 60]),
        ("from=1970-01-01T00:00:00.050Z", vec![70, 60, 50]),
        ("from=1970-01-01T00:00:00.050Z&order=oldest", vec![50, 60, 70]),
        ("key=k0&field.at=30", vec![30]),
        ("contains=5", vec![50]),
        ("header.even=no", vec![]),
        ("key_prefix=k&count=2", vec![70, 60]),
        ("bytes=0", vec![70]),
    ] {
        assert_eq!(times(&search(&world, query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn pages_have_each_record_once_in_both_orders() {
    let world = world().await;
    for partition in 0..3 {
        let base = i64::from(partition) + 100;
        let times: Vec<i64> = (0..57).map(|at| base + at * 37 % 101).collect();
        append_at(&world, partition, &times[..20]).await;
        append_at(&world, partition, &times[20..]).await;
    }
    for order in ["newest", "oldest"] {
        for (condition, expected) in [("", 178), ("&header.even=yes", 0)] {
            let (mut seen, mut after, mut count) = (BTreeSet::new(), String::new(), 0);
            loop {
                let found = search(&world, &format!("order={order}&count=7{after}{condition}")).await;
                for record in found["records"].as_array().unwrap() {
                    let place = (record["partition"].as_u64(), record["offset"].as_u64());
                    assert!(seen.insert(place), "{place:?} twice");
                    assert!(condition.is_empty() || record["headers"]["even"] == "yes");
                    count += 1;
                }
                let Some(next) = found["next"].as_str() else { break };
                after = format!("&after={next}");
            }
            assert!(
                expected == count || expected == 0 && count > 50,
                "{order}{condition}: {count}"
            );
        }
    }
}

#[tokio::test]
async fn a_record_that_is_too_large_to_keep_is_read_again() {
    let world = World::new().await;
    world
        .send(
            "PUT /v1/topics/t",
            r#"{"settings": {"message_bytes_max": 4000000}}"#,
        )
        .await;
    let texts = ["a", "b", "c"].map(|letter| letter.repeat(2 << 20));
    for text in &texts {
        append(&world, "t", 0, &[text]).await;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("GET /v1/topics/t/records?order=oldest&bytes=4194304{after}");
        let response = world.response(&path, "").await;
        let body = axum::body::to_bytes(response.into_body(), 8 << 20).await.unwrap();
        let found: Value = serde_json::from_slice(&body).unwrap();
        let records = found["records"].as_array().unwrap();
        seen.push(records.len());
        let values = records
            .iter()
            .zip(&texts[seen.iter().sum::<usize>() - records.len()..]);
        assert!(values.into_iter().all(|(record, text)| record["value"] == **text));
        let Some(next) = found["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, [2, 1]);
}

/// Events of a response, one by one.
struct Events {
    body: BodyDataStream,
    text: String,
}

impl Events {
    async fn of(world: &World, query: &str, last: Option<&str>) -> Self {
        let headers: Vec<_> = last.map(|id| ("last-event-id", id)).into_iter().collect();
        let request = format!("GET /v1/topics/t/events?as=json{query}");
        let response = world.response_to(&request, &headers, "").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Self {
            body: response.into_body().into_data_stream(),
            text: String::new(),
        }
    }

    /// Returns id, kind and data of the next event. `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.collect::<Vec<_>>().join("\n")
                };
                let parts = (field("id: "), field("event: "), field("data: "));
                self.text = rest.to_owned();
                if parts.1.is_empty() {
                    continue;
                }
                return Some((parts.0, parts.1, serde_json::from_str(&parts.2).unwrap()));
            }
            let piece = std::future::poll_fn(|cx| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut self.body), cx)
            });
            let piece = piece.await?.unwrap();
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

#[tokio::test]
async fn records_come_as_lines_of_json_too() {
    let world = world().await;
    let lines = async |last: Option<&str>| {
        let mut headers = vec![("accept", "application/x-ndjson")];
        headers.extend(last.map(|id| ("last-event-id", id)));
        let request = "GET /v1/topics/t/events?as=json&from=-1";
        let response = world.response_to(request, &headers, "").await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/x-ndjson");
        let mut body = response.into_body().into_data_stream();
        let piece =
            std::future::poll_fn(|cx| futures_core::Stream::poll_next(std::pin::Pin::new(&mut body), cx));
        let text = String::from_utf8(piece.await.unwrap().unwrap().to_vec()).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    let first = lines(None).await;
    assert_eq!(first[0]["record"]["value"]["at"], 60, "{first:?}");
    append_at(&world, 1, &[80]).await;
    let id = first[0]["id"].as_str().unwrap();
    let behind = lines(Some(id)).await;
    assert_ne!(behind[0]["record"]["value"]["at"], 60, "{behind:?}");
}

#[tokio::test]
async fn events_follow_the_topic_and_go_on_behind_the_last_one() {
    let world = world().await;
    let mut events = Events::of(&world, "&from=-1", None).await;
    let (_, kind, first) = events.next().await.unwrap();
    assert_eq!((&*kind, &first["value"]["at"]), ("record", &json!(60)));
    let (id, _, second) = events.next().await.unwrap();
    assert_eq!(second["value"]["at"], 70);
    append_at(&world, 2, &[80]).await;
    assert_eq!(events.next().await.unwrap().2["value"]["at"], 80);
    drop(events);
    append_at(&world, 0, &[90]).await;
    let mut events = Events::of(&world, "", Some(&id)).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(events.next().await.unwrap().2["value"]["at"].as_i64().unwrap());
    }
    assert_eq!(seen, [90, 80], "by partition");
    let mut chosen = Events::of(&world, "&from=earliest&key=k0&field.at=50", None).await;
    assert_eq!(chosen.next().await.unwrap().2["value"]["at"], 50);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_topic_its_partitions_or_the_broker() {
    let world = world().await;
    let mut grown = Events::of(&world, "", None).await;
    world.send("PATCH /v1/topics/t", r#"{"partitions": 4}"#).await;
    let (_, kind, why) = timeout(Duration::from_mins(1), grown.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*kind, &why["code"]), ("end", &json!("changed")));
    assert_eq!(grown.next().await, None);
    let mut deleted = Events::of(&world, "", None).await;
    world.ask("DELETE /v1/topics/t").await;
    let (_, kind, why) = deleted.next().await.unwrap();
    assert_eq!((&*kind, &why["code"]), ("end", &json!("no_such_topic")));
    assert_eq!(deleted.next().await, None);
    world.ask("PUT /v1/topics/t").await;
    let mut stopped = Events::of(&world, "", None).await;
    world.backend.broker.close();
    let (_, kind, why) = timeout(Duration::from_mins(1), stopped.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*kind, &why["code"]), ("end", &json!("not_serving")));
    assert_eq!(stopped.next().await, None);
}

#[tokio::test]
async fn ranges_that_are_gone_are_events() {
    let world = world().await;
    let (_, newest) = world.ask("GET /v1/topics/t/records?order=oldest&count=1").await;
    let start = newest["next"].as_str().unwrap();
    world
        .send(
            "POST /v1/topics/t/truncate",
            r#"{"before": [{"partition": 0, "offset": 3}]}"#,
        )
        .await;
    let mut events = Events::of(&world, "", Some(start)).await;
    let (_, kind, gap) = events.next().await.unwrap();
    let expected = json!({"partition": 0, "gap": {"from": 1, "to": 3, "why": "expired"}});
    assert_eq!((&*kind, gap), ("gap", expected));
    assert_eq!(events.next().await.unwrap().2["value"]["at"], 60);
}

#[tokio::test]
async fn odd_searches_are_refused_with_a_code() {
    let world = world().await;
    world.send("PUT /v1/topics/wide", r#"{"partitions": 1001}"#).await;
    world.ask("PUT /v1/topics/other").await;
    let (_, other) = world.ask("GET /v1/topics/t/records?count=1").await;
    let foreign = format!(
        "GET /v1/topics/other/records?after={}",
        other["next"].as_str().unwrap()
    );
    let path = "GET /v1/topics/t/records";
    let events = "GET /v1/topics/t/events";
    refused(
        &world,
        &[
            (&foreign, "", 400, "bad_request"),
            (&format!("{path}?after=x"), "", 400, "bad_request"),
            (
                &format!("{path}?after=AAAAAICAgICAgICAgICA"),
                "",
                400,
                "bad_request",
            ),
            (&format!("{path}?order=random"), "", 400, "bad_request"),
            (&format!("{path}?from=7"), "", 400, "bad_request"),
            (&format!("{path}?from=latest"), "", 400, "bad_request"),
            (&format!("{path}?field.=x"), "", 400, "bad_request"),
            (&format!("{path}?count=1001"), "", 400, "bad_request"),
            ("GET /v1/topics/none/records", "", 404, "no_such_topic"),
            ("GET /v1/topics/wide/records", "", 422, "out_of_range"),
            ("GET /v1/topics/wide/events", "", 422, "out_of_range"),
            ("GET /v1/topics/none/events", "", 404, "no_such_topic"),
            (&format!("{events}?from=3"), "", 400, "bad_request"),
            (&format!("{events}?isolation=x"), "", 400, "bad_request"),
        ],
    )
    .await;
    let bad = world.response_to(events, &[("last-event-id", "?")], "").await;
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
}
