//! RabbitMQ's management HTTP API: credentials, hostile input, lists of many, a journal that refuses.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stafett_amqp::{Amqp, AmqpSettings, ManagedNode, Management, NodeFacts};
use stafett_broker::{Broker, BrokerSettings};
use stafett_http::Access;
use stafett_journal::ManualJournal;
use tower::ServiceExt;

#[derive(Debug)]
struct TestNode;

impl ManagedNode for TestNode {
    fn facts(&self) -> NodeFacts {
        NodeFacts {
            is_serving: true,
            ..NodeFacts::default()
        }
    }
}

struct Api {
    journal: Arc<ManualJournal>,
    management: Management,
    router: Router,
}

impl Api {
    async fn start() -> Self {
        let journal = Arc::new(ManualJournal::default());
        let broker = Broker::start(journal.clone(), BrokerSettings::default())
            .await
            .unwrap();
        let amqp = Amqp::new(
            Arc::new(broker),
            AmqpSettings::default(),
            &mut Registry::default(),
        );
        let management = Management::new(Arc::new(TestNode), Arc::default());
        amqp.open_management(&management);
        Self {
            journal,
            router: management.router(Access::default()),
            management,
        }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        self.send(request(
            method,
            path,
            &[("authorization", &basic("guest:guest"))],
            body.into(),
        ))
        .await
    }
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", "application/json");
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "127.0.0.1:15672");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

#[tokio::test]
async fn every_request_needs_the_credentials_of_the_only_user_and_no_page_of_another_site_may_ask() {
    let api = Api::start().await;
    let guest = basic("guest:guest");
    for (headers, expected) in [
        (&[("authorization", &*guest)][..], 200),
        (&[], 401),
        (&[("authorization", &basic("guest:"))], 401),
        (&[("authorization", &basic("ann:guest"))], 401),
        (&[("authorization", "Bearer x")], 401),
        (&[("authorization", "Basic x")], 400),
        (
            &[("authorization", &guest), ("sec-fetch-site", "cross-site")],
            403,
        ),
        (
            &[("authorization", &guest), ("origin", "http://evil.example")],
            403,
        ),
        (
            &[("authorization", &guest), ("origin", "http://127.0.0.1:15672")],
            200,
        ),
        // The password of guest is known to everybody, a page under a name of its own among them.
        (&[("authorization", &guest), ("host", "evil.example")], 403),
    ] {
        for path in ["/api/overview", "/api/queues/%2F"] {
            let (status, _) = api.send(request("GET", path, headers, Body::empty())).await;
            assert_eq!(status, expected, "{headers:?}");
        }
    }
    api.management.close();
    let (status, _) = api.ask("GET", "/api/overview", "").await;
    assert_eq!(status, 503);
}

#[tokio::test]
async fn every_statistic_is_a_number() {
    let api = Api::start().await;
    api.ask("PUT", "/api/queues/%2F/q", r#"{"durable": true}"#).await;
    for path in [
        "/api/overview",
        "/api/queues",
        "/api/nodes",
        "/api/vhosts",
        "/api/exchanges",
    ] {
        let (_, answer) = api.ask("GET", path, "").await;
        let object = answer.get(0).unwrap_or(&answer);
        check_numbers(path, object);
    }
    let (_, overview) = api.ask("GET", "/api/overview", "").await;
    for totals in ["queue_totals", "object_totals", "message_stats", "churn_rates"] {
        assert!(!overview[totals].as_object().unwrap().is_empty(), "{totals}");
    }
    assert_eq!(overview["object_totals"]["queues"], json!(1));
}

#[tokio::test]
async fn tools_find_the_fields_that_they_read() {
    let api = Api::start().await;
    api.ask("PUT", "/api/queues/%2F/q", r#"{"durable": true}"#).await;
    for (path, fields) in [
        // rabbitmqadmin 2, Telegraf, Nagios
        (
            "/api/overview",
            "cluster_name node erlang_version rabbitmq_version product_name product_version listeners exchange_types \
             statistics_db_event_queue churn_rates.channel_created_details.rate queue_totals.messages_ready_details.rate \
             object_totals.consumers message_stats.return_unroutable_details.rate management_version rates_mode",
        ),
        // exporters, rabbitmqadmin 2
        (
            "/api/nodes",
            "0.name 0.type 0.running 0.uptime 0.run_queue 0.processors 0.os_pid 0.fd_used 0.fd_total 0.sockets_used \
             0.sockets_total 0.proc_used 0.proc_total 0.mem_used 0.mem_limit 0.mem_alarm 0.disk_free 0.disk_free_limit \
             0.disk_free_alarm 0.rates_mode 0.enabled_plugins 0.applications 0.being_drained 0.partitions",
        ),
        ("/api/nodes/stafett@localhost/memory", "memory"),
        (
            "/api/vhosts",
            "0.name 0.tracing 0.tags 0.metadata.tags 0.default_queue_type 0.messages_unacknowledged",
        ),
        // KEDA, and the list of Flower, which leaves the virtual host out
        (
            "/api/queues/%2F/q",
            "messages messages_ready messages_unacknowledged message_stats.publish_details.rate \
             message_stats.deliver_get_details.rate consumer_details deliveries incoming type arguments.x-queue-type",
        ),
        (
            "/api/queues?page=1&use_regex=true&pagination=false&name=%5Eq&page_size=100",
            "page_count items.0.messages items.0.message_stats.publish_details.rate",
        ),
        (
            "/api/queues//",
            "0.name 0.messages 0.consumers 0.state 0.memory 0.message_bytes_ram",
        ),
        (
            "/api/exchanges",
            "0.message_stats.publish_in 0.message_stats.publish_out_details.rate 0.internal",
        ),
        (
            "/api/bindings",
            "0.source 0.destination_type 0.properties_key 0.arguments 0.vhost",
        ),
    ] {
        let (status, answer) = api.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}");
        for field in fields.split_whitespace() {
            let pointer = format!("/{}", field.replace('.', "/"));
            assert!(answer.pointer(&pointer).is_some(), "{path} {field}");
        }
    }
    let (_, bare) = api.ask("GET", "/api/queues?disable_stats=true", "").await;
    assert!(bare[0].get("messages").is_none() && bare[0].get("name").is_some());
    let (_, totals) = api
        .ask(
            "GET",
            "/api/queues?disable_stats=true&enable_queue_totals=true",
            "",
        )
        .await;
    assert!(totals[0].get("messages").is_some() && totals[0].get("message_stats").is_none());
}

/// Checks that each number has its rate, and that both are numbers.
fn check_numbers(path: &str, object: &Value) {
    for (name, value) in object.as_object().unwrap() {
        if let Some(counted) = name
            .strip_suffix("_details")
            .filter(|name| object.get(name).is_some())
        {
            assert!(object[counted].is_u64(), "{path} {counted}");
            assert!(value["rate"].is_f64(), "{path} {name}");
        }
        if name == "message_stats" || name == "queue_totals" {
            check_numbers(path, value);
        }
    }
}

/// Pseudorandom numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.get(self.roll(choices.len())).unwrap()
    }
}

