//! Exchanges, bindings, and messages through them.

use serde_json::{Value, json};
use stafett_topics::{NewTopic, TopicSettings};

use super::World;

const MAKE: &str = r#"{"kind": "topic"}"#;

fn named(list: &Value, field: &str) -> Vec<Value> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item[field].clone()).collect()
}

/// A world with exchange `events`, to which queue `jobs` is bound with the key `job.#`.
async fn bound() -> (World, Value) {
    let world = World::new().await;
    world.queue("/", "jobs").await;
    assert_eq!(world.send("PUT /v1/exchanges/events", MAKE).await.0, 201);
    let binding = r#"{"source": "events", "to": {"queue": "jobs"}, "key": "job.#"}"#;
    let (status, binding) = world.send("POST /v1/bindings", binding).await;
    assert_eq!(status, 201, "{binding}");
    (world, binding)
}

#[tokio::test]
async fn exchanges_are_made_listed_and_deleted_with_their_bindings() {
    let (world, binding) = bound().await;
    let (status, shown) = world.ask("GET /v1/exchanges/events").await;
    assert_eq!(status, 200);
    let expected = json!({
        "name": "events", "namespace": "/", "kind": "topic", "durable": true, "auto_delete": false,
        "internal": false, "alternate": null, "delays": false, "hash_on": null, "bindings": 1,
        "counters": { "published": 0, "routed": 0, "unroutable": 0 },
        "rates": { "published": 0.0, "routed": 0.0, "unroutable": 0.0 },
    });
    assert_eq!(shown, expected);
    assert_eq!(world.send("PUT /v1/exchanges/events", MAKE).await.0, 200);
    let hash = r#"{"kind": "hash", "hash_on": "header:shop", "durable": false, "alternate": "events"}"#;
    let (status, hash) = world.send("PUT /v1/exchanges/spread", hash).await;
    assert_eq!((status.as_u16(), &hash["hash_on"]), (201, &json!("header:shop")));
    let (_, list) = world.ask("GET /v1/exchanges?sort=-bindings&namespace=/").await;
    assert_eq!(
        named(&list, "name"),
        [json!("events"), json!(""), json!("spread")]
    );
    let (status, refused) = world.ask("DELETE /v1/exchanges/events?if_unused=true").await;
    assert_eq!((status.as_u16(), &refused["code"]), (409, &json!("in_use")));
    let (status, deleted) = world.ask("DELETE /v1/exchanges/events").await;
    assert_eq!((status.as_u16(), deleted), (200, json!({ "bindings": 1 })));
    let id = binding["id"].as_str().unwrap();
    let (status, gone) = world.ask(&format!("DELETE /v1/bindings/{id}")).await;
    assert_eq!((status.as_u16(), &gone["code"]), (404, &json!("no_such_binding")));
}

