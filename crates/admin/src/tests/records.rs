//! Records: stored, and read from one partition.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use serde_json::{Value, json};
use stafett_http::{Access, Draining};
use stafett_model::compression::compress;
use stafett_model::{BatchBuilder, Codec, Record};
use stafett_topics::Append;
use tower::ServiceExt;

use super::topics::{append, refused};
use super::{ManualWorld, World, read};

const JSON: (&str, &str) = ("content-type", "application/json");
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

impl World {
    async fn produce(&self, query: &str, headers: &[(&str, &str)], body: &str) -> (StatusCode, Value) {
        let request = format!("POST /v1/topics/t/records{query}");
        read(self.response_to(&request, headers, body).await).await
    }
}

async fn world(body: &str) -> World {
    let world = World::new().await;
    let (status, _) = world.send("PUT /v1/topics/t", body).await;
    assert_eq!(status, StatusCode::CREATED);
    world
}

fn field<'a>(answer: &'a Value, name: &str) -> Vec<&'a Value> {
    let records = answer["records"].as_array().unwrap().iter();
    records.map(|record| &record[name]).collect()
}

#[tokio::test]
async fn lines_are_stored_together_and_read_back() {
    let world = world(r#"{"partitions": 3}"#).await;
    let lines =
        "{\"id\": \"21\", \"n\": 1}\n{\"id\": \"a-little-bit-long-string\"}\n{\"id\": \"21\", \"n\": 2}\n";
    let (status, stored) = world
        .produce("?key_field=id&header.source=shop", &[NDJSON], lines)
        .await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    assert_eq!(
        stored["places"],
        json!([{"partition": 0, "base": 0, "count": 2}, {"partition": 2, "base": 0, "count": 1}])
    );
    let counts = json!([
        stored["read"],
        stored["keyed"],
        stored["stored"],
        stored["refused"]
    ]);
    assert_eq!(counts, json!([3, 3, 3, 0]));
    assert_eq!(
        (&stored["durability"], &stored["repeated"]),
        (&json!("sync"), &json!(false))
    );
    let (status, found) = world.ask("GET /v1/topics/t/partitions/0/records?as=json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&found["start"], &found["end"], &found["next"], &found["gap"]),
        (&json!(0), &json!(2), &json!(2), &Value::Null)
    );
    assert_eq!(field(&found, "offset"), [&json!(0), &json!(1)]);
    assert_eq!(found["records"][1]["value"], json!({"id": "21", "n": 2}));
    assert_eq!(found["records"][0]["headers"], json!({"source": "shop"}));
    let (_, text) = world.ask("GET /v1/topics/t/partitions/0/records?from=-1").await;
    assert_eq!(field(&text, "value"), [&json!("{\"id\": \"21\", \"n\": 2}")]);
    assert_eq!(text["records"][0]["key"], "21");
}

#[tokio::test]
async fn bytes_nulls_and_times_come_back_as_they_were() {
    let world = world("").await;
    let body = r#"[{"key_base64": "/w==", "value": null, "timestamp": "2026-11-22T16:00:00.123Z"},
                   {"key": "", "value": ""},
                   {"value_base64": "/v8=", "headers": {"content-type": "application/json", "x": null}}]"#;
    let (status, why) = world.produce("?as=record", &[JSON], body).await;
    assert_eq!(status, StatusCode::OK, "{why}");
    let (_, found) = world.ask("GET /v1/topics/t/partitions/0/records").await;
    let shown = |name| field(&found, name).into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(shown("key"), [Value::Null, json!(""), Value::Null]);
    assert_eq!(shown("key_base64"), [json!("/w=="), Value::Null, Value::Null]);
    assert_eq!(shown("value"), [Value::Null, json!(""), Value::Null]);
    assert_eq!(shown("value_base64"), [Value::Null, Value::Null, json!("/v8=")]);
    assert_eq!(shown("timestamp")[0], "2026-11-22T16:00:00.123Z");
    assert_eq!(shown("bytes"), [json!(0), json!(0), json!(2)]);
    let (status, raw) = world
        .produce(
            "?key=k&partition=0",
            &[("content-type", "text/plain")],
            "a \u{20ac}",
        )
        .await;
    assert_eq!((status, &raw["places"][0]["base"]), (StatusCode::OK, &json!(3)));
    let (_, found) = world.ask("GET /v1/topics/t/partitions/0/records?from=3").await;
    assert_eq!(
        (&found["records"][0]["value"], &found["records"][0]["headers"]),
        (&json!("a \u{20ac}"), &json!({"content-type": "text/plain"}))
    );
}

