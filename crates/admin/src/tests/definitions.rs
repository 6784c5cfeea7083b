//! Definitions: exported, compared and imported.

use serde_json::{Value, json};
use stafett_model::Namespace;

use super::World;

/// Requests that define one thing of each kind, and more where kinds have variants.
const DEFINED: &[(&str, &str)] = &[
    ("PUT /v1/namespaces/shop", r#"{"description": "a shop"}"#),
    (
        "PUT /v1/topics/log",
        r#"{"partitions": 3, "settings": {"durability": "os", "retention_ms": "unlimited"}, "other": {"segment.bytes": "7"}}"#,
    ),
    ("PUT /v1/topics/stream", r#"{"declared": "AAAA"}"#),
    (
        "PUT /v1/exchanges/lost?namespace=shop",
        r#"{"kind": "fan-out", "durable": false}"#,
    ),
    (
        "PUT /v1/exchanges/events?namespace=shop",
        r#"{"kind": "headers", "alternate": "lost", "declared": "AAAB"}"#,
    ),
    (
        "PUT /v1/queues/jobs?namespace=shop",
        r#"{"priority_max": 7, "ttl_ms": 9000, "length_max": 5, "overflow": "drop-head",
            "dead_letter": {"exchange": "", "routing_key": "dead"}, "durability": "sync"}"#,
    ),
    (
        "PUT /v1/queues/quorum",
        r#"{"traits": ["two_priorities", "default_delivery_limit"], "delivery_limit": 20, "declared": "AAAC"}"#,
    ),
    ("PUT /v1/queues/view", r#"{"over": {"topic": "log"}}"#),
    ("PATCH /v1/queues/jobs?namespace=shop", r#"{"bytes_max": 77}"#),
    (
        "PUT /v1/policies/short?namespace=shop",
        r#"{"pattern": "^j", "priority": 3, "settings": {"ttl_ms": 10}}"#,
    ),
    (
        "PUT /v1/policies/bound?operator=true",
        r#"{"pattern": "", "queues": "plain", "settings": {"bytes_max": 1000}}"#,
    ),
    ("PUT /v1/clients/ann", ""),
    (
        "POST /v1/bindings?namespace=shop",
        r#"{"source": "events", "to": {"queue": "jobs"}, "headers": {"a": 1, "b": null}, "match": "any"}"#,
    ),
    (
        "POST /v1/bindings?namespace=shop",
        r#"{"source": "lost", "to": {"exchange": "events"}, "key": "k", "declared": "AAAD"}"#,
    ),
    (
        "PUT /v1/apps/count",
        r#"{"topics": ["log"], "filter": "value.n > 1", "guarantee": "at-least-once", "tables": {"sums": {"ttl_ms": 5}}, "dead_letter": "log"}"#,
    ),
    (
        "PUT /v1/sinks/s",
        r#"{"from": "log", "to": "files", "columns": {"z": {}, "a": {}}}"#,
    ),
    (
        "PUT /v1/users/root",
        r#"{"tags": ["superuser"], "password": "long and secret"}"#,
    ),
];

/// Defined behind a login.
const OF_ROOT: &[(&str, &str)] = &[
    ("PUT /v1/users/bob", r#"{"tags": ["monitoring"]}"#),
    (
        "POST /v1/rules",
        r#"{"who": "user:bob", "actions": ["read"], "on": ["topic"], "prefix": "l"}"#,
    ),
    ("PUT /v1/limits", r#"{"namespace": "shop", "queues": 9}"#),
    ("PUT /v1/limits", r#"{"user": "bob", "connections": 2}"#),
    (
        "PUT /v1/quotas",
        r#"{"user": "bob", "requests_per_second": 100000.0}"#,
    ),
];

/// `root:long and secret`.
const ROOT: (&str, &str) = ("authorization", "Basic cm9vdDpsb25nIGFuZCBzZWNyZXQ=");

async fn as_root(world: &World, request: &str, body: &str) -> (u16, Value) {
    let (status, answer) = super::read(world.response_to(request, &[ROOT], body).await).await;
    (status.as_u16(), answer)
}

async fn defined() -> World {
    let world = World::new().await;
    for (request, body) in DEFINED {
        let (status, answer) = world.send(request, body).await;
        assert!(status.is_success(), "{request}: {answer}");
    }
    for (request, body) in OF_ROOT {
        let (status, answer) = as_root(&world, request, body).await;
        assert!((200..300).contains(&status), "{request}: {answer}");
    }
    world
}

fn counts(imported: &Value) -> [u64; 5] {
    ["made", "changed", "same", "differ", "refused"].map(|name| imported[name].as_u64().unwrap())
}

fn things(document: &Value) -> u64 {
    let lists = document.as_object().unwrap().values().filter_map(Value::as_array);
    lists.map(|list| list.len() as u64).sum()
}

#[tokio::test]
async fn an_empty_broker_has_the_same_definitions_after_an_import_and_a_second_one_does_nothing() {
    let (status, exported) = as_root(&defined().await, "GET /v1/definitions", "").await;
    assert_eq!(status, 200, "{exported}");
    assert_eq!(exported["form"], "stafett definitions 1");
    assert_eq!(exported.get("left_out"), None);
    for kind in crate::definitions::kind_names() {
        assert_ne!(exported[kind], json!([]), "{kind} has nothing to compare");
    }
    let queue = exported["queues"].as_array().unwrap();
    let jobs = queue.iter().find(|queue| queue["name"] == "jobs").unwrap();
    assert_eq!(jobs["ttl_ms"], 9000, "a policy is no part of a queue");
    assert_eq!(
        jobs["changed"],
        json!({ "bytes_max": 77 }),
        "a change is part of a queue"
    );

    let other = World::new().await;
    let document = exported.to_string();
    let (_, planned) = other.send("POST /v1/definitions?dry_run=true", &document).await;
    let expected = things(&exported) - 1;
    assert_eq!(counts(&planned), [expected, 0, 1, 0, 0], "{planned}");
    assert_eq!(
        other.ask("GET /v1/topics").await.1["total"],
        0,
        "a dry run makes nothing"
    );
    let (status, imported) = other.send("POST /v1/definitions?wait=1m", &document).await;
    assert_eq!(status, 200, "{imported}");
    assert_eq!(counts(&imported), [expected, 0, 1, 0, 0], "{imported}");
    let (_, again) = as_root(&other, "GET /v1/definitions", "").await;
    assert_eq!(again, exported);
    let (_, second) = as_root(&other, "POST /v1/definitions?wait=1m", &document).await;
    assert_eq!(counts(&second), [0, 0, expected + 1, 0, 0], "{second}");
}

#[tokio::test]
async fn what_differs_stays_until_a_change_is_wanted_and_what_cannot_change_is_named() {
    let world = World::new().await;
    world.send("PUT /v1/queues/q", r#"{"ttl_ms": 1}"#).await;
    world.send("PUT /v1/exchanges/x", r#"{"kind": "topic"}"#).await;
    world.send("PUT /v1/topics/t", r#"{"partitions": 4}"#).await;
    let document = json!({
        "form": "stafett definitions 1",
        "queues": [{ "name": "q", "ttl_ms": 2 }, { "name": "new" }, { "name": "" }, { "name": "odd", "colour": 1 }],
        "exchanges": [{ "name": "x", "kind": "direct" }],
        "topics": [{ "name": "t", "partitions": 2 }, { "name": "__consumer_offsets" }],
        "ghosts": [{}],
    });
    let document = document.to_string();
    let (_, imported) = world.send("POST /v1/definitions", &document).await;
    assert_eq!(counts(&imported), [1, 0, 0, 3, 4], "{imported}");
    let state = |imported: &Value, name: &str| {
        let items = imported["items"].as_array().unwrap().iter();
        let found = items.filter(|item| item["name"] == name).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{name} in {imported}");
        found[0].clone()
    };
    let differs = state(&imported, "q");
    assert_eq!(differs["state"], "differs");
    assert_eq!(
        differs["differences"],
        json!([{ "field": "ttl_ms", "is": 1, "wanted": 2 }])
    );
    assert_eq!(state(&imported, "odd")["code"], "unknown_field");
    assert_eq!(state(&imported, "__consumer_offsets")["code"], "immutable");
    let (_, changed) = world.send("POST /v1/definitions?change=true", &document).await;
    assert_eq!(counts(&changed), [0, 1, 1, 1, 5], "{changed}");
    assert_eq!(state(&changed, "q")["state"], "changed");
    assert_eq!(state(&changed, "x")["why"], "it cannot change in these fields");
    assert_eq!(state(&changed, "t")["code"], "out_of_range");
    assert_eq!(world.ask("GET /v1/queues/q").await.1["ttl_ms"], 2);
}

#[tokio::test]
async fn the_things_of_a_namespace_move_into_another_one() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.ask(&format!("PUT /v1/namespaces/{name}")).await;
    }
    world.send("PUT /v1/queues/q?namespace=a", "{}").await;
    world.ask("PUT /v1/clients/ann?namespace=a").await;
    let (_, exported) = world
        .ask("GET /v1/definitions?namespace=a&kinds=queues,clients,topics")
        .await;
    assert_eq!(exported.get("topics"), None);
    assert_eq!(exported["clients"], json!([{ "name": "ann" }]));
    assert_eq!(exported["queues"][0].get("namespace"), None);
    let (_, imported) = world
        .send("POST /v1/definitions?namespace=b", &exported.to_string())
        .await;
    assert_eq!(counts(&imported), [2, 0, 0, 0, 0], "{imported}");
    assert_eq!(world.ask("GET /v1/queues/q?namespace=b").await.0, 200);
}

#[tokio::test]
async fn a_document_of_another_form_and_an_administrator_that_nobody_could_be_are_refused() {
    let world = World::new().await;
    for (query, document, code) in [
        ("", "[]", "bad_request"),
        ("", "{", "bad_json"),
        ("", "", "bad_request"),
        ("", r#"{"form": "stafett definitions 9"}"#, "bad_request"),
        ("", r#"{"form": 7}"#, "bad_request"),
        (
            "",
            r#"{"form": "stafett definitions 1", "queues": {}}"#,
            "bad_request",
        ),
        ("", r#"{"rabbit_version": "4.0.5", "queues": []}"#, "bad_request"),
        (
            "?kinds=ghosts",
            r#"{"form": "stafett definitions 1"}"#,
            "bad_request",
        ),
        (
            "?namespace=none",
            r#"{"form": "stafett definitions 1"}"#,
            "no_such_namespace",
        ),
    ] {
        let (_, refused) = world
            .send(&format!("POST /v1/definitions{query}"), document)
            .await;
        assert_eq!(refused["code"], code, "{document}: {refused}");
    }
    let closing = r#"{"form": "stafett definitions 1", "users": [{"name": "root", "tags": ["superuser"]}]}"#;
    let (_, imported) = world.send("POST /v1/definitions", closing).await;
    assert_eq!(imported["items"][0]["code"], "last_administrator", "{imported}");
    let weak = r#"{"form": "stafett definitions 1", "users": [{"name": "bob", "verifiers": {"scram_sha256":
        {"iterations": 1, "salt": "AAAA", "stored_key": "AAAA", "server_key": "AAAA"}}}]}"#;
    let (_, imported) = world.send("POST /v1/definitions", weak).await;
    assert_eq!(imported["items"][0]["code"], "bad_request", "{imported}");
}

#[tokio::test]
async fn verifiers_are_shown_to_administrators_alone_and_each_thing_needs_its_own_right() {
    let world = defined().await;
    let operator = [
        ("PUT /v1/users/op", r#"{"password": "password of op"}"#),
        (
            "POST /v1/rules",
            r#"{"who": "user:op", "actions": ["operate", "describe"], "on": ["cluster"], "prefix": ""}"#,
        ),
    ];
    for (request, body) in operator {
        assert!(as_root(&world, request, body).await.0 < 300);
    }
    let login = [("authorization", "Basic b3A6cGFzc3dvcmQgb2Ygb3A=")];
    let ask =
        async |request: &str, body: &str| super::read(world.response_to(request, &login, body).await).await;
    let (_, exported) = ask("GET /v1/definitions", "").await;
    assert_eq!(exported.get("users"), None, "{exported}");
    assert_eq!(exported["left_out"][0]["kind"], "users", "{exported}");
    assert!(!exported.to_string().contains("stored_key"));
    let wanted = r#"{"form": "stafett definitions 1", "queues": [{"name": "mine"}]}"#;
    let (_, imported) = ask("POST /v1/definitions", wanted).await;
    assert_eq!(imported["items"][0]["code"], "forbidden", "{imported}");
    let (status, _) = super::read(world.response_to("GET /v1/definitions", &[], "").await).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn an_export_has_every_field_of_an_app_that_is_set() {
    let world = defined().await;
    let (_, exported) = as_root(&world, "GET /v1/definitions?kinds=apps", "").await;
    let app = world.broker.apps().named("count").unwrap();
    let defined = crate::apps::definition_of(&app);
    for (field, value) in defined.iter().filter(|(_, value)| !value.is_null()) {
        assert_eq!(exported["apps"][0][field], *value, "{field}");
    }
}

/// Returns a document with these lists.
fn document(lists: &Value) -> String {
    let mut document = json!({ "form": "stafett definitions 1" });
    let fields = lists.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(fields);
    document.to_string()
}

#[tokio::test]
async fn results_of_imports_have_no_verifiers() {
    let world = defined().await;
    let (_, mut exported) = as_root(&world, "GET /v1/definitions?kinds=users", "").await;
    let keys = &exported["users"][1]["verifiers"]["scram_sha256"]["stored_key"];
    let key = keys.as_str().unwrap().to_owned();
    let other = "A".repeat(43) + "=";
    exported["users"][1]["verifiers"]["scram_sha256"]["stored_key"] = json!(other);
    let (_, imported) = as_root(&world, "POST /v1/definitions?wait=1m", &exported.to_string()).await;
    assert_eq!(counts(&imported)[3], 1, "{imported}");
    assert_eq!(
        imported["items"][0]["differences"],
        json!([{ "field": "verifiers", "is": null, "wanted": null }])
    );
    let (_, operations) = as_root(&world, "GET /v1/operations", "").await;
    assert_eq!(operations["items"][0]["by"], "root");
    let text = operations.to_string();
    assert!(!text.contains(&key) && !text.contains(&other), "{text}");
}

#[tokio::test]
async fn an_import_replaces_no_thing_of_a_namespace_that_only_its_things_name() {
    let world = World::new().await;
    world.ask("PUT /v1/namespaces/b").await;
    let policy = |ttl: u64| json!({ "pattern": "^j", "settings": { "ttl_ms": ttl } }).to_string();
    world.send("PUT /v1/policies/p", &policy(10)).await;
    let wanted = json!({ "policies": [
        { "name": "p", "namespace": "/", "pattern": "^j", "settings": { "ttl_ms": 99 } },
        { "name": "p", "pattern": "^j", "settings": { "ttl_ms": 7 } },
        { "name": "p", "pattern": "^j", "settings": { "ttl_ms": 8 } },
    ] });
    let (_, imported) = world
        .send("POST /v1/definitions?namespace=b", &document(&wanted))
        .await;
    assert_eq!(counts(&imported), [1, 0, 0, 1, 1], "{imported}");
    let ttl = async |namespace: &str| {
        let (_, policy) = world
            .ask(&format!("GET /v1/policies/p?namespace={namespace}"))
            .await;
        policy["settings"]["ttl_ms"].clone()
    };
    assert_eq!((ttl("/").await, ttl("b").await), (json!(10), json!(7)));
}

#[tokio::test]
async fn things_that_the_caller_cannot_list_are_refused_instead_of_replaced() {
    let world = defined().await;
    for (request, body) in [
        ("PUT /v1/users/op", r#"{"password": "password of op"}"#),
        (
            "POST /v1/rules",
            r#"{"who": "user:op", "actions": ["operate", "alter_settings"], "on": ["cluster"], "prefix": ""}"#,
        ),
    ] {
        let (status, answer) = as_root(&world, request, body).await;
        assert!(status < 300, "{answer}");
    }
    let before = as_root(&world, "GET /v1/limits", "").await.1;
    let login = [("authorization", "Basic b3A6cGFzc3dvcmQgb2Ygb3A=")];
    let wanted = json!({ "limits": [{ "namespace": "shop", "queues": 77 }], "queues": [{ "name": "q" }] });
    let response = world
        .response_to("POST /v1/definitions", &login, document(&wanted))
        .await;
    let (_, imported) = super::read(response).await;
    assert_eq!(imported["made"], 0, "{imported}");
    assert_eq!(as_root(&world, "GET /v1/limits", "").await.1, before);
}

#[tokio::test]
async fn a_queue_with_changes_is_declared_again_behind_an_import() {
    let world = World::new().await;
    world
        .send(
            "PUT /v1/queues/q",
            r#"{"ttl_ms": 1000, "overflow": "drop-head", "declared": "AAAC"}"#,
        )
        .await;
    let patch = r#"{"ttl_ms": 5, "length_max": 9, "overflow": "drop-head"}"#;
    world.send("PATCH /v1/queues/q", patch).await;
    let (_, exported) = world.ask("GET /v1/definitions").await;
    let other = World::new().await;
    let (_, imported) = other.send("POST /v1/definitions", &exported.to_string()).await;
    assert_eq!(counts(&imported), [1, 0, 1, 0, 0], "{imported}");
    assert_eq!(other.ask("GET /v1/definitions").await.1, exported);
    let find = |world: &World| {
        world
            .broker
            .messaging()
            .queues()
            .get(&Namespace::default(), "q")
            .unwrap()
    };
    let (one, copy) = (find(&world), find(&other));
    assert_eq!(*one.declared, *copy.declared, "the client's declaration");
    assert_eq!(one.own_settings(), copy.own_settings());
    assert!(copy.is_declared_as(&one.declared));
}

#[tokio::test]
async fn a_document_with_too_many_things_or_with_no_objects_is_refused_as_a_whole() {
    let world = World::new().await;
    let many = vec!["{}"; 200_001].join(",");
    for list in [&many, "7,7", "{\"name\": \"q\"}, null"] {
        let document = format!(r#"{{"form": "stafett definitions 1", "queues": [{list}]}}"#);
        let (status, refused) = world.send("POST /v1/definitions?dry_run=true", &document).await;
        assert_eq!(status, 400, "{refused}");
    }
    let unknown: Vec<_> = (0..101).map(|number| format!(r#""kind{number}": [7]"#)).collect();
    let document = format!(r#"{{"form": "stafett definitions 1", {}}}"#, unknown.join(","));
    assert_eq!(world.send("POST /v1/definitions", &document).await.0, 400);
}

#[tokio::test]
async fn absent_settings_and_zeros_differ_from_numbers() {
    let world = World::new().await;
    world.send("PUT /v1/queues/q", "{}").await;
    world
        .send(
            "PUT /v1/limits",
            r#"{"namespace": "/", "queues": 9, "topics": 4}"#,
        )
        .await;
    let (_, exported) = world.ask("GET /v1/definitions").await;
    world.send("PATCH /v1/queues/q", r#"{"ttl_ms": 5}"#).await;
    let (_, imported) = world.send("POST /v1/definitions", &exported.to_string()).await;
    assert_eq!(counts(&imported)[3], 1, "{imported}");
    let (_, changed) = world
        .send("POST /v1/definitions?change=true", &exported.to_string())
        .await;
    assert_eq!(counts(&changed)[1], 1, "{changed}");
    assert_eq!(world.ask("GET /v1/definitions").await.1, exported);
    let zero = document(&json!({ "limits": [{ "namespace": "/", "queues": 0, "messages": 0 }] }));
    let (_, changed) = world.send("POST /v1/definitions?change=true", &zero).await;
    assert_eq!(
        changed["items"][0]["differences"].as_array().unwrap().len(),
        2,
        "{changed}"
    );
    let (_, limits) = world.ask("GET /v1/limits").await;
    let expected = json!({ "namespace": "/", "queues": 0, "topics": 4, "messages": 0 });
    assert_eq!(limits["items"][0], expected, "fields that are not named stay");
}

#[tokio::test]
async fn an_administrator_that_could_not_log_in_is_refused_in_every_form() {
    let world = World::new().await;
    world.send("PUT /v1/users/bob", "{}").await;
    for user in [
        json!({ "name": "root", "tags": ["superuser"], "verifiers": {} }),
        json!({ "name": "bob", "tags": ["administrator"] }),
    ] {
        let document = document(&json!({ "users": [user] }));
        let (_, imported) = world.send("POST /v1/definitions?change=true", &document).await;
        assert_eq!(imported["items"][0]["code"], "last_administrator", "{imported}");
    }
    assert!(world.broker.access().directory().is_open());
}

#[tokio::test]
async fn passing_and_lossy_things_are_left_out() {
    let world = World::new().await;
    world.send("PUT /v1/topics/log", "{}").await;
    world.send("PUT /v1/apps/count", r#"{"topics": ["log"]}"#).await;
    world.ask("POST /v1/apps/count/pause").await;
    world.ask("PUT /v1/clients/ann").await;
    world
        .send("PATCH /v1/queues/client.ann", r#"{"ttl_ms": 5}"#)
        .await;
    world.queue("/", "amq.gen-1").await;
    world.send("PUT /v1/exchanges/x", r#"{"kind": "topic"}"#).await;
    let bind = r#"{"source": "x", "to": {"queue": "amq.gen-1"}, "key": "k"}"#;
    let (status, bound) = world.send("POST /v1/bindings", bind).await;
    assert_eq!(status, 201, "{bound}");
    let (_, exported) = world.ask("GET /v1/definitions").await;
    let left = exported["left_out"].as_array().unwrap().iter();
    let kinds: Vec<_> = left.map(|left| left["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["queues", "clients", "bindings", "apps"], "{exported}");
    let other = World::new().await;
    let (_, imported) = other.send("POST /v1/definitions", &exported.to_string()).await;
    assert_eq!(imported["refused"], 0, "{imported}");
}

#[tokio::test]
async fn a_list_is_no_object() {
    let world = World::new().await;
    for (request, body) in [
        ("PUT /v1/users/u", "[null, null]"),
        ("PUT /v1/users/u", r#"{"verifiers": [null, null]}"#),
        ("PUT /v1/namespaces/n", "[null]"),
    ] {
        let (status, refused) = world.send(request, body).await;
        assert_eq!(
            (status.as_u16(), &refused["code"]),
            (400, &json!("bad_request")),
            "{body}"
        );
    }
}