const SEGMENTS: [&str; 30] = [
    "queues",
    "exchanges",
    "bindings",
    "vhosts",
    "definitions",
    "get",
    "publish",
    "contents",
    "bindings",
    "e",
    "q",
    "%2F",
    "nowhere",
    "amq.default",
    "amq.topic",
    "a%20b",
    "%00",
    "%ff",
    "%",
    "~",
    "",
    "users",
    "policies",
    "health",
    "checks",
    "source",
    "nodes",
    "overview",
    "%E2%98%83",
    "..",
];
const KEYS: [&str; 18] = [
    "durable",
    "auto_delete",
    "arguments",
    "type",
    "routing_key",
    "payload",
    "payload_encoding",
    "properties",
    "ackmode",
    "count",
    "encoding",
    "truncate",
    "queues",
    "exchanges",
    "bindings",
    "vhosts",
    "name",
    "vhost",
];
const VALUES: [&str; 22] = [
    "true",
    "\"true\"",
    "null",
    "[]",
    "{}",
    "7",
    "-1",
    "1e300",
    "1.5",
    "\"\"",
    "\"/\"",
    "\"q\"",
    "\"string\"",
    "\"base64\"",
    "\"auto\"",
    "\"ack_requeue_true\"",
    "\"topic\"",
    "{\"x-max-length\": -1}",
    "[{\"name\": \"q\", \"vhost\": \"/\"}]",
    "[7]",
    "\"\\u0000\\n\"",
    "{\"headers\": {\"a\": [null]}}",
];

