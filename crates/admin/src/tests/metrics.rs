//! Counters, rates, histories and the overview.

use axum::http::StatusCode;
use serde_json::{Value, json};
use stafett_broker::NodeReading;
use stafett_messaging::Published;
use stafett_model::{Message, Namespace};

use super::World;

impl World {
    /// Takes samples, `step` steps of 5 s after the start.
    fn sweep(&self, step: i64) {
        let wall_ms = 1_795_363_200_000 + step * 5000;
        self.broker.sweep(step * 5000, wall_ms, &NodeReading::default());
    }

    async fn history(&self, query: &str) -> Value {
        let (status, history) = self.ask(&format!("GET /v1/metrics/history?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{query}: {history}");
        history
    }
}

fn series<'a>(history: &'a Value, name: &str) -> Vec<&'a Value> {
    history["series"][name].as_array().unwrap().iter().collect()
}

#[tokio::test]
async fn a_queue_has_counters_rates_and_a_history_of_its_own() {
    let world = World::new().await;
    world.queue("/", "work").await;
    world.queue("/", "idle").await;
    world.sweep(1);
    for _ in 0..10 {
        world.publish("work", b"12345", 0, None).await;
    }
    let (_, received) = world.send("POST /v1/queues/work/receive?count=4", "").await;
    assert_eq!(received["messages"].as_array().unwrap().len(), 4, "{received}");
    world.sweep(2);
    let (_, queue) = world.ask("GET /v1/queues/work").await;
    let counters = &queue["counters"];
    assert_eq!(
        [
            &counters["published"],
            &counters["published_bytes"],
            &counters["got"],
            &counters["completed"]
        ],
        [10, 50, 4, 4]
    );
    assert_eq!(
        [
            &queue["rates"]["published"],
            &queue["rates"]["delivered"],
            &queue["rates"]["completed"]
        ],
        [2.0, 0.8, 0.8]
    );
    assert_eq!(queue["bytes_ready"], 30);
    let (_, sorted) = world
        .ask("GET /v1/queues?sort=-published_rate&columns=name,rates")
        .await;
    assert_eq!(sorted["items"][0]["name"], "work");
    world.sweep(3);
    let (_, queue) = world.ask("GET /v1/queues/work").await;
    assert_eq!(queue["rates"]["published"], 0.0);

    let history = world.history("of=queue:work&from=-20s").await;
    assert_eq!(history["begins"], "2026-11-22T16:00:10.000Z");
    assert_eq!(history["until"], "2026-11-22T16:00:15.000Z");
    assert_eq!(
        series(&history, "ready"),
        [&Value::Null, &Value::Null, &json!(6.0), &json!(6.0)]
    );
    assert_eq!(
        series(&history, "published_rate"),
        [&Value::Null, &Value::Null, &json!(2.0), &json!(0.0)]
    );
    let (_, idle) = world.ask("GET /v1/queues/idle").await;
    assert_eq!(idle["counters"]["published"], 0);
    assert_eq!(
        world.history("of=queue:idle&from=-10s").await["begins"],
        Value::Null
    );
}

#[tokio::test]
async fn a_queue_made_again_under_a_name_has_no_history_of_the_one_before() {
    let world = World::new().await;
    world.queue("/", "work").await;
    world.publish("work", b"one", 0, None).await;
    world.sweep(1);
    assert_eq!(
        world.history("of=queue:work&from=-5s").await["series"]["ready"],
        json!([1.0])
    );
    assert_eq!(
        world.history("of=node&from=-5s&names=ready").await["series"]["ready"],
        json!([1.0])
    );
    world.ask("DELETE /v1/queues/work").await;
    world.queue("/", "work").await;
    world.sweep(2);
    let history = world.history("of=queue:work&from=-10s").await;
    assert_eq!(series(&history, "ready"), [&Value::Null, &Value::Null]);
    let (_, queue) = world.ask("GET /v1/queues/work").await;
    assert_eq!(queue["counters"]["published"], 0);
    // Its messages are no longer in the total.
    assert_eq!(
        world.history("of=node&from=-5s&names=ready").await["series"]["ready"],
        json!([0.0])
    );
}