#[tokio::test]
async fn a_request_is_stored_once_for_its_key_and_its_topic() {
    let world = world(r#"{"partitions": 4}"#).await;
    world.send("PUT /v1/topics/u", r#"{"partitions": 4}"#).await;
    let key = ("idempotency-key", "order-7");
    let (_, first) = world.produce("", &[key], "a").await;
    let (status, again) = world.produce("", &[key], "a").await;
    assert_eq!(
        (status, &again["repeated"], &again["places"]),
        (StatusCode::OK, &json!(true), &first["places"])
    );
    let other = world.response_to("POST /v1/topics/u/records", &[key], "a").await;
    assert_eq!(read(other).await.1["repeated"], false, "of another topic");
    assert_eq!(world.ask("GET /v1/topics/t").await.1["records"], 1);
    assert_eq!(world.ask("GET /v1/topics/u").await.1["records"], 1);
    world.ask("DELETE /v1/topics/t").await;
    world.ask("PUT /v1/topics/t").await;
    let (_, anew) = world.produce("", &[key], "a").await;
    assert_eq!((&anew["repeated"], &anew["stored"]), (&json!(false), &json!(1)));
    assert_eq!(world.ask("GET /v1/topics/t").await.1["records"], 1);
}

#[tokio::test]
async fn all_or_nothing_is_stored() {
    let world = world(r#"{"settings": {"cleanup": "compact", "message_bytes_max": 1000}}"#).await;
    let long = format!("\"a\"\n\"{}\"", "x".repeat(1000));
    let late = r#"[{"key": "k"}, {"key": "k", "timestamp": "2999-01-01T00:00:00Z"}]"#;
    for (query, headers, body, status, code, line) in [
        ("", &[NDJSON], "1\n2", 422, "no_key", 1),
        ("?as=record", &[JSON], r#"[{"key": "k"}, {}]"#, 422, "no_key", 2),
        ("?key=k", &[NDJSON], &*long, 413, "too_large", 2),
        ("?key=k", &[NDJSON], "1\n{", 400, "bad_json", 2),
        ("?as=record", &[JSON], late, 422, "out_of_range", 2),
        (
            "?as=record",
            &[JSON],
            r#"[{"key": "k"}, {"key": "k", "partition": 1}]"#,
            404,
            "no_such_partition",
            2,
        ),
    ] {
        let (found, why) = world.produce(query, headers, body).await;
        let found = (found.as_u16(), &why["code"], &why["line"], &why["stored"]);
        assert_eq!(found, (status, &json!(code), &json!(line), &json!(0)), "{body}");
    }
    assert_eq!(world.ask("GET /v1/topics/t").await.1["records"], 0);
}

#[tokio::test]
async fn a_fire_and_forget_record_arrives() {
    let world = world("").await;
    let (status, sent) = world.produce("?ack=none", &[JSON], "7").await;
    assert_eq!((status, &sent["stored"]), (StatusCode::ACCEPTED, &Value::Null));
    let (_, found) = world
        .ask("GET /v1/topics/t/partitions/0/records?wait=60s&as=json")
        .await;
    assert_eq!(field(&found, "value"), [&json!(7)]);
}

#[tokio::test]
async fn a_read_waits_for_a_record_or_the_end_of_its_topic() {
    let world = world("").await;
    let path = "GET /v1/topics/t/partitions/0/records?wait=60s&from=latest";
    let (found, ()) = tokio::join!(world.ask(path), append(&world, "t", 0, &["a"]));
    assert_eq!(field(&found.1, "value"), [&json!("a")]);
    let deleted = async {
        // Later than the read, which is polled first.
        let (status, _) = world.ask("DELETE /v1/topics/t").await;
        assert_eq!(status, StatusCode::OK);
    };
    let (found, ()) = tokio::join!(world.ask(path), deleted);
    assert_eq!(
        (found.0.as_u16(), &found.1["code"]),
        (404, &json!("no_such_topic"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_an_empty_answer() {
    let world = world("").await;
    let (status, found) = world.ask("GET /v1/topics/t/partitions/0/records?wait=20s").await;
    assert_eq!(
        (status, &found["records"], &found["next"]),
        (StatusCode::OK, &json!([]), &json!(0))
    );
}

#[tokio::test]
async fn a_place_that_is_gone_is_named_and_read_over() {
    let world = world("").await;
    append(&world, "t", 0, &["a", "b", "c"]).await;
    world
        .send(
            "POST /v1/topics/t/truncate",
            r#"{"before": [{"partition": 0, "offset": 2}]}"#,
        )
        .await;
    let (_, found) = world.ask("GET /v1/topics/t/partitions/0/records?from=0").await;
    assert_eq!(found["gap"], json!({"from": 0, "to": 2, "why": "expired"}));
    assert_eq!(
        (field(&found, "value"), &found["next"]),
        (vec![&json!("c")], &json!(3))
    );
}

#[tokio::test]
async fn answers_are_bounded_and_go_on() {
    let world = world("").await;
    append(&world, "t", 0, &["aaaa", "bbbb", "cccc"]).await;
    for (query, values, next) in [
        ("count=2", vec!["aaaa", "bbbb"], 2),
        ("bytes=1", vec!["aaaa"], 1),
        ("bytes=0&from=1", vec!["bbbb"], 2),
        ("count=0", vec!["aaaa"], 1),
        ("from=1970-01-01T00:00:01Z", vec!["aaaa", "bbbb", "cccc"], 3),
        ("from=2026-01-01T00:00:01Z", vec![], 3),
        ("from=3", vec![], 3),
    ] {
        let (_, found) = world
            .ask(&format!("GET /v1/topics/t/partitions/0/records?{query}"))
            .await;
        assert_eq!(
            (field(&found, "value"), &found["next"]),
            (
                values
                    .iter()
                    .map(|value| json!(value))
                    .collect::<Vec<_>>()
                    .iter()
                    .collect(),
                &json!(next)
            ),
            "{query}"
        );
    }
}

#[tokio::test]
async fn records_of_an_open_transaction_are_shown_only_on_demand() {
    let world = world("").await;
    let id = world.broker.catalog().new_producer_id().await.unwrap();
    let mut batch = BatchBuilder::new(Codec::None).producer(id, 0, 0).transactional();
    let open = Record {
        value: Some(b"open"),
        ..Record::default()
    };
    batch.push(&open).unwrap();
    let log = world.broker.topics().named("t").unwrap().log(0).unwrap();
    let open = Append::batch(log, batch.finish().unwrap());
    world.broker.catalog().append(vec![open]).await;
    append(&world, "t", 0, &["behind"]).await;
    let path = "GET /v1/topics/t/partitions/0/records";
    let (_, found) = world.ask(path).await;
    assert_eq!((field(&found, "value").len(), &found["end"]), (0, &json!(0)));
    let (_, found) = world.ask(&format!("{path}?isolation=uncommitted")).await;
    assert_eq!(field(&found, "value"), [&json!("open"), &json!("behind")]);
}

#[tokio::test]
async fn odd_requests_are_refused_with_a_code() {
    let world = world("").await;
    let path = "GET /v1/topics/t/partitions/0/records";
    let many = format!("{path}?from=99999999999999999999999");
    refused(
        &world,
        &[
            (
                "GET /v1/topics/t/partitions/1/records",
                "",
                404,
                "no_such_partition",
            ),
            (
                "GET /v1/topics/t/partitions/-1/records",
                "",
                404,
                "no_such_partition",
            ),
            (
                "GET /v1/topics/t/partitions/%00/records",
                "",
                404,
                "no_such_partition",
            ),
            (
                "GET /v1/topics/t/partitions/4294967296/records",
                "",
                404,
                "no_such_partition",
            ),
            ("GET /v1/topics/n/partitions/0/records", "", 404, "no_such_topic"),
            ("GET /v1/topics/%ff/partitions/0/records", "", 400, "bad_request"),
            (&format!("{path}?from=1"), "", 422, "out_of_range"),
            (
                &format!("{path}?from=18446744073709551615"),
                "",
                422,
                "out_of_range",
            ),
            (&many, "", 400, "bad_request"),
            (&format!("{path}?from=soon"), "", 400, "bad_request"),
            (&format!("{path}?count=1001"), "", 400, "bad_request"),
            (&format!("{path}?bytes=4194305"), "", 400, "bad_request"),
            (&format!("{path}?wait=61s"), "", 400, "bad_request"),
            (&format!("{path}?as=xml"), "", 400, "bad_request"),
            (&format!("{path}?isolation=none"), "", 400, "bad_request"),
            (&format!("{path}?offset=1"), "", 400, "unknown_field"),
        ],
    )
    .await;
}

#[tokio::test]
async fn odd_records_are_refused_and_none_is_stored() {
    let world = world("").await;
    world.queue("/", "work").await;
    let post = "POST /v1/topics/t/records";
    let long = "x".repeat((16 << 20) + 1);
    refused(
        &world,
        &[
            (&format!("{post}?ack=all"), "a", 400, "bad_request"),
            (&format!("{post}?partition=1"), "a", 404, "no_such_partition"),
            (&format!("{post}?partition=-1"), "a", 400, "bad_request"),
            (&format!("{post}?key_field=a"), "{}", 400, "bad_request"),
            (&format!("{post}?key=a&key=b"), "a", 400, "bad_request"),
            (post, &long, 413, "too_large"),
            ("POST /v1/topics/n/records", "a", 404, "no_such_topic"),
            ("POST /v1/topics/queue.work/records", "a", 409, "immutable"),
        ],
    )
    .await;
    for (name, value, status, code) in [
        ("content-encoding", "br", 415, "unsupported_type"),
        ("content-encoding", "gzip", 400, "bad_request"),
        ("content-type", "application/cloudevents+json", 400, "bad_request"),
        ("ce-specversion", "1.0", 400, "bad_request"),
        ("idempotency-key", "", 400, "bad_request"),
    ] {
        let (found, why) = world.produce("", &[(name, value)], "{}").await;
        assert_eq!((found.as_u16(), &why["code"]), (status, &json!(code)), "{name}");
    }
    assert_eq!(world.ask("GET /v1/topics/t").await.1["records"], 0);
}

#[tokio::test]
async fn cloud_events_are_records_in_each_of_their_forms() {
    let world = world("{}").await;
    let event = |id: &str, rest: &str| {
        format!(r#"{{"specversion": "1.0", "id": "{id}", "source": "/shop", "type": "order", {rest}}}"#)
    };
    let one = event("1", r#""partitionkey": "k", "data": {"a": 1}"#);
    let many = format!(
        "[{}, {}]",
        event("2", r#""datacontenttype": "text/plain", "data": "two""#),
        event("3", r#""data_base64": "/w==""#)
    );
    let attributes = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "4"),
        ("ce-source", "/shop"),
        ("ce-type", "order"),
    ];
    for (headers, body, count) in [
        (
            &[("content-type", "application/cloudevents+json; charset=utf-8")][..],
            &*one,
            1,
        ),
        (
            &[("content-type", "application/cloudevents-batch+json")],
            &*many,
            2,
        ),
        (&attributes, "[4 ]", 1),
    ] {
        let (status, stored) = world.produce("", headers, body).await;
        assert_eq!(
            (status, &stored["stored"]),
            (StatusCode::OK, &json!(count)),
            "{stored}"
        );
    }
    let (_, found) = world.ask("GET /v1/topics/t/partitions/0/records?as=text").await;
    assert_eq!(
        field(&found, "key"),
        [&json!("k"), &Value::Null, &Value::Null, &Value::Null]
    );
    let values = [&json!(r#"{"a": 1}"#), &json!("two"), &Value::Null, &json!("[4 ]")];
    assert_eq!(field(&found, "value")[..2], values[..2]);
    assert_eq!(found["records"][3]["value"], *values[3]);
    let headers = field(&found, "headers");
    assert_eq!(
        (&headers[1]["ce_id"], &headers[1]["content-type"]),
        (&json!("2"), &json!("text/plain"))
    );
    assert_eq!(
        (&headers[3]["ce_id"], &headers[3]["ce_specversion"]),
        (&json!("4"), &json!("1.0"))
    );
    let bad = format!("[{one}, {{}}]");
    let (status, why) = world
        .produce(
            "",
            &[("content-type", "application/cloudevents-batch+json")],
            &bad,
        )
        .await;
    assert_eq!(
        (status.as_u16(), &why["line"], &why["stored"]),
        (400, &json!(2), &json!(0)),
        "{why}"
    );
}

#[tokio::test]
async fn compressed_bodies_are_unpacked_within_the_bound_of_bodies() {
    let world = world("{}").await;
    for (coding, codec) in [("gzip", Codec::Gzip), ("zstd", Codec::Zstd)] {
        let packed = |bytes: &[u8]| {
            let mut out = Vec::new();
            compress(codec, bytes, &mut out).unwrap();
            out
        };
        let headers = [NDJSON, ("content-encoding", coding)];
        let request = "POST /v1/topics/t/records";
        let stored = world.response_to(request, &headers, packed(b"1\n2\n3\n")).await;
        assert_eq!(read(stored).await.1["stored"], 3);
        let bomb = packed(&vec![b' '; (16 << 20) + 1]);
        let refused = world.response_to(request, &headers, bomb).await;
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(world.ask("GET /v1/topics/t").await.1["records"], 6);
}

#[tokio::test]
async fn a_full_disk_is_a_refusal_and_passes() {
    let ManualWorld { world, journal } = ManualWorld::new().await;
    world.ask("PUT /v1/topics/t").await;
    journal.set_full(true);
    let post = "POST /v1/topics/t/records";
    let without_wait = format!("{post}?ack=none");
    refused(
        &world,
        &[
            (post, "a", 507, "disk_full"),
            (&without_wait, "a", 507, "disk_full"),
        ],
    )
    .await;
    journal.set_full(false);
    journal.hold_batches();
    let refuse = async {
        assert!(journal.refuse(0), "the request is polled first");
    };
    let (refused, ()) = tokio::join!(world.send(post, "a"), refuse);
    assert_eq!(refused.1["code"], "disk_full");
    journal.release();
    assert_eq!(world.send(post, "a").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn more_readers_than_there_are_turns_wait_or_are_refused() {
    let world = world("").await;
    let mut turns = Vec::new();
    for _ in 0..16 {
        turns.push(world.backend.reads.turn().await.unwrap());
    }
    let path = "GET /v1/topics/t/partitions/0/records";
    refused(
        &world,
        &[
            (path, "", 503, "overloaded"),
            ("GET /v1/topics/t/records", "", 503, "overloaded"),
        ],
    )
    .await;
    turns.pop();
    assert_eq!(world.ask(path).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_wait_ends_when_the_server_stops() {
    let world = world("").await;
    let draining = Draining::default();
    let request = |path: &str| {
        let request = Request::get(path).header(HOST, "localhost");
        let request = request.extension(draining.clone()).body(Body::empty());
        crate::router(world.backend.clone(), Access::default()).oneshot(request.unwrap())
    };
    let waiting = async {
        read(
            request("/v1/topics/t/partitions/0/records?wait=60s")
                .await
                .unwrap(),
        )
        .await
    };
    let events = async {
        let response = request("/v1/topics/t/events").await.unwrap();
        to_bytes(response.into_body(), 1000).await.unwrap()
    };
    let stop = async { draining.0.cancel() };
    let ((status, found), events, ()) = tokio::join!(waiting, events, stop);
    assert_eq!((status, &found["records"]), (StatusCode::OK, &json!([])));
    let events = String::from_utf8(events.into()).unwrap();
    assert!(
        events.contains("event: end\ndata: {\"code\":\"not_serving\""),
        "{events}"
    );
}

#[tokio::test]
async fn records_beside_refused_ones_are_stored_if_that_is_wanted() {
    let world = world(r#"{"settings": {"message_bytes_max": 1000}}"#).await;
    let lines = format!("1\n{{\n\"{}\"\n4\n", "x".repeat(1000));
    let (status, stored) = world.produce("?partial=true", &[NDJSON], &lines).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    let counts = ["read", "stored", "refused", "skipped"].map(|name| stored[name].as_u64());
    assert_eq!(counts, [4, 2, 2, 0].map(Some));
    let refusals = stored["refusals"].as_array().unwrap().iter();
    let refusals = refusals.map(|one| (one["line"].as_u64(), one["refusal"]["code"].as_str()));
    assert_eq!(
        refusals.collect::<Vec<_>>(),
        [(Some(2), Some("bad_json")), (Some(3), Some("too_large"))]
    );
    let (_, found) = world.ask("GET /v1/topics/t/partitions/0/records?as=text").await;
    assert_eq!(field(&found, "value"), [&json!("1"), &json!("4")]);
    let (status, why) = world
        .produce("?partial=true", &[NDJSON], &"{\n".repeat(101))
        .await;
    assert_eq!((status.as_u16(), &why["line"]), (400, &json!(101)), "{why}");
    let list = r#"[{"value": "a"}, {"valeu": "b"}, {"value": "c", "partition": 7}]"#;
    let (_, stored) = world.produce("?partial=true&as=record", &[JSON], list).await;
    assert_eq!(
        (&stored["stored"], &stored["refused"]),
        (&json!(1), &json!(2)),
        "{stored}"
    );
}

#[tokio::test]
async fn partitions_show_the_latest_timestamp_of_their_records() {
    let world = world(r#"{"partitions": 2}"#).await;
    let record = r#"{"value": "a", "timestamp": "2026-11-22T16:00:00.123Z", "partition": 1}"#;
    world.produce("?as=record", &[JSON], record).await;
    let (_, partitions) = world.ask("GET /v1/topics/t/partitions").await;
    let last = |at: usize| &partitions["items"][at]["last_at"];
    assert_eq!(
        [last(0), last(1)],
        [&Value::Null, &json!("2026-11-22T16:00:00.123Z")]
    );
}
