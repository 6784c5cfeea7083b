//! Settings of queues that change, pauses, and conditions.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{ManualWorld, World};

async fn refused(world: &World, request: &str, body: &str) -> (u16, Value, Value) {
    let (status, why) = world.send(request, body).await;
    (status.as_u16(), why["code"].clone(), why["field"].clone())
}

#[tokio::test]
async fn settings_change_and_null_is_the_default() {
    let world = World::new().await;
    let definition = r#"{"ttl_ms": 60000, "dead_letter": {"routing_key": "dead"}}"#;
    assert_eq!(
        world.send("PUT /v1/queues/q", definition).await.0,
        StatusCode::CREATED
    );
    let all = json!({"ttl_ms": null, "expires_ms": 3_600_000, "length_max": 5, "bytes_max": 1000, "overflow": "drop-head",
        "dead_letter": {"exchange": "x"}, "delivery_limit": 3, "durability": "os", "retain": 7});
    let (status, changed) = world.send("PATCH /v1/queues/q", &all.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    for (field, value) in all.as_object().unwrap() {
        match field.as_str() {
            "dead_letter" => assert_eq!(changed[field], json!({"exchange": "x", "routing_key": null})),
            _ => assert_eq!(changed[field], *value, "{field}"),
        }
    }
    // Other settings stay, and the definition is still the same.
    let (_, changed) = world.send("PATCH /v1/queues/q", r#"{"retain": null}"#).await;
    assert_eq!(
        (&changed["retain"], &changed["length_max"]),
        (&json!(0), &json!(5))
    );
    assert_eq!(world.send("PUT /v1/queues/q", definition).await.0, StatusCode::OK);
    let (status, _) = world.send("PUT /v1/queues/q", r#"{"ttl_ms": 7}"#).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (_, listed) = world.ask("GET /v1/queues?q=q").await;
    assert_eq!(listed["items"][0], changed);
}

#[tokio::test]
async fn a_first_limit_refuses_unless_the_request_says_otherwise() {
    let world = World::new().await;
    world.queue("/", "q").await;
    let (_, changed) = world.send("PATCH /v1/queues/q", r#"{"length_max": 1}"#).await;
    assert_eq!(changed["overflow"], "reject");
    world.publish("q", b"one", 0, None).await;
    let second = r#"{"to": {"queues": ["q"]}, "content": "two"}"#;
    let why = refused(&world, "POST /v1/messages", second).await;
    assert_eq!((why.0, why.1), (409, json!("queue_full")));
    let (_, changed) = world
        .send("PATCH /v1/queues/q", r#"{"overflow": "drop-head"}"#)
        .await;
    assert_eq!(
        (&changed["overflow"], &changed["length_max"]),
        (&json!("drop-head"), &json!(1))
    );
    let (_, changed) = world.send("PATCH /v1/queues/q", r#"{"length_max": 2}"#).await;
    assert_eq!(changed["overflow"], "drop-head");
}

/// Requests with their bodies, and the status, code and field of their refusals.
const REFUSED: [(&str, &str, u16, &str, &str); 12] = [
    (
        "PATCH /v1/queues/q",
        r#"{"durable": false, "ttl_ms": 1}"#,
        409,
        "immutable",
        "durable",
    ),
    (
        "PATCH /v1/queues/q",
        r#"{"priority_max": 3}"#,
        409,
        "immutable",
        "priority_max",
    ),
    ("PATCH /v1/queues/q", r#"{"over": {}}"#, 409, "immutable", "over"),
    (
        "PATCH /v1/queues/o",
        r#"{"length_max": 3}"#,
        409,
        "immutable",
        "length_max",
    ),
    (
        "PATCH /v1/queues/o",
        r#"{"durability": "os"}"#,
        409,
        "immutable",
        "durability",
    ),
    (
        "PATCH /v1/queues/q",
        r#"{"expires_ms": 0}"#,
        422,
        "out_of_range",
        "expires_ms",
    ),
    (
        "PUT /v1/queues/new",
        r#"{"expires_ms": 0}"#,
        422,
        "out_of_range",
        "expires_ms",
    ),
    ("PATCH /v1/queues/q", r#"{"ttl": 3}"#, 400, "unknown_field", "ttl"),
    (
        "PATCH /v1/queues/q",
        r#"{"durability": "often"}"#,
        400,
        "bad_request",
        "",
    ),
    ("PATCH /v1/queues/none", "{}", 404, "no_such_queue", ""),
    ("POST /v1/queues/none/pause", "", 404, "no_such_queue", ""),
    ("POST /v1/queues/none/resume", "", 404, "no_such_queue", ""),
];

#[tokio::test]
async fn what_cannot_change_is_refused_and_nothing_is_done() {
    let world = World::new().await;
    world.queue("/", "q").await;
    assert_eq!(world.send("PUT /v1/topics/t", "").await.0, StatusCode::CREATED);
    let over = r#"{"over": {"topic": "t"}}"#;
    assert_eq!(world.send("PUT /v1/queues/o", over).await.0, StatusCode::CREATED);
    for (request, body, status, code, field) in REFUSED {
        let (found, why_code, why_field) = refused(&world, request, body).await;
        let why_field = why_field.as_str().unwrap_or_default();
        assert_eq!(
            (found, &why_code, why_field),
            (status, &json!(code), field),
            "{request} {body}"
        );
    }
    let (_, shown) = world.ask("GET /v1/queues/q").await;
    assert_eq!(shown["ttl_ms"], Value::Null);
    let (status, changed) = world.send("PATCH /v1/queues/o", r#"{"ttl_ms": 5}"#).await;
    assert_eq!((status, &changed["ttl_ms"]), (StatusCode::OK, &json!(5)));
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_and_is_shown_as_paused() {
    let world = World::new().await;
    world.queue("/", "q").await;
    let (status, paused) = world.ask("POST /v1/queues/q/pause").await;
    assert_eq!((status, &paused["state"]), (StatusCode::OK, &json!("paused")));
    world.publish("q", b"one", 0, Some("ann")).await;
    for query in ["", "?sender=ann", "?wait=1ms", "?order=oldest"] {
        let (status, received) = world.ask(&format!("POST /v1/queues/q/receive{query}")).await;
        assert_eq!(
            (status, &received["messages"]),
            (StatusCode::OK, &json!([])),
            "{query}"
        );
    }
    assert_eq!(world.ask("GET /v1/queues/q").await.1["ready"], 1);
    let (_, resumed) = world.ask("POST /v1/queues/q/resume").await;
    assert_eq!(resumed["state"], "running");
    let (_, received) = world.ask("POST /v1/queues/q/receive?sender=ann").await;
    assert_eq!(received["messages"][0]["content"], "one");
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_pauses() {
    let ManualWorld { world, journal } = ManualWorld::new().await;
    world.queue("/", "q").await;
    let (_, before) = world.ask("GET /v1/queues/q").await;
    journal.set_used_up(true);
    for (request, body) in [
        ("PATCH /v1/queues/q", r#"{"ttl_ms": 1, "durability": "os"}"#),
        ("POST /v1/queues/q/pause", ""),
    ] {
        let why = refused(&world, request, body).await;
        assert_eq!((why.0, why.1), (507, json!("disk_full")), "{request}");
    }
    assert_eq!(world.ask("GET /v1/queues/q").await.1, before);
}

#[tokio::test]
async fn a_condition_keeps_a_queue_and_its_messages() {
    let world = World::new().await;
    world.queue("/", "q").await;
    let (_, shown) = world.ask("GET /v1/queues/q").await;
    let id = shown["id"].as_str().unwrap();
    for request in ["POST /v1/queues/q/purge", "DELETE /v1/queues/q"] {
        for _ in 0..3 {
            world.publish("q", b"x", 0, None).await;
        }
        for condition in ["if_id=0", "if_ready_max=2"] {
            let (status, why) = world.ask(&format!("{request}?{condition}")).await;
            assert_eq!(
                (status.as_u16(), &why["code"]),
                (409, &json!("changed")),
                "{request} {condition}"
            );
        }
        let (status, done) = world.ask(&format!("{request}?if_id={id}&if_ready_max=3")).await;
        assert_eq!(status, StatusCode::OK, "{done}");
    }
    assert_eq!(world.ask("GET /v1/queues/q").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn queues_are_listed_by_id_client_and_kind() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.queue("/", name).await;
    }
    assert_eq!(world.send("PUT /v1/topics/t", "").await.0, StatusCode::CREATED);
    world
        .send("PUT /v1/queues/over", r#"{"over": {"topic": "t"}}"#)
        .await;
    world.ask("PUT /v1/clients/ann").await;
    world.publish("b", b"one", 0, None).await;
    world.ask("POST /v1/queues/c/pause").await;
    let (_, shown) = world.ask("GET /v1/queues/c").await;
    let by_id = format!("id={}", shown["id"].as_str().unwrap());
    for (query, expected) in [
        (&*by_id, &["c"][..]),
        ("id=999999999", &[]),
        ("client=ann", &["client.ann"]),
        ("client=bob", &[]),
        ("personal=true", &["client.ann"]),
        ("personal=false&prefix=b", &["b"]),
        ("exclusive=true", &[]),
        ("over=t", &["over"]),
        ("ready=true", &["b"]),
        ("unconsumed=true&prefix=b", &["b"]),
        ("paused=true", &["c"]),
        ("growing=true", &[]),
        ("prefix=c", &["c", "client.ann"]),
        ("sort=-name&count=2", &["over", "client.ann"]),
        ("sort=-ready&count=1", &["b"]),
    ] {
        let (status, listed) = world.ask(&format!("GET /v1/queues?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{listed}");
        let names = listed["items"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{query}");
    }
    for (query, status) in [("id=x", 400), ("over=none", 404), ("after=x", 400)] {
        assert_eq!(
            world.ask(&format!("GET /v1/queues?{query}")).await.0.as_u16(),
            status,
            "{query}"
        );
    }
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let (_, page) = world
            .ask(&format!("GET /v1/queues?count=2&columns=name{after}"))
            .await;
        assert_eq!((&page["matched"], &page["total"]), (&json!(5), &json!(5)));
        found.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].clone()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(found, ["a", "b", "c", "client.ann", "over"]);
    assert_eq!(world.ask("GET /v1/queues/over").await.1["over"], "t");
    assert_eq!(world.ask("GET /v1/queues/a").await.1["over"], json!(null));
}

#[tokio::test]
async fn a_message_is_found_as_a_record_and_a_record_as_a_message_of_each_queue() {
    let world = World::new().await;
    world.queue("/", "own").await;
    world.send("PUT /v1/topics/t", "").await;
    world
        .send("PUT /v1/queues/over", r#"{"over": {"topic": "t"}}"#)
        .await;
    world.publish("own", b"first", 0, None).await;
    let (_, own) = world.ask("GET /v1/queues/own").await;
    assert_eq!(own["topic"], "queue.own");
    let (_, topic) = world.ask("GET /v1/topics/queue.own").await;
    assert_eq!(topic["shows"]["name"], "own");
    let id = format!("{}-0-0", topic["shows"]["id"].as_str().unwrap());
    let (_, message) = world.ask(&format!("GET /v1/queues/own/messages/{id}")).await;
    assert_eq!(
        (&message["state"], &message["holder"]),
        (&json!("ready"), &json!(null))
    );
    world.ask("POST /v1/queues/own/receive?ack=lease:60s").await;
    let (_, message) = world.ask(&format!("GET /v1/queues/own/messages/{id}")).await;
    assert_eq!(message["state"], "in_flight");
    assert!(message["holder"]["lease_until"].is_string(), "{message}");
    let (_, over) = world.ask("GET /v1/queues/over").await;
    assert_eq!((&over["over"], &over["topic"]), (&json!("t"), &json!("t")));
    let (_, topic) = world.ask("GET /v1/topics/t").await;
    assert_eq!(
        (&topic["shows"], &topic["queues_over"][0]["id"]),
        (&json!(null), &over["id"])
    );
}

#[tokio::test]
async fn messages_move_by_id_or_by_a_choice() {
    let world = World::new().await;
    for name in ["from", "to"] {
        world.queue("/", name).await;
    }
    for (body, user) in [
        (&b"a"[..], "ann"),
        (b"b", "bob"),
        (b"c", "ann"),
        (b"d", "bob"),
        (b"e", "ann"),
    ] {
        world.publish("from", body, 0, Some(user)).await;
    }
    let contents = async |queue: &str| -> Vec<String> {
        let (_, found) = world.ask(&format!("GET /v1/queues/{queue}/messages")).await;
        let messages = found["messages"].as_array().unwrap().iter();
        messages
            .map(|it| it["content"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, found) = world.ask("GET /v1/queues/from/messages").await;
    let id = |at: usize| found["messages"][at]["id"].clone();
    let request = "POST /v1/queues/from/move";
    let to = json!({"queue": "to"});
    let moved = |count| (StatusCode::OK, json!({"messages": count, "stopped": null}));
    let ids = json!({"to": to, "ids": [id(3), id(0)]});
    assert_eq!(world.send(request, &ids.to_string()).await, moved(2));
    assert_eq!(
        world.send(request, &ids.to_string()).await,
        moved(0),
        "they have moved"
    );
    assert_eq!(
        (contents("to").await, contents("from").await),
        (
            vec!["d".into(), "a".into()],
            vec!["b".into(), "c".into(), "e".into()]
        )
    );
    let one = json!({"to": to, "query": {"sender": "ann", "priority": 0}, "count": 1});
    assert_eq!(world.send(request, &one.to_string()).await, moved(1));
    let rest = json!({"to": to, "query": {"sender": "ann"}});
    assert_eq!(world.send(request, &rest.to_string()).await, moved(1));
    assert_eq!(
        (contents("to").await, contents("from").await),
        (
            vec!["d".into(), "a".into(), "c".into(), "e".into()],
            vec!["b".into()]
        )
    );
    for (body, code) in [
        (json!({"to": to, "ids": ["x"]}), "bad_request"),
        (
            json!({"to": to, "ids": [id(1)], "query": {"sender": "ann"}}),
            "bad_request",
        ),
        (json!({"to": to, "query": {"order": "oldest"}}), "unknown_field"),
        (json!({"to": to, "query": {"sender": []}}), "bad_request"),
        (json!({"to": to, "query": {"priority": 300}}), "bad_request"),
    ] {
        let (_, why) = world.send(request, &body.to_string()).await;
        assert_eq!(why["code"], code, "{body}");
    }
    let (_, counts) = world.ask("GET /v1/queues/from").await;
    assert_eq!((&counts["ready"], &counts["in_flight"]), (&json!(1), &json!(0)));
}

/// Sends messages to a queue that lets nothing wait, with `dead` as its dead-letter queue.
async fn with_dead_letters(world: &World, bodies: &[&str]) {
    let dying = r#"{"ttl_ms": 0, "dead_letter": {"routing_key": "dead"}}"#;
    assert_eq!(
        world.send("PUT /v1/queues/orders", dying).await.0,
        StatusCode::CREATED
    );
    world.queue("/", "dead").await;
    for body in bodies {
        let message = json!({"to": {"queues": ["orders"]}, "content": body});
        let (status, why) = world.send("POST /v1/messages", &message.to_string()).await;
        assert!(status.is_success(), "{why}");
    }
    let ready = async || world.ask("GET /v1/queues/dead").await.1["ready"].as_u64();
    while ready().await != Some(bodies.len() as u64) {
        tokio::task::yield_now().await;
    }
    let lives = r#"{"ttl_ms": null}"#;
    assert_eq!(
        world.send("PATCH /v1/queues/orders", lives).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn dead_letters_go_back_to_where_they_were_published_to() {
    let world = World::new().await;
    with_dead_letters(&world, &["one", "two"]).await;
    let (status, moved) = world
        .send("POST /v1/queues/dead/move", r#"{"to": "origin"}"#)
        .await;
    assert_eq!(
        (status, &moved["messages"]),
        (StatusCode::OK, &json!(2)),
        "{moved}"
    );
    let (_, orders) = world.ask("GET /v1/queues/orders").await;
    assert_eq!(orders["ready"], 2, "{orders}");
    // They are no dead letters of this queue: the move ends at the first one without an origin.
    world.publish("dead", b"alive", 0, None).await;
    let why = refused(&world, "POST /v1/queues/dead/move", r#"{"to": "origin"}"#).await;
    assert_eq!((why.0, why.1), (422, json!("unroutable")));
    let (_, dead) = world.ask("GET /v1/queues/dead").await;
    assert_eq!(dead["ready"], 1, "it is where it was: {dead}");
}

#[tokio::test]
async fn messages_move_to_an_exchange_with_their_key_or_another_one() {
    let world = World::new().await;
    world.queue("/", "from").await;
    for name in ["a", "b"] {
        world.queue("/", name).await;
    }
    world
        .send("PUT /v1/exchanges/all", r#"{"kind": "fan-out"}"#)
        .await;
    for name in ["a", "b", "from"] {
        let binding = format!(r#"{{"source": "all", "to": {{"queue": "{name}"}}}}"#);
        let (status, why) = world.send("POST /v1/bindings", &binding).await;
        assert!(status.is_success(), "{why}");
    }
    for body in [b"one", b"two"] {
        world.publish("from", body, 0, None).await;
    }
    let ready = async |name: &str| world.ask(&format!("GET /v1/queues/{name}")).await.1["ready"].clone();
    let one = r#"{"to": {"exchange": "all"}, "count": 1}"#;
    let (status, moved) = world.send("POST /v1/queues/from/move", one).await;
    assert_eq!(
        (status, &moved["messages"]),
        (StatusCode::OK, &json!(1)),
        "{moved}"
    );
    // Not to the queue that it came from, although that is bound as well.
    let counts = [ready("a").await, ready("b").await, ready("from").await];
    assert_eq!(counts, [1, 1, 1]);
    // At the default exchange the key is the name of a queue.
    let named = r#"{"to": {"exchange": "", "routing_key": "b"}}"#;
    let (_, moved) = world.send("POST /v1/queues/from/move", named).await;
    assert_eq!(moved["messages"], 1, "{moved}");
    assert_eq!([ready("b").await, ready("from").await], [2, 0]);
    // Its own key leads back to the queue that it leaves.
    world.publish("from", b"three", 0, None).await;
    let own_key = r#"{"to": {"exchange": ""}}"#;
    let why = refused(&world, "POST /v1/queues/from/move", own_key).await;
    assert_eq!((why.0, why.1), (422, json!("unroutable")));
    let none = r#"{"to": {"exchange": "none"}}"#;
    let why = refused(&world, "POST /v1/queues/from/move", none).await;
    assert_eq!((why.0, why.1), (404, json!("no_such_exchange")));
    for bad in [
        r#"{"to": {"exchange": "all", "queue": "a"}}"#,
        r#"{"to": "elsewhere"}"#,
        r#"{"to": {}}"#,
    ] {
        assert_eq!(
            refused(&world, "POST /v1/queues/from/move", bad).await.0,
            400,
            "{bad}"
        );
    }
    assert_eq!(ready("from").await, 1);
}