#[tokio::test]
async fn topics_exchanges_and_groups_have_rates() {
    let world = World::new().await;
    world.send("PUT /v1/topics/orders", r#"{"partitions": 3}"#).await;
    world.sweep(1);
    let json = [("content-type", "application/json")];
    let stored = world.response_to("POST /v1/topics/orders/records?as=list", &json, "[1, 2, 3, 4, 5]");
    assert_eq!(stored.await.status(), StatusCode::OK);
    let read = "GET /v1/topics/orders/partitions/0/records?from=earliest";
    world.ask(read).await;
    world.queue("/", "work").await;
    world.publish("work", b"one", 0, None).await;
    let nowhere = Message {
        routing_key: "nowhere".into(),
        ..Message::default()
    };
    let messaging = world.broker.messaging();
    let published = messaging.publish(&Namespace::default(), "", vec![nowhere.into()]);
    assert_eq!(published.unwrap().await, [Published::Unroutable]);
    world.sweep(2);
    let (_, topic) = world.ask("GET /v1/topics/orders").await;
    assert_eq!(
        (&topic["counters"]["records_in"], &topic["rates"]["records_in"]),
        (&json!(5), &json!(1.0))
    );
    let history = world
        .history("of=topic:orders&names=records_in_rate&from=-5s")
        .await;
    assert_eq!(history["series"], json!({ "records_in_rate": [1.0] }));
    let (_, exchanges) = world.ask("GET /v1/exchanges?columns=name,counters").await;
    let default = exchanges["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "");
    assert_eq!(
        default.unwrap()["counters"],
        json!({ "published": 2, "routed": 1, "unroutable": 1 })
    );
    world
        .send(
            "PUT /v1/groups/g/offsets",
            r#"{"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}"#,
        )
        .await;
    world.sweep(3);
    let history = world.history("of=group:g&from=-5s&names=commits_rate").await;
    assert_eq!(history["series"], json!({ "commits_rate": [0.2] }));
    let (status, text) = world.ask("GET /metrics/groups").await;
    assert_eq!(status, StatusCode::OK);
    let text = text.as_str().unwrap();
    assert!(
        text.contains("stafett_group_commits_total{group=\"g\"} 1\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
    let (_, text) = world.ask("GET /metrics/topics?prefix=ord").await;
    assert!(
        text.as_str()
            .unwrap()
            .contains("stafett_topic_records_in_total{topic=\"orders\"} 5\n")
    );
    let (_, text) = world.ask("GET /metrics/queues?active=0s").await;
    assert!(
        !text.as_str().unwrap().contains('{'),
        "nothing changed in the last sweep"
    );
}

#[tokio::test]
async fn the_lag_of_a_group_has_a_history_also_while_the_group_reads_nothing() {
    let world = World::new().await;
    world.send("PUT /v1/topics/orders", r#"{"partitions": 2}"#).await;
    let json = [("content-type", "application/json")];
    let store = async |records: &str| {
        let path = "POST /v1/topics/orders/records?as=list&partition=1";
        assert_eq!(
            world.response_to(path, &json, records).await.status(),
            StatusCode::OK
        );
    };
    let commit = async |offset: u64| {
        let body = format!(r#"{{"offsets": [{{"topic": "orders", "partition": 1, "offset": {offset}}}]}}"#);
        world.send("PUT /v1/groups/billing/offsets", &body).await;
    };
    store("[1, 2, 3, 4, 5]").await;
    world.sweep(1);
    commit(1).await;
    world.sweep(2);
    store("[6, 7, 8]").await;
    world.sweep(3);
    world.sweep(4);
    commit(8).await;
    world.sweep(5);
    let lags = json!([null, 4.0, 7.0, 7.0, 0.0]);
    let group = world.history("of=group:billing&from=-25s&names=lag").await;
    assert_eq!(group["series"]["lag"], lags);
    store("[9]").await;
    world.sweep(6);
    let node = world.history("of=node&from=-30s&names=lag").await;
    assert_eq!(node["series"]["lag"], json!([0.0, 4.0, 7.0, 7.0, 0.0, 1.0]));
    world.ask("DELETE /v1/groups/billing").await;
    world.sweep(7);
    let node = world.history("of=node&from=-5s&names=lag").await;
    assert_eq!(node["series"]["lag"], json!([0.0]));
}

#[tokio::test]
async fn the_overview_has_totals_rates_and_the_longest_backlogs() {
    let world = World::new().await;
    world.queue("/", "short").await;
    world.queue("/", "long").await;
    for queue in ["short", "long", "long"] {
        world.publish(queue, b"x", 0, None).await;
    }
    world.sweep(1);
    let (status, overview) = world.ask("GET /v1/overview").await;
    assert_eq!(status, StatusCode::OK, "{overview}");
    assert_eq!(
        (&overview["totals"]["queues"], &overview["totals"]["ready"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(
        overview["top"]["queues"][0],
        json!({ "namespace": "/", "name": "long", "ready": 2 })
    );
    for _ in 0..5 {
        world.publish("short", b"x", 0, None).await;
    }
    world.queue("/", "long").await;
    world.queue("/", "third").await;
    world.sweep(2);
    let (_, overview) = world.ask("GET /v1/overview").await;
    assert_eq!(overview["node"], "n1");
    assert_eq!(overview["rates"]["queues_declared"], 0.4, "2 within 5 s");
    assert_eq!(overview["rates"]["queues_created"], 0.2);
    assert_eq!(overview["rates"]["queues_deleted"], 0.0);
    assert_eq!(overview["rates"]["published"], 1.0);
    assert_eq!(overview["top"]["queues"][0]["name"], "short");
}

#[tokio::test]
async fn wrong_and_huge_requests_for_histories_are_refused_or_bounded() {
    let world = World::new().await;
    world.queue("/", "work").await;
    for (query, status) in [
        ("", 400),
        ("of=", 400),
        ("of=queue", 404),
        ("of=queue:none", 404),
        ("of=topic:none", 404),
        ("of=exchange:none", 404),
        ("of=group:none", 404),
        ("of=node:x", 400),
        ("of=disk:x", 400),
        ("of=node&step=2h", 400),
        ("of=node&step=x", 400),
        ("of=node&from=yesterday", 400),
        ("of=node&names=none", 400),
        ("of=node&other=1", 400),
        ("of=node&from=-18446744073709551615h", 400),
        ("of=node&from=-1000000h", 200),
        ("of=node&from=0001-01-01T00:00:00Z", 200),
        ("of=node&from=9999-01-01T00:00:00Z&step=1h", 200),
        ("of=queue:work&step=1ms", 200),
    ] {
        let (found, answer) = world.ask(&format!("GET /v1/metrics/history?{query}")).await;
        assert_eq!(found.as_u16(), status, "{query}: {answer}");
    }
    let history = world.history("of=node&from=-1000000h&step=1s").await;
    assert_eq!(series(&history, "ready").len(), 720);
    let many = |count: usize| vec!["of=queue:work"; count].join("&");
    let histories = world
        .history(&format!("{}&names=ready&step=1h&of=queue:none", many(199)))
        .await;
    assert_eq!(histories.as_array().unwrap().len(), 200);
    assert_eq!(histories[199]["missing"], true);
    let (status, _) = world.ask(&format!("GET /v1/metrics/history?{}", many(201))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for (query, status) in [
        ("count=100001", 400),
        ("active=2h", 400),
        ("q=x", 400),
        ("count=0", 200),
    ] {
        let (found, _) = world.ask(&format!("GET /metrics/queues?{query}")).await;
        assert_eq!(found.as_u16(), status, "{query}");
    }
}

#[tokio::test]
async fn clocks_that_jump_move_times_of_samples_and_no_counts() {
    let world = World::new().await;
    world.queue("/", "work").await;
    world.sweep(1);
    for (steady, wall) in [
        (10_000, 5_000),
        (15_000, -9_000_000_000_000),
        (15_000, i64::MAX),
        (600_000, 0),
    ] {
        world.publish("work", b"x", 0, None).await;
        world.broker.sweep(steady, wall, &NodeReading::default());
        let history = world.history("of=queue:work&of=node").await;
        assert_eq!(history.as_array().unwrap().len(), 2);
    }
    let queue = world
        .broker
        .messaging()
        .queues()
        .get(&Namespace::default(), "work");
    let samples = queue.unwrap().timeline().samples(2, 1, 720);
    let sum: u64 = samples.iter().map(|sample| sample.increase).sum();
    assert_eq!((samples[0].value, sum), (4, 4));
}

#[tokio::test]
async fn names_of_series_are_those_of_histories() {
    let world = World::new().await;
    for kind in ["node", "queue", "topic", "exchange", "group"] {
        let (status, names) = world.ask(&format!("GET /v1/metrics/names?of={kind}")).await;
        assert_eq!(status, StatusCode::OK);
        assert!(!names["items"].as_array().unwrap().is_empty());
    }
    let (_, names) = world.ask("GET /v1/metrics/names").await;
    let history = world.history("of=node&from=-5s").await;
    for item in names["items"].as_array().unwrap() {
        assert!(
            history["series"].get(item["name"].as_str().unwrap()).is_some(),
            "{item}"
        );
    }
}
