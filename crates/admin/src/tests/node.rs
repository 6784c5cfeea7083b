//! The node's routes, over a node that takes no commands.

use axum::http::StatusCode;
use serde_json::json;

use super::World;

#[tokio::test]
async fn a_node_shows_itself() {
    let world = World::new().await;
    let (_, node) = world.ask("GET /v1/node").await;
    assert_eq!(node["state"], "ok");
    assert_eq!(node["started_at"], "1970-01-01T00:00:00.000Z");
    assert_eq!(node["epoch"], json!(null), "no journal is open");
    assert_eq!(node["settings_changed"], json!(["durability"]));
    let kafka = json!({
        "protocol": "kafka", "address": "127.0.0.1:9092", "connections": 3, "overload": "backpressure",
    });
    assert_eq!(node["listeners"][0], kafka);
    let (_, nodes) = world.ask("GET /v1/nodes").await;
    let addresses = json!({ "kafka": "127.0.0.1:9092", "http": "127.0.0.1:7070" });
    assert_eq!(
        nodes["items"],
        json!([{ "name": "n1", "state": "ok", "addresses": addresses }])
    );
    let (_, threads) = world.ask("GET /v1/node/threads?log=true").await;
    assert_eq!(threads["threads"][0]["name"], "journal-sync");
    assert_eq!(threads["operations"], 0);
    assert_eq!(threads["queues_stalled"], 0);
    assert_eq!(threads["connections"]["running"], 0, "{threads}");
    assert_eq!(threads["connections"]["waits_for"]["journal"], 0);
    world.queue("/", "q").await;
    let (_, memory) = world.ask("GET /v1/node/memory").await;
    assert_eq!(
        memory["request_memory"],
        json!({ "used_bytes": 1, "max_bytes": 2, "waiting": 0 })
    );
    let queues = &memory["queues"];
    assert_eq!((&queues["count"], &queues["in_flight"]), (&json!(1), &json!(0)));
    assert!(
        queues["state_bytes"].as_u64().is_some_and(|bytes| bytes > 100),
        "{memory}"
    );
    for part in ["kept_bytes", "index_bytes"] {
        assert_eq!(queues[part], 0, "{part}");
    }
    for part in ["groups_bytes", "history_bytes", "other_bytes"] {
        assert!(memory[part].is_u64(), "{part}: {memory}");
    }
    let (_, settings) = world.ask("GET /v1/node/settings?columns=key,source&q=DUR").await;
    let expected = json!([{ "key": "durability", "source": "stafett.toml:7" }]);
    assert_eq!(settings["items"], expected);
}

#[tokio::test]
async fn a_namespace_counts_the_messages_of_its_queues() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.queue("/", name).await;
    }
    for name in ["a", "b", "b"] {
        let (status, _) = world.send(&format!("POST /v1/queues/{name}/messages"), "x").await;
        assert_eq!(status, StatusCode::CREATED);
    }
    world.ask("POST /v1/queues/a/receive").await;
    let (_, one) = world.ask("GET /v1/namespaces/%2F").await;
    let (_, all) = world.ask("GET /v1/namespaces").await;
    for shown in [&one, &all["items"][0]] {
        let counters = &shown["counters"];
        assert_eq!(
            (&counters["published"], &counters["got"], &shown["ready"]),
            (&json!(3), &json!(1), &json!(2)),
            "{shown}"
        );
        assert!(shown["rates"]["published"].is_f64(), "{shown}");
    }
}

#[tokio::test]
async fn a_node_takes_commands() {
    let world = World::new().await;
    let body = r#"{"level": "info,stafett_net=debug", "for_s": 600}"#;
    let (status, level) = world.send("PUT /v1/node/log-level", body).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(level, json!({ "level": "info,stafett_net=debug", "for_s": 600 }));
    let (status, why) = world.ask("POST /v1/node/reload").await;
    assert_eq!((status.as_u16(), &why["code"]), (503, &json!("not_serving")));
    let (status, draining) = world.send("POST /v1/node/shutdown", r#"{"drain_s": 30}"#).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(draining, json!({ "state": "draining", "connections": 6 }));
}
