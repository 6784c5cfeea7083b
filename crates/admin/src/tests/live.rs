//! Live topics, the search over names, and the details of a queue.

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_live_topics::{ClientName, Pattern, SubscriptionChange, SubscriptionEdit};

use super::World;

impl World {
    async fn subscribe(&self, client: ClientName, what: SubscriptionEdit) {
        let change = SubscriptionChange { client, what };
        let done = self.broker.live_topics().change(vec![change]).await;
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }

    async fn ok(&self, request: &str) -> Value {
        let (status, answer) = self.ask(request).await;
        assert_eq!(status, StatusCode::OK, "{request}: {answer}");
        answer
    }
}

fn text(name: &str) -> ClientName {
    ClientName::Text(name.into())
}

#[tokio::test]
async fn live_topics_and_clients_are_listed_shown_and_ended() {
    let world = World::new().await;
    let topics = |names: &[&str]| SubscriptionEdit::Subscribe(names.iter().copied().collect());
    world.subscribe(text("1"), topics(&["charts", "news"])).await;
    world.subscribe(ClientName::Number(1), topics(&["charts"])).await;
    let pattern = Pattern::parse("ch*").unwrap();
    world
        .subscribe(text("ann"), SubscriptionEdit::SubscribePatterns(vec![pattern]))
        .await;
    let counts = world.ok("GET /v1/live").await;
    let memory = world.ok("GET /v1/node/memory").await;
    assert!(
        memory["live"]["bytes"].as_u64().is_some_and(|bytes| bytes >= 64),
        "{memory}"
    );
    assert_eq!(
        (
            &counts["clients"],
            &counts["topics"],
            &counts["subscriptions"],
            &counts["patterns"]
        ),
        (&json!(3), &json!(2), &json!(3), &json!(1)),
        "{counts}"
    );
    let charts = json!([{ "name": "charts", "subscribers": 2 }]);
    assert_eq!(world.ok("GET /v1/live/topics?q=charts").await["items"], charts);
    assert_eq!(world.ok("GET /v1/live/topics?q=chart").await["items"], json!([]));
    let (mut found, mut from) = (0, String::new());
    loop {
        let page = world.ok(&format!("GET /v1/live/clients?count=1{from}")).await;
        found += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        from = format!("&from={next}");
    }
    assert_eq!(found, 3);
    let shown = world.ok("GET /v1/live/topics/charts").await;
    assert_eq!(shown["patterns"], json!([{ "pattern": "ch*", "subscribers": 1 }]));
    assert_eq!(
        (
            &shown["subscribers"],
            &shown["listening"],
            shown["clients"].as_array().unwrap().len()
        ),
        (&json!(2), &json!(0), 2)
    );
    // The number 1 and the text "1" are two clients.
    assert_eq!(world.ok("GET /v1/live/clients/1").await["subscriptions"], 2);
    assert_eq!(
        world.ok("GET /v1/live/clients/1?number=true").await["subscriptions"],
        1
    );
    let listed = world.ok("GET /v1/live/clients/ann/subscriptions").await;
    assert_eq!(listed, json!({ "topics": [], "patterns": ["ch*"], "next": null }));
    assert_eq!(world.ok("DELETE /v1/live/clients/1").await["subscriptions"], 2);
    let (status, why) = world.ask("GET /v1/live/clients/1").await;
    assert_eq!((status.as_u16(), &why["code"]), (404, &json!("no_such_client")));
    assert_eq!(
        world.ok("GET /v1/live/clients/1?number=true").await["subscriptions"],
        1
    );
    for wrong in [
        "clients?from=x",
        "clients?count=1001",
        "clients/x?number=true",
        "topics?other=1",
    ] {
        let (status, _) = world.ask(&format!("GET /v1/live/{wrong}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn things_of_all_kinds_are_found_the_best_fit_first() {
    let world = World::new().await;
    for queue in ["orders.dead", "back-orders"] {
        world.queue("/", queue).await;
    }
    world.send("PUT /v1/topics/Orders", "{}").await;
    world.ask("PUT /v1/clients/orderly").await;
    world
        .send("PUT /v1/exchanges/orders-in", r#"{"kind": "topic"}"#)
        .await;
    let found = world.ok("GET /v1/search?q=orders").await;
    let names: Vec<_> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["kind"].as_str().unwrap(), item["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            ("topic", "Orders"),
            ("exchange", "orders-in"),
            ("queue", "orders.dead"),
            ("queue", "back-orders"),
        ]
    );
    let client = &world.ok("GET /v1/search?q=ORDERL").await["items"][0];
    assert_eq!(
        client,
        &json!({ "kind": "client", "name": "orderly", "namespace": "/" })
    );
    assert_eq!(
        world.ok("GET /v1/search?q=order&count=2").await["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(world.ok("GET /v1/search?q=none").await["items"], json!([]));
    assert_eq!(world.ask("GET /v1/search").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_queue_shows_its_lanes_and_bindings_and_is_deleted_by_id() {
    let world = World::new().await;
    world.send("PUT /v1/queues/work", r#"{"priority_max": 9}"#).await;
    for (priority, body) in [(3, b"one"), (3, b"two"), (7, b"six")] {
        world.publish("work", body, priority, None).await;
    }
    let queue = world.ok("GET /v1/queues/work").await;
    assert_eq!(queue["by_priority"], json!({ "3": 2, "7": 1 }));
    assert_eq!(queue["highest_priority"], 7);
    let oldest = queue["oldest"].as_str().unwrap();
    assert!(oldest > "2026", "{queue}");
    world.send("PUT /v1/exchanges/x", r#"{"kind": "topic"}"#).await;
    world
        .send(
            "POST /v1/bindings",
            r#"{"source": "x", "to": {"queue": "work"}, "key": "a.#"}"#,
        )
        .await;
    let bindings = world.ok("GET /v1/queues/work/bindings?sort=name").await;
    assert_eq!(
        bindings["items"].as_array().unwrap().last().unwrap()["key"],
        "a.#"
    );
    let id = queue["id"].as_str().unwrap();
    assert_eq!(
        world.ask("DELETE /v1/queues?id=999").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        world.ok(&format!("DELETE /v1/queues?id={id}")).await,
        json!({ "messages": 3 })
    );
    assert_eq!(world.ask("GET /v1/queues/work").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn messages_are_published_one_or_several() {
    let world = World::new().await;
    for body in [
        r#"{"topic": "charts", "payload": {"n": 1.50}}"#,
        r#"[{"topic": "a", "payload": null, "timestamp": 5}, {"topic": "b", "payload_base64": "/w=="}]"#,
    ] {
        let (status, counts) = world.send("POST /v1/live/publish", body).await;
        let nobody = json!({ "receivers": 0, "duplicates": 0, "stored": 0 });
        assert_eq!((status, counts), (StatusCode::OK, nobody), "{body}");
    }
    assert_eq!(world.ok("GET /v1/live").await["counters"]["published"], 3);
    let long = format!(r#"{{"topic": "{}", "payload": 1}}"#, "x".repeat(1025));
    for (body, code) in [
        ("", "bad_json"),
        (r#"{"topic": "a"}"#, "bad_request"),
        (
            r#"{"topic": "a", "payload": 1, "payload_base64": ""}"#,
            "bad_request",
        ),
        (r#"{"topic": "a", "payload_base64": "?"}"#, "bad_request"),
        (r#"{"topic": "a", "payload": 1, "content": 1}"#, "unknown_field"),
        (&long, "bad_request"),
    ] {
        let (status, why) = world.send("POST /v1/live/publish", body).await;
        assert_eq!(
            (status.as_u16(), &why["code"]),
            (400, &json!(code)),
            "{body}: {why}"
        );
    }
    let second = r#"[{"topic": "a", "payload": 1}, {"payload": 1}]"#;
    let (_, why) = world.send("POST /v1/live/publish", second).await;
    assert_eq!(why["line"], 2, "{why}");
    assert_eq!(
        world.ok("GET /v1/live").await["counters"]["published"],
        3,
        "all or none"
    );
}