#[tokio::test]
async fn no_request_is_answered_with_an_error_of_the_server() {
    let api = Api::start().await;
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut statuses = std::collections::BTreeMap::new();
    for _ in 0..6000 {
        let mut path = String::from("/api");
        for _ in 0..=dice.roll(6) {
            path.push('/');
            path.push_str(dice.pick(&SEGMENTS));
        }
        if dice.roll(3) == 0 {
            let key = dice.pick(&[
                "page",
                "page_size",
                "name",
                "sort",
                "columns",
                "use_regex",
                "%zz",
                "if-empty",
            ]);
            let value = dice.pick(&[
                "1",
                "-1",
                "true",
                "x.y,,",
                "%5B",
                "99999999999999999999999999999999999999999",
                "",
            ]);
            path = format!("{path}?page=1&{key}={value}");
        }
        let fields: Vec<String> = (0..dice.roll(6))
            .map(|_| format!("\"{}\": {}", dice.pick(&KEYS), dice.pick(&VALUES)))
            .collect();
        let body = match dice.roll(8) {
            0 => String::new(),
            1 => dice.pick(&VALUES).to_owned(),
            2 => "{\"a\":".repeat(200),
            _ => format!("{{{}}}", fields.join(", ")),
        };
        let method = dice.pick(&[
            "GET", "PUT", "POST", "DELETE", "GET", "PUT", "POST", "PATCH", "OPTIONS",
        ]);
        let (status, answer) = api.ask(method, &path, body.clone()).await;
        assert!(
            !status.is_server_error(),
            "{method} {path} {body}: {status} {answer}"
        );
        *statuses.entry(status.as_u16()).or_insert(0) += 1;
    }
    for status in [200, 201, 204, 400, 404, 405] {
        assert!(
            statuses.contains_key(&status),
            "{status} did not come: {statuses:?}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let api = Api::start().await;
    let (status, _) = api.ask("PUT", "/api/queues/%2F/q", " ".repeat(30_000_000)).await;
    assert_eq!(status, 413);
    let (status, answer) = api.ask("PUT", "/api/queues/%2F/q", "[".repeat(1_000_000)).await;
    assert_eq!((status.as_u16(), &answer["reason"]), (400, &json!("not_json")));
}

#[tokio::test]
async fn each_of_many_queues_is_in_one_page_of_any_order() {
    let api = Api::start().await;
    for number in 0..250 {
        let path = format!("/api/queues/%2F/q{number:03}");
        assert_eq!(api.ask("PUT", &path, "").await.0, 201);
    }
    for sort in [
        "name",
        "messages",
        "nothing",
        "message_stats.publish_details.rate",
    ] {
        let mut names = Vec::new();
        for page in 1..=3 {
            let path = format!("/api/queues?page={page}&page_size=100&sort={sort}&sort_reverse=true");
            let (_, answer) = api.ask("GET", &path, "").await;
            let items = answer["items"].as_array().unwrap();
            names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        }
        assert_eq!(names.first().map(String::as_str), Some("q249"), "{sort}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 250, "{sort}");
    }
}

#[tokio::test]
async fn what_the_journal_refuses_is_unavailable() {
    let api = Api::start().await;
    api.ask("PUT", "/api/queues/%2F/q", r#"{"durable": true}"#).await;
    api.journal.set_used_up(true);
    for (method, path, body) in [
        ("PUT", "/api/queues/%2F/new", r#"{"durable": true}"#),
        (
            "PUT",
            "/api/exchanges/%2F/new",
            r#"{"type": "topic", "durable": true}"#,
        ),
        ("PUT", "/api/vhosts/new", ""),
        ("POST", "/api/bindings/%2F/e/amq.topic/q/q", "{}"),
    ] {
        let (status, answer) = api.ask(method, path, body).await;
        assert_eq!(status, 503, "{path} {answer}");
        assert_eq!(answer["error"], json!("service_unavailable"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_publication_waits_for_space_for_a_while() {
    let api = Api::start().await;
    api.ask("PUT", "/api/queues/%2F/q", r#"{"durable": true}"#).await;
    api.journal.set_space_short(true);
    let message = r#"{"routing_key": "q", "properties": {}, "payload": "x", "payload_encoding": "string"}"#;
    let (status, _) = api
        .ask("POST", "/api/exchanges/%2F/amq.default/publish", message)
        .await;
    assert_eq!(status, 503);
    let (status, alarms) = api.ask("GET", "/api/health/checks/alarms", "").await;
    assert_eq!((status.as_u16(), &alarms["status"]), (503, &json!("failed")));
    api.journal.set_space_short(false);
    let (status, _) = api
        .ask("POST", "/api/exchanges/%2F/amq.default/publish", message)
        .await;
    assert_eq!(status, 200);
    let (_, queue) = api.ask("GET", "/api/queues/%2F/q?columns=messages", "").await;
    assert_eq!(queue, json!({ "messages": 1 }));
}

#[tokio::test]
async fn a_column_shows_what_the_whole_list_has_there() {
    let api = Api::start().await;
    api.ask(
        "PUT",
        "/api/queues/%2F/q",
        r#"{"durable": true, "arguments": {"x-max-length": 7}}"#,
    )
    .await;
    let message = r#"{"routing_key": "q", "properties": {}, "payload": "x", "payload_encoding": "string"}"#;
    api.ask("POST", "/api/exchanges/%2F/amq.default/publish", message)
        .await;
    for list in ["/api/queues", "/api/exchanges"] {
        let (_, whole) = api.ask("GET", list, "").await;
        let first = whole[0].as_object().unwrap();
        assert!(first.contains_key("message_stats"));
        for (field, value) in first {
            let (_, alone) = api.ask("GET", &format!("{list}?columns={field}"), "").await;
            assert_eq!(alone[0], json!({ field: value }), "{list} {field}");
        }
    }
    // The order may depend on a field that no column shows.
    api.ask("PUT", "/api/queues/%2F/a", "{}").await;
    for sort in ["messages", "message_stats.publish", "message_bytes"] {
        let path = format!("/api/queues?columns=name&sort={sort}&sort_reverse=true");
        let (_, sorted) = api.ask("GET", &path, "").await;
        assert_eq!(sorted, json!([{ "name": "q" }, { "name": "a" }]), "{sort}");
    }
}