#[tokio::test]
async fn bindings_are_made_once_listed_and_deleted() {
    let (world, binding) = bound().await;
    let id = binding["id"].as_str().unwrap();
    let same = r#"{"source": "events", "to": {"queue": "jobs"}, "key": "job.#", "match": "all"}"#;
    let (status, again) = world.send("POST /v1/bindings", same).await;
    assert_eq!((status.as_u16(), &again), (200, &binding));
    let headers = r#"{"kind": "headers"}"#;
    assert_eq!(world.send("PUT /v1/exchanges/h%2Fx", headers).await.0, 201);
    for value in ["\"a\"", "7", "true", "null"] {
        let body = format!(r#"{{"source": "h/x", "to": {{"queue": "jobs"}}, "headers": {{"k": {value}}}}}"#);
        let (status, made) = world.send("POST /v1/bindings", &body).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!(made["headers"]["k"].to_string(), value);
    }
    let to = r#"{"source": "events", "to": {"exchange": "h/x"}, "key": "*"}"#;
    assert_eq!(world.send("POST /v1/bindings", to).await.0, 201);
    for (query, count) in [
        ("", 6),
        ("?source=events", 2),
        ("?queue=jobs", 5),
        ("?exchange=h%2Fx", 1),
        ("?topic=jobs", 0),
        ("?source=events&queue=jobs", 1),
        ("?namespace=none", 0),
    ] {
        let (_, list) = world.ask(&format!("GET /v1/bindings{query}")).await;
        assert_eq!(list["total"], count, "{query}");
    }
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let (_, page) = world.ask(&format!("GET /v1/bindings?count=4{after}")).await;
        pages.extend(named(&page, "id"));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    pages.sort_by_key(Value::to_string);
    pages.dedup();
    assert_eq!(pages.len(), 6);
    let (status, deleted) = world.ask(&format!("DELETE /v1/bindings/{id}")).await;
    assert_eq!((status.as_u16(), deleted), (200, binding.clone()));
    assert_eq!(world.ask(&format!("DELETE /v1/bindings/{id}")).await.0, 404);
    assert_eq!(world.ask("GET /v1/bindings").await.1["total"], 5);
}

#[tokio::test]
async fn a_message_goes_where_the_preview_says() {
    let (world, _) = bound().await;
    world.queue("/", "all").await;
    let topic = NewTopic {
        name: "kept".into(),
        partitions: Some(2),
        settings: TopicSettings::default(),
    };
    world
        .broker
        .catalog()
        .create(vec![topic])
        .await
        .remove(0)
        .unwrap();
    for to in [r#"{"queue": "all"}"#, r#"{"topic": "kept"}"#] {
        let body = format!(r##"{{"source": "events", "to": {to}, "key": "#"}}"##);
        assert_eq!(world.send("POST /v1/bindings", &body).await.0, 201);
    }
    let message = r#"{"routing_key": "job.a", "content": {"n": 1}, "headers": {"h": 2}, "key": "k"}"#;
    let (status, mut preview) = world.send("POST /v1/exchanges/events/route", message).await;
    assert_eq!((status.as_u16(), &preview["message_id"]), (200, &Value::Null));
    assert_eq!(world.ask("GET /v1/queues/all").await.1["ready"], 0);
    let (status, published) = world.send("POST /v1/exchanges/events/publish", message).await;
    assert_eq!(status, 201);
    preview["message_id"] = published["message_id"].clone();
    assert_eq!(preview, published);
    for field in ["routed", "topics"] {
        let names = published[field].as_array().unwrap().len();
        assert_eq!(names, if field == "routed" { 2 } else { 1 }, "{published}");
    }
    for queue in ["jobs", "all"] {
        let (_, got) = world.ask(&format!("POST /v1/queues/{queue}/receive")).await;
        let message = &got["messages"][0];
        assert_eq!(message["content"], json!({ "n": 1 }), "{got}");
        assert_eq!(message["exchange"], "events");
        assert_eq!(message["routing_key"], "job.a");
        assert_eq!(message["message_id"], published["message_id"]);
    }
}

#[tokio::test]
async fn a_delayed_message_waits_at_its_exchange() {
    let (world, _) = bound().await;
    let late = r#"{"kind": "direct", "delays": true}"#;
    assert_eq!(world.send("PUT /v1/exchanges/late", late).await.0, 201);
    let to = r#"{"source": "late", "to": {"queue": "jobs"}, "key": "k"}"#;
    assert_eq!(world.send("POST /v1/bindings", to).await.0, 201);
    let message = r#"{"routing_key": "k", "content": "x", "delay_ms": 60000}"#;
    let (status, sent) = world.send("POST /v1/exchanges/late/publish", message).await;
    assert_eq!((status.as_u16(), &sent["delayed_at"]), (201, &json!(["late"])));
    assert_eq!((&sent["routed"], &sent["topics"]), (&json!([]), &json!([])));
    let long = r#"{"routing_key": "k", "content": "x", "delay_ms": 18446744073709551615}"#;
    let (status, refused) = world.send("POST /v1/exchanges/late/publish", long).await;
    assert_eq!((status.as_u16(), &refused["code"]), (422, &json!("out_of_range")));
}

/// Sends requests that are refused: request, body, status, code.
async fn assert_refused(world: &World, cases: &[(&str, &str, u16, &str)]) {
    for (request, body, status, code) in cases {
        let (found, why) = world.send(request, body).await;
        let found = (found.as_u16(), why["code"].as_str());
        assert_eq!(found, (*status, Some(*code)), "{request} {body}: {why}");
    }
}

#[tokio::test]
async fn wrong_requests_about_exchanges_are_refused_with_their_code() {
    let (world, _) = bound().await;
    let long = &format!("PUT /v1/exchanges/{}", "n".repeat(256));
    let (other, hash) = (
        r#"{"kind": "direct"}"#,
        r#"{"kind": "hash", "hash_on": "header:"}"#,
    );
    let direct = r#"{"kind": "direct", "hash_on": "key"}"#;
    let cases = [
        ("GET /v1/exchanges/none", "", 404, "no_such_exchange"),
        ("DELETE /v1/exchanges/none", "", 404, "no_such_exchange"),
        ("DELETE /v1/exchanges/amq.direct", "", 409, "is_default"),
        ("PUT /v1/exchanges/amq.mine", MAKE, 400, "bad_request"),
        ("PUT /v1/exchanges/%00", MAKE, 400, "bad_request"),
        (long, MAKE, 400, "bad_request"),
        ("PUT /v1/exchanges/events", other, 409, "exists_differently"),
        (
            "PUT /v1/exchanges/x?namespace=none",
            MAKE,
            404,
            "no_such_namespace",
        ),
        (
            "PUT /v1/exchanges/x",
            r#"{"kind": "default"}"#,
            400,
            "bad_request",
        ),
        ("PUT /v1/exchanges/x", r#"{"kind": "fanout"}"#, 400, "bad_request"),
        ("PUT /v1/exchanges/x", direct, 400, "bad_request"),
        ("PUT /v1/exchanges/x", hash, 400, "bad_request"),
    ];
    assert_refused(&world, &cases).await;
}

#[tokio::test]
async fn wrong_requests_about_bindings_are_refused_with_their_code() {
    let (world, _) = bound().await;
    let to = |source: &str, to: &str| format!(r#"{{"source": "{source}", "to": {{{to}}}}}"#);
    let bind = |fields: &str| format!(r#"{{"source": "events", "to": {{"queue": "jobs"}}, {fields}}}"#);
    let long = format!(r#""key": "{}""#, "n".repeat(256));
    for (body, status, code) in [
        (to("none", r#""queue": "jobs""#), 404, "no_such_exchange"),
        (to("events", r#""queue": "none""#), 404, "no_such_queue"),
        (to("events", r#""topic": "none""#), 404, "no_such_topic"),
        (to("events", r#""exchange": "none""#), 404, "no_such_exchange"),
        (to("", r#""queue": "jobs""#), 409, "is_default"),
        (to("events", ""), 400, "bad_json"),
        (bind(r#""headers": {"k": [1]}"#), 400, "bad_request"),
        (bind(&long), 400, "bad_request"),
    ] {
        assert_refused(&world, &[("POST /v1/bindings", &body, status, code)]).await;
    }
    let none = ("DELETE /v1/bindings/none", "", 404, "no_such_binding");
    assert_refused(&world, &[none]).await;
}

#[tokio::test]
async fn wrong_messages_to_exchanges_are_refused_with_their_code() {
    let (world, _) = bound().await;
    let inside = r#"{"kind": "direct", "internal": true}"#;
    assert_eq!(world.send("PUT /v1/exchanges/inside", inside).await.0, 201);
    let (plain, nowhere) = (
        r#"{"content": "x"}"#,
        r#"{"routing_key": "other", "content": "x"}"#,
    );
    let to = r#"{"to": {"queues": ["jobs"]}, "content": "x"}"#;
    let cases = [
        ("POST /v1/exchanges/events/publish", nowhere, 422, "unroutable"),
        ("POST /v1/exchanges/events/publish", to, 400, "unknown_field"),
        (
            "POST /v1/exchanges/inside/publish",
            plain,
            409,
            "internal_exchange",
        ),
        ("POST /v1/exchanges/inside/route", plain, 409, "internal_exchange"),
        ("POST /v1/exchanges/none/publish", plain, 404, "no_such_exchange"),
    ];
    assert_refused(&world, &cases).await;
}
