//! Messages, and clients with queues of their own.

use std::time::Duration;

use axum::body::to_bytes;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{World, read};
use stafett_model::Codec;
use stafett_model::compression::compress;

fn contents(answer: &Value) -> Vec<Value> {
    let messages = answer["messages"].as_array().unwrap().iter();
    messages.map(|message| message["content"].clone()).collect()
}

async fn registered(names: &[&str]) -> World {
    let world = World::new().await;
    for name in names {
        let (status, _) = world.ask(&format!("PUT /v1/clients/{name}")).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    world
}

async fn check_order_of_registration(world: &World) {
    for name in ["zoe", "abe"] {
        world.ask(&format!("PUT /v1/clients/{name}")).await;
    }
    let (_, listed) = world.ask("GET /v1/clients?sort=registered_at").await;
    let text = |client: &Value, field: &str| client[field].as_str().unwrap().to_owned();
    let clients = listed["items"].as_array().unwrap().iter();
    let listed: Vec<_> = clients
        .map(|client| (text(client, "registered_at"), text(client, "name")))
        .collect();
    assert!(listed.is_sorted(), "{listed:?}");
    assert_eq!(listed.len(), 4);
}

#[tokio::test]
async fn clients_are_registered_found_and_deleted_with_their_queues() {
    let world = registered(&["ann", "bob"]).await;
    let (status, ann) = world.ask("PUT /v1/clients/ann").await;
    assert_eq!((status, &ann["name"]), (StatusCode::OK, &json!("ann")));
    assert_eq!(ann["queue"]["name"], "client.ann");
    assert_eq!(ann["queue"]["priority_max"], 10);
    let at = ann["registered_at"].as_str().unwrap();
    assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
    assert_eq!(world.ask("GET /v1/clients/ann").await.1["registered_at"], at);
    let id = ann["id"].as_str().unwrap();
    assert_eq!(world.ask("GET /v1/clients/ann").await.1["id"], id);
    for (query, expected) in [
        ("name=bob,cho", json!(["bob"])),
        (&*format!("id={id}"), json!(["ann"])),
        ("prefix=a", json!(["ann"])),
        ("sort=name", json!(["ann", "bob"])),
    ] {
        let (_, listed) = world.ask(&format!("GET /v1/clients?{query}")).await;
        let names: Vec<&Value> = listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["name"])
            .collect();
        assert_eq!(json!(names), expected, "{query}");
    }
    check_order_of_registration(&world).await;
    world.queue("/", "client.cho").await;
    for (request, status, code) in [
        ("PUT /v1/clients/cho", 409, "name_taken"),
        ("GET /v1/clients/cho", 404, "no_such_client"),
        ("PUT /v1/clients/%00", 400, "bad_request"),
        ("PUT /v1/clients/ann?namespace=none", 404, "no_such_namespace"),
    ] {
        let (found, why) = world.ask(request).await;
        assert_eq!(
            (found.as_u16(), &why["code"]),
            (status, &json!(code)),
            "{request}"
        );
    }
    let sent = world
        .send(
            "POST /v1/messages",
            r#"{"to": {"clients": ["ann"]}, "content": "x"}"#,
        )
        .await;
    assert_eq!(sent.0, StatusCode::CREATED);
    let (status, why) = world.ask("DELETE /v1/clients/ann?if_empty=true").await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::CONFLICT, &json!("not_empty"))
    );
    assert_eq!(
        world.ask("DELETE /v1/clients/ann").await.1,
        json!({ "messages": 1 })
    );
    assert_eq!(world.ask("GET /v1/clients/ann").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_message_reaches_all_of_its_targets_or_none() {
    let world = registered(&["ann", "bob"]).await;
    let made = world
        .send("PUT /v1/queues/orders", r#"{"priority_max": 10}"#)
        .await;
    assert_eq!(made.0, StatusCode::CREATED);
    world.send("PUT /v1/queues/short", r#"{"length_max": 1}"#).await;
    let to = |to: &str| format!(r#"{{"to": {to}, "content": {{"n": 1.50}}, "priority": 0}}"#);
    let (status, sent) = world
        .send_as(
            "ann",
            "POST /v1/messages",
            &to(r#"{"queues": ["orders", "short"], "clients": ["bob"]}"#),
        )
        .await;
    assert_eq!(
        (status, &sent["durability"]),
        (StatusCode::CREATED, &json!("sync"))
    );
    assert_eq!(sent["queues"], json!(["orders", "short", "client.bob"]));
    for (body, status, code) in [
        (to(r#"{"queues": ["orders", "none"]}"#), 404, "no_such_queue"),
        (
            to(r#"{"queues": ["orders"], "clients": ["cho"]}"#),
            404,
            "no_such_client",
        ),
        (to(r#"{"queues": ["orders", "short"]}"#), 409, "queue_full"),
        (to("{}"), 400, "bad_request"),
        (
            to(r#"{"queues": ["orders"]}"#).replace('0', "11"),
            422,
            "out_of_range",
        ),
        (to(r#"{"queues": [{"id": "x"}]}"#), 404, "no_such_queue"),
        (
            r#"{"to": {"queues": ["orders"]}, "content": 1, "delay_ms": 4294967296}"#.to_owned(),
            422,
            "out_of_range",
        ),
        (to(r#"{"queue": ["orders"]}"#), 400, "unknown_field"),
        ("{".to_owned(), 400, "bad_json"),
    ] {
        let (found, why) = world.send_as("ann", "POST /v1/messages", &body).await;
        assert_eq!((found.as_u16(), &why["code"]), (status, &json!(code)), "{body}");
    }
    let later = r#"{"to": {"queues": ["orders"]}, "content": 1, "delay_ms": 3600000}"#;
    let (status, sent) = world.send("POST /v1/messages", later).await;
    assert_eq!(
        (status, &sent["queues"]),
        (StatusCode::CREATED, &json!(["orders"]))
    );
    for queue in ["orders", "short", "client.bob"] {
        let (_, seen) = world.ask(&format!("GET /v1/queues/{queue}/messages")).await;
        assert_eq!(contents(&seen), [json!({ "n": 1.5 })], "{queue}");
        let message = &seen["messages"][0];
        assert_eq!(message["sender"], "ann", "{queue}");
        assert_eq!(message["content_type"], "application/json");
    }
    let (status, why) = world
        .send_as("cho", "POST /v1/messages", &to(r#"{"queues": ["orders"]}"#))
        .await;
    assert_eq!((status.as_u16(), &why["code"]), (403, &json!("not_registered")));
}

/// A message to be sent.
fn one(content: &str, to: &str, priority: u8) -> String {
    format!(r#"{{"to": {to}, "content": "{content}", "priority": {priority}}}"#)
}

/// Checks that each place of the sent messages leads to the message with this content.
async fn check_places(world: &World, sent: &Value, expected: &[(&str, &[&str])]) {
    let sent = sent.as_array().cloned().unwrap_or_else(|| vec![sent.clone()]);
    assert_eq!(sent.len(), expected.len());
    for (sent, (content, queues)) in sent.iter().zip(expected) {
        let places = sent["places"].as_array().unwrap();
        let names: Vec<_> = places
            .iter()
            .map(|place| place["queue"].as_str().unwrap())
            .collect();
        assert_eq!(names, *queues, "{content}");
        for place in places {
            let (queue, id) = (place["queue"].as_str().unwrap(), place["id"].as_str().unwrap());
            let (status, message) = world.ask(&format!("GET /v1/queues/{queue}/messages/{id}")).await;
            assert_eq!(
                (status, &message["content"]),
                (StatusCode::OK, &json!(content)),
                "{place}"
            );
            assert_eq!(message["message_id"], sent["message_id"], "{place}");
        }
    }
}

#[tokio::test]
async fn the_places_of_sent_messages_lead_to_them() {
    let world = registered(&["bob"]).await;
    world.send("PUT /v1/queues/high", r#"{"priority_max": 10}"#).await;
    world.queue("/", "low").await;
    world.send("PUT /v1/topics/log", r#"{"partitions": 3}"#).await;
    for over in ["first", "second"] {
        let made = world
            .send(&format!("PUT /v1/queues/{over}"), r#"{"over": {"topic": "log"}}"#)
            .await;
        assert_eq!(made.0, StatusCode::CREATED);
    }
    let list = format!(
        "[{}, {}, {}, {}, {}]",
        one("a", r#"{"queues": ["high", "low"]}"#, 0),
        one("b", r#"{"queues": ["high"]}"#, 7),
        one("c", r#"{"queues": ["first", "low"]}"#, 0),
        one("d", r#"{"queues": ["high"], "clients": ["bob"]}"#, 7),
        one("e", r#"{"queues": ["second", "first"]}"#, 0),
    );
    let expected: [(&str, &[&str]); 5] = [
        ("a", &["high", "low"]),
        ("b", &["high"]),
        ("c", &["first", "low"]),
        ("d", &["high", "client.bob"]),
        ("e", &["second", "first"]),
    ];
    let atomic = format!(r#"{{"messages": {list}, "atomic": true}}"#);
    let key = [("idempotency-key", "k")];
    for (body, headers) in [
        (&list, &[][..]),
        (&atomic, &[]),
        (&list, &key),
        (&list, &key),
        (&atomic, &key),
    ] {
        let sent = world.response_to("POST /v1/messages", headers, body).await;
        let (status, sent) = read(sent).await;
        assert_eq!(status, StatusCode::CREATED, "{sent}");
        check_places(&world, &sent, &expected).await;
    }
    // Of several messages together that are sent again, they are not known.
    let again = world.response_to("POST /v1/messages", &key, &atomic).await;
    let again = read(again).await.1;
    assert_eq!(
        (&again[0]["repeated"], &again[0]["places"]),
        (&json!(true), &json!([]))
    );
    let (_, sent) = world
        .send("POST /v1/messages", &one("f", r#"{"clients": ["bob"]}"#, 3))
        .await;
    check_places(&world, &sent, &[("f", &["client.bob"])]).await;
    let ndjson = [("content-type", "application/x-ndjson")];
    let raw = world
        .response_to("POST /v1/queues/low/messages", &ndjson, "\"g\"\n\"h\"\n")
        .await;
    check_places(&world, &read(raw).await.1, &[("g", &["low"]), ("h", &["low"])]).await;
    let later = r#"{"to": {"queues": ["low"]}, "content": 1, "delay_ms": 3600000}"#;
    assert_eq!(
        world.send("POST /v1/messages", later).await.1["places"],
        json!([])
    );
}

#[tokio::test]
async fn places_are_right_where_messages_fill_several_batches() {
    let world = registered(&[]).await;
    world.send("PUT /v1/queues/high", r#"{"priority_max": 10}"#).await;
    world.queue("/", "low").await;
    // Batches are cut at 128 KiB.
    let contents: Vec<String> = (0..9).map(|number| number.to_string().repeat(50_000)).collect();
    let to: [&[&str]; 3] = [&["high", "low"], &["low"], &["high"]];
    let expected: Vec<_> = contents
        .iter()
        .map(String::as_str)
        .zip(to.into_iter().cycle())
        .collect();
    let messages = (0..).zip(&expected).map(|(number, (content, to))| {
        // The other queue has no priorities.
        let priority = if *to == ["high"] { number % 2 } else { 0 };
        one(content, &json!({ "queues": to }).to_string(), priority)
    });
    let list = format!("[{}]", messages.collect::<Vec<_>>().join(", "));
    for body in [&list, &format!(r#"{{"messages": {list}, "atomic": true}}"#)] {
        let (status, sent) = world.send("POST /v1/messages", body).await;
        assert_eq!(status, StatusCode::CREATED, "{sent}");
        check_places(&world, &sent, &expected).await;
    }
}

#[tokio::test]
async fn a_refused_message_moves_no_place_of_others() {
    let world = registered(&[]).await;
    world.queue("/", "low").await;
    world.send("PUT /v1/queues/short", r#"{"length_max": 1}"#).await;
    let full = format!(
        "[{}, {}, {}]",
        one("i", r#"{"queues": ["short"]}"#, 0),
        one("j", r#"{"queues": ["low", "short"]}"#, 0),
        one("k", r#"{"queues": ["low"]}"#, 0)
    );
    let (_, sent) = world.send("POST /v1/messages", &full).await;
    assert_eq!(sent[1]["code"], "queue_full");
    check_places(
        &world,
        &json!([sent[0], sent[2]]),
        &[("i", &["short"]), ("k", &["low"])],
    )
    .await;
}

#[tokio::test]
async fn lists_and_lines_are_units_of_their_own_and_atomic_ones_are_not() {
    let world = registered(&[]).await;
    world.queue("/", "q").await;
    let list = r#"[{"to": {"queues": ["q"]}, "content": "1"}, {"to": {"queues": ["none"]}, "content": "2"}]"#;
    let (status, sent) = world.send("POST /v1/messages", list).await;
    assert_eq!(
        (status, &sent[1]["code"]),
        (StatusCode::OK, &json!("no_such_queue"))
    );
    let together = format!(r#"{{"messages": {list}, "atomic": true}}"#);
    let (status, why) = world.send("POST /v1/messages", &together).await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::NOT_FOUND, &json!("no_such_queue"))
    );
    let ndjson = [("content-type", "application/x-ndjson")];
    let raw = world.response_to("POST /v1/queues/q/messages", &ndjson, "\"3\"\n\n{\"a\": 4}\n");
    assert_eq!(read(raw.await).await.0, StatusCode::CREATED);
    let headers = [
        ("content-type", "text/plain"),
        ("stafett-context", "4711"),
        ("stafett-header-x", "y"),
    ];
    let raw = world
        .response_to("POST /v1/queues/q/messages", &headers, "five")
        .await;
    assert_eq!(read(raw).await.1["context"], 4711);
    let many = format!("[{}{{}}]", "{},".repeat(10_000));
    let lines = "1\n".repeat(10_001);
    for (request, headers, body) in [
        ("POST /v1/messages", &[][..], &many),
        ("POST /v1/queues/q/messages", &ndjson[..], &lines),
        ("POST /v1/messages", &ndjson[..], &lines),
    ] {
        let refused = world.response_to(request, headers, body).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{request}");
    }
    let (_, all) = world.ask("POST /v1/queues/q/receive?count=10").await;
    let two = r#"{"messages": [{"to": {"queues": ["q"]}}, {"to": {"queues": ["q"]}}], "atomic": true}"#;
    let (status, sent) = world.send("POST /v1/messages", two).await;
    assert_eq!((status, sent.as_array().unwrap().len()), (StatusCode::CREATED, 2));
    world.ask("POST /v1/queues/q/receive?count=10").await;
    assert_eq!(
        contents(&all),
        [json!("1"), json!("3"), json!({ "a": 4 }), json!("five")]
    );
    let fifth = &all["messages"][3];
    assert_eq!(fifth["headers"], json!({ "x": "y" }));
    assert_eq!(
        (&fifth["context"], &fifth["content_type"]),
        (&json!(4711), &json!("text/plain"))
    );
    assert_eq!(
        world.ask("POST /v1/queues/q/receive").await.1["messages"],
        json!([])
    );
}

#[tokio::test]
async fn a_request_that_is_sent_again_with_its_key_is_stored_once() {
    let world = registered(&["ann"]).await;
    world.queue("/", "q").await;
    let body = r#"{"to": {"queues": ["q"]}, "content": "1"}"#;
    for (key, client, expected) in [("a", "ann", 1), ("a", "ann", 1), ("b", "ann", 2)] {
        let headers = [("idempotency-key", key), ("stafett-client", client)];
        let sent = world.response_to("POST /v1/messages", &headers, body).await;
        assert_eq!(sent.status(), StatusCode::CREATED);
        assert_eq!(world.ask("GET /v1/queues/q").await.1["ready"], expected);
    }
}

#[tokio::test]
async fn a_repeated_request_is_answered_as_the_first_one() {
    let world = registered(&["ann"]).await;
    world.send("PUT /v1/queues/q", r#"{"length_max": 3}"#).await;
    world
        .send("PUT /v1/exchanges/all", r#"{"kind": "fan-out"}"#)
        .await;
    world
        .send("POST /v1/bindings", r#"{"source": "all", "to": {"queue": "q"}}"#)
        .await;
    let one = r#"{"to": {"queues": ["q"]}, "request": true}"#;
    let ndjson = ("content-type", "application/x-ndjson");
    for (request, body, kind) in [
        ("POST /v1/messages", one, None),
        ("POST /v1/queues/q/messages", "\"1\"", Some(ndjson)),
        ("POST /v1/exchanges/all/publish", "{}", None),
    ] {
        let headers = [("idempotency-key", request), ("stafett-client", "ann")];
        let headers: Vec<_> = headers.into_iter().chain(kind).collect();
        let mut answers = Vec::new();
        for _ in 0..3 {
            let sent = world.response_to(request, &headers, body).await;
            assert_eq!(sent.status(), StatusCode::CREATED, "{request}");
            let sent = read(sent).await.1;
            answers.push(sent.get(0).cloned().unwrap_or(sent));
        }
        assert_eq!(answers[0]["repeated"], false, "{request}");
        assert_eq!(answers[1]["repeated"], true, "{request}");
        assert_eq!(answers[1], answers[2], "{request}");
        assert_eq!(answers[0]["message_id"], answers[1]["message_id"], "{request}");
        assert_eq!(answers[0]["context"], answers[1]["context"], "{request}");
    }
    // The queue is full, and has what a repeated request sent.
    assert_eq!(world.ask("GET /v1/queues/q").await.1["ready"], 3);
    let (status, _) = world
        .send("POST /v1/messages", r#"{"to": {"queues": ["q"]}}"#)
        .await;
    assert_eq!(status, StatusCode::CONFLICT);
    world.ask("POST /v1/queues/q/receive?count=3").await;
    for _ in 0..3 {
        let (status, _) = world
            .send("POST /v1/messages", r#"{"to": {"queues": ["q"]}}"#)
            .await;
        assert_eq!(status, StatusCode::CREATED, "no room is lost");
    }
}

#[tokio::test]
async fn a_repeated_call_waits_for_the_response_to_the_first_one() {
    let world = registered(&["ann", "bob"]).await;
    let headers = [("idempotency-key", "c"), ("stafett-client", "ann")];
    let call = "POST /v1/clients/bob/call?wait=1ms";
    let first = world.response_to(call, &headers, "{}").await;
    assert_eq!(first.status(), StatusCode::GATEWAY_TIMEOUT);
    let receive = "POST /v1/queues/client.bob/receive?count=9";
    let (_, got) = world.send_as("bob", receive, "").await;
    let request = &got["messages"][0];
    let body = json!({"to": {"clients": ["ann"]}, "content": "pong", "context": request["context"]});
    world.send_as("bob", "POST /v1/messages", &body.to_string()).await;
    let second = world.response_to(call, &headers, "{}").await;
    assert_eq!(read(second).await.1["content"], "pong");
    let (_, got) = world.send_as("bob", receive, "").await;
    assert_eq!(got["messages"], json!([]));
}

#[tokio::test]
async fn compressed_bodies_are_unpacked() {
    let world = registered(&[]).await;
    world.queue("/", "q").await;
    let headers = [("content-encoding", "gzip")];
    for (request, body) in [
        ("POST /v1/queues/q/messages", "raw"),
        (
            "POST /v1/messages",
            r#"{"to": {"queues": ["q"]}, "content": "one"}"#,
        ),
    ] {
        let mut packed = Vec::new();
        compress(Codec::Gzip, body.as_bytes(), &mut packed).unwrap();
        let sent = world.response_to(request, &headers, packed).await;
        assert_eq!(sent.status(), StatusCode::CREATED);
        let refused = world.response_to(request, &headers, body).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    }
    let (_, got) = world.ask("GET /v1/queues/q/messages").await;
    let contents = [&got["messages"][0]["content"], &got["messages"][1]["content"]];
    assert_eq!(contents, ["raw", "one"]);
}

#[tokio::test]
async fn a_wait_ends_when_its_queue_is_deleted() {
    let world = registered(&[]).await;
    for query in ["", "&order=oldest", "&priority=0"] {
        world.queue("/", "q").await;
        let request = format!("POST /v1/queues/q/receive?wait=60s{query}");
        let (received, deleted) = tokio::join!(world.ask(&request), world.ask("DELETE /v1/queues/q"));
        assert_eq!(deleted.0, StatusCode::OK);
        assert_eq!(
            (received.0, &received.1["code"]),
            (StatusCode::CONFLICT, &json!("queue_gone")),
            "{query}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_on_several_queues_is_woken_by_a_message() {
    let world = registered(&[]).await;
    world.queue("/", "a").await;
    for (request, queue) in [
        ("POST /v1/receive?wait=60s&queue=a,b", "b"),
        ("POST /v1/receive?wait=60s&queue=a,b&order=oldest&priority=0", "a"),
        ("POST /v1/receive?wait=60s", "b"),
        ("POST /v1/receive?wait=60s", "new"),
    ] {
        world.queue("/", "b").await;
        let begun = tokio::time::Instant::now();
        let sending = async {
            if queue == "new" {
                world.send("PUT /v1/queues/new", "{}").await;
            }
            world
                .send(&format!("POST /v1/queues/{queue}/messages"), "1")
                .await
        };
        let ((status, got), _) = tokio::join!(world.ask(request), sending);
        assert_eq!(
            (status, &got["messages"][0]["queue"]),
            (StatusCode::OK, &json!(queue))
        );
        assert!(
            begun.elapsed() < Duration::from_millis(100),
            "{request} {:?}",
            begun.elapsed()
        );
    }
    // Time passes only while nothing runs: a request that wakes itself would not end.
    for request in ["POST /v1/receive?wait=3s", "POST /v1/receive?wait=3s&queue=a,b"] {
        let begun = tokio::time::Instant::now();
        let (_, got) = world.ask(request).await;
        assert_eq!((&got["messages"], &got["next"]), (&json!([]), &json!(null)));
        assert!(begun.elapsed() >= Duration::from_secs(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_use_does_not_expire() {
    let world = registered(&[]).await;
    world.send("PUT /v1/queues/q", r#"{"expires_ms": 2000}"#).await;
    let status = async || world.ask("GET /v1/queues/q").await.0;
    let (_, got) = world.ask("POST /v1/queues/q/receive?wait=10s").await;
    assert_eq!(got["messages"], json!([]), "a wait is a use");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(status().await, StatusCode::OK);
    world.send("POST /v1/queues/q/messages", "1").await;
    let (_, got) = world.ask("POST /v1/queues/q/receive?ack=lease:10s").await;
    let lease = &got["messages"][0]["lease"];
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(status().await, StatusCode::OK, "a lease is a use");
    let extend = json!({"extend": [{"lease": lease, "by": "10s"}]}).to_string();
    let (_, extended) = world.send("POST /v1/queues/q/settle", &extend).await;
    assert_eq!(extended["extended"], 1);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let settle = json!({"complete": [lease]}).to_string();
    let (_, settled) = world.send("POST /v1/queues/q/settle", &settle).await;
    assert_eq!(settled["settled"], 1);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(status().await, StatusCode::OK);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(status().await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn messages_are_received_by_sender_context_priority_and_age() {
    let world = registered(&["ann", "bob"]).await;
    world.send("PUT /v1/queues/q", r#"{"priority_max": 10}"#).await;
    for (sender, priority, context, content) in [
        ("ann", 1, 1, "a"),
        ("bob", 9, 2, "b"),
        ("ann", 9, 3, "c"),
        ("bob", 5, 4, "d"),
        ("ann", 5, 5, "e"),
    ] {
        let body = json!({
            "to": { "queues": ["q"] }, "content": content, "priority": priority, "context": context,
        });
        let (status, _) = world
            .send_as(sender, "POST /v1/messages", &body.to_string())
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let (_, seen) = world.ask("GET /v1/queues/q/messages?order=oldest&count=3").await;
    assert_eq!(contents(&seen), ["a", "b", "c"]);
    let next = seen["next"].as_str().unwrap();
    let (_, seen) = world
        .ask(&format!("GET /v1/queues/q/messages?order=oldest&after={next}"))
        .await;
    assert_eq!(
        (contents(&seen), &seen["next"]),
        (vec![json!("d"), json!("e")], &Value::Null)
    );
    for (query, expected) in [
        ("context=4&settled=stored", "d"),
        ("sender=bob", "b"),
        ("priority_min=6", "c"),
        ("order=oldest", "a"),
        ("priority=5&order=oldest", "e"),
    ] {
        let (_, got) = world.ask(&format!("POST /v1/queues/q/receive?{query}")).await;
        assert_eq!(contents(&got), [expected], "{query}");
    }
    let raw = [("accept", "application/octet-stream")];
    let none = world.response_to("POST /v1/queues/q/receive", &raw, "").await;
    assert_eq!(none.status(), StatusCode::NO_CONTENT);
}

#[tokio::test(start_paused = true)]
async fn leased_messages_are_settled_extended_or_come_back() {
    let world = registered(&[]).await;
    world.queue("/", "q").await;
    let ndjson = [("content-type", "application/x-ndjson")];
    world
        .response_to("POST /v1/queues/q/messages", &ndjson, "1\n2\n3\n4")
        .await;
    let (_, held) = world.ask("POST /v1/queues/q/receive?count=4&ack=lease:30s").await;
    let lease = |at: usize| held["messages"][at]["lease"].as_str().unwrap().to_owned();
    let id = held["messages"][3]["id"].as_str().unwrap();
    let (_, one) = world.ask(&format!("GET /v1/queues/q/messages/{id}")).await;
    assert_eq!(one["state"], "in_flight");
    let body = json!({
        "complete": [lease(0)], "requeue": [lease(1), "0-0-0000000000000000"], "extend": [{ "lease": lease(2), "by": "1m" }],
    });
    let (status, settled) = world
        .send("POST /v1/queues/q/settle?settled=stored", &body.to_string())
        .await;
    let expected = json!({ "settled": 2, "extended": 1, "unknown": ["0-0-0000000000000000"] });
    assert_eq!((status, settled), (StatusCode::OK, expected));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (_, seen) = world.ask("POST /v1/queues/q/receive?count=4").await;
    assert_eq!(contents(&seen), [json!(2), json!(4)]);
    assert_eq!(seen["messages"][1]["redelivered"], true);
    let late = json!({ "complete": [lease(3)] }).to_string();
    let (_, settled) = world.send("POST /v1/queues/q/settle", &late).await;
    assert_eq!(settled["unknown"], json!([lease(3)]));
    for (request, body) in [
        ("POST /v1/queues/q/receive?ack=lease:1ms", ""),
        ("POST /v1/queues/q/receive?ack=never", ""),
        ("POST /v1/queues/q/receive?settled=x", ""),
        ("POST /v1/queues/q/receive?wait=61s", ""),
        ("POST /v1/queues/q/receive?after=x", ""),
        (
            "POST /v1/queues/q/settle",
            r#"{"extend": [{"lease": "x", "by": "13h"}]}"#,
        ),
    ] {
        assert_eq!(
            world.send(request, body).await.0,
            StatusCode::BAD_REQUEST,
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_request_is_answered_by_its_context() {
    let world = registered(&["ann", "bob"]).await;
    let responding = async {
        let (_, got) = world
            .send_as("bob", "POST /v1/queues/client.bob/receive?wait=20s", "")
            .await;
        let request = &got["messages"][0];
        assert_eq!(
            (&request["sender"], &request["reply_to"]),
            (&json!("ann"), &json!("client.ann"))
        );
        let body = json!({ "to": { "clients": [request["sender"]] }, "content": "pong", "context": request["context"] });
        world.send_as("bob", "POST /v1/messages", &body.to_string()).await
    };
    let calling = world.send_as(
        "ann",
        "POST /v1/clients/bob/call?wait=20s",
        r#"{"content": "ping"}"#,
    );
    let ((status, response), (sent, _)) = tokio::join!(calling, responding);
    assert_eq!((status, sent), (StatusCode::OK, StatusCode::CREATED));
    assert_eq!(
        (&response["content"], &response["sender"]),
        (&json!("pong"), &json!("bob"))
    );
    let (status, why) = world
        .send_as(
            "ann",
            "POST /v1/clients/bob/call?wait=1ms",
            r#"{"content": "ping"}"#,
        )
        .await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::GATEWAY_TIMEOUT, &json!("timed_out"))
    );
    let (status, why) = world
        .send("POST /v1/clients/bob/call", r#"{"content": "ping"}"#)
        .await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::FORBIDDEN, &json!("not_registered"))
    );
    let (status, why) = world
        .send_as("ann", "POST /v1/queues/client.bob/receive", "")
        .await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::FORBIDDEN, &json!("forbidden"))
    );
}

#[tokio::test]
async fn queues_with_waiting_messages_are_listed_and_received_from() {
    let world = registered(&["ann", "bob"]).await;
    world.send("PUT /v1/queues/b", r#"{"priority_max": 10}"#).await;
    world.queue("/", "a").await;
    let send =
        |to: Value, priority: u8| json!({ "to": to, "content": "m", "priority": priority }).to_string();
    for (to, priority) in [
        (json!({ "queues": ["b"] }), 7),
        (json!({ "clients": ["ann", "bob"] }), 1),
    ] {
        world.send("POST /v1/messages", &send(to, priority)).await;
    }
    let (_, pending) = world.send_as("ann", "GET /v1/pending", "").await;
    assert_eq!(pending["own"], 1);
    let queue = |at: usize| {
        (
            pending["queues"][at]["name"].clone(),
            pending["queues"][at]["highest_priority"].clone(),
        )
    };
    assert_eq!(
        [queue(0), queue(1)],
        [(json!("b"), json!(7)), (json!("client.ann"), json!(1))]
    );
    assert_eq!(pending["more"], false);
    let (_, pending) = world.ask("GET /v1/pending?count=0").await;
    assert_eq!((&pending["own"], &pending["more"]), (&Value::Null, &json!(true)));
    let (_, got) = world
        .send_as("ann", "POST /v1/receive?queue=a,client.ann", "")
        .await;
    assert_eq!(got["messages"][0]["queue"], "client.ann");
    let (_, got) = world.send_as("ann", "POST /v1/receive", "").await;
    assert_eq!(got["messages"][0]["queue"], "b");
    let (_, got) = world.send_as("ann", "POST /v1/receive", "").await;
    assert_eq!(got["messages"], json!([]), "other clients' messages are theirs");
}

#[tokio::test]
async fn chosen_messages_are_discarded_and_a_queue_keeps_its_definition() {
    let world = registered(&[]).await;
    let definition = r#"{"priority_max": 3, "length_max": 5, "dead_letter": {"routing_key": "dead"}}"#;
    let (status, made) = world.send("PUT /v1/queues/q", definition).await;
    assert_eq!(
        (status, &made["overflow"]),
        (StatusCode::CREATED, &json!("reject"))
    );
    assert_eq!(
        made["dead_letter"],
        json!({ "exchange": "", "routing_key": "dead" })
    );
    assert_eq!(world.send("PUT /v1/queues/q", definition).await.0, StatusCode::OK);
    let (status, why) = world.send("PUT /v1/queues/q", "{}").await;
    assert_eq!(
        (status, &why["code"]),
        (StatusCode::CONFLICT, &json!("exists_differently"))
    );
    for (body, code) in [
        (r#"{"durability": "x"}"#, "bad_request"),
        (r#"{"over": {"topic": "t"}}"#, "no_such_topic"),
        (r#"{"ttl": 1}"#, "unknown_field"),
    ] {
        assert_eq!(
            world.send("PUT /v1/queues/r", body).await.1["code"],
            code,
            "{body}"
        );
    }
    world.queue("/", "dead").await;
    let ndjson = [("content-type", "application/x-ndjson")];
    world
        .response_to("POST /v1/queues/q/messages", &ndjson, "1\n2\n3")
        .await;
    let (_, seen) = world.ask("GET /v1/queues/q/messages").await;
    let id = |at: usize| seen["messages"][at]["id"].clone();
    for (ids, dead, expected) in [(json!([id(1), "x"]), false, 1), (json!([id(0), id(1)]), true, 1)] {
        let body = json!({ "ids": ids, "dead_letter": dead }).to_string();
        let (_, gone) = world.send("POST /v1/queues/q/discard", &body).await;
        assert_eq!(gone, json!({ "messages": expected }));
    }
    assert_eq!(
        contents(&world.ask("GET /v1/queues/q/messages").await.1),
        [json!(3)]
    );
    let (_, dead) = world.ask("POST /v1/queues/dead/receive?wait=20s").await;
    assert_eq!(contents(&dead), [json!(1)]);
    assert_eq!(dead["messages"][0]["deaths"][0]["reason"], "rejected");
}

#[tokio::test]
async fn a_raw_message_has_its_properties_as_headers() {
    let world = registered(&["ann"]).await;
    world.queue("/", "q").await;
    let body =
        r#"{"to": {"queues": ["q"]}, "content_base64": "/wA=", "context": 7, "content_type": "image/png"}"#;
    world.send_as("ann", "POST /v1/messages", body).await;
    let raw = [("accept", "application/octet-stream")];
    let response = world
        .response_to("POST /v1/queues/q/receive?ack=lease:1s", &raw, "")
        .await;
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header("content-type").as_deref(), Some("image/png"));
    assert_eq!(
        (
            header("stafett-sender").as_deref(),
            header("stafett-context").as_deref()
        ),
        (Some("ann"), Some("7"))
    );
    assert!(header("stafett-lease").is_some());
    let body = to_bytes(response.into_body(), 100).await.unwrap();
    assert_eq!(body.as_ref(), [0xff, 0]);
}
