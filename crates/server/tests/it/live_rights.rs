//! Live topics under rules by name and by operation, and under quotas.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::common::connect;
use crate::rights::{Closed, basic};
use crate::sockets::Socket;

fn command(name: &str, client: &str, more: &Value) -> Value {
    let mut command = json!({"command": name, "client_id": client});
    let fields = command.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    command
}

fn error(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_default()
}

fn publish(closed: &Closed, user: &str, topic: &str) -> (u16, String) {
    let message = json!({"topic": topic, "payload": 1}).to_string();
    let (status, _, said) = closed.ask("POST /live/publish", Some(user), &message);
    let (again, _, _) = closed.ask("POST /v1/live/publish", Some(user), &message);
    assert_eq!(status, again, "{topic}: {said}");
    (status, said)
}

fn with_rules() -> Closed {
    let closed = Closed::start();
    for rule in [
        r#"{"who": "user:eve", "actions": ["read"], "on": ["live_topic"], "prefix": "news/"}"#,
        r#"{"who": "user:eve", "actions": ["write"], "on": ["live_topic"], "name": "talk"}"#,
        r#"{"who": "user:eve", "actions": ["read"], "on": ["live_topic"], "pattern": "^room-[0-9]+$"}"#,
        r#"{"who": "user:eve", "deny": true, "actions": ["read"], "on": ["live_topic"], "name": "news/secret"}"#,
    ] {
        closed.permit(rule);
    }
    closed
}

#[test]
fn live_topics_have_rules_by_name_and_operation() {
    let closed = with_rules();
    let mut eve = Socket::live(closed.http, &basic("eve"));
    assert_eq!(eve.ask(&command("listen", "e", &json!({})))["result"], "success");
    for (topics, refused) in [
        (json!("news/a"), false),
        (json!("room-7"), false),
        (json!("room-x"), true),
        (json!("talk"), true),
        (json!(["news/a", "other"]), true),
        (json!("news/secret"), true),
        (json!(""), true),
    ] {
        let answer = eve.ask(&command("subscribe", "e", &json!({"topic": topics})));
        assert_eq!(error(&answer) == "forbidden", refused, "{topics}: {answer}");
        let from = json!({"topic": topics, "from": "earliest"});
        let answer = eve.ask(&command("subscribe", "e", &from));
        assert_eq!(error(&answer) == "forbidden", refused, "{topics}: {answer}");
    }
    // The refused lists changed nothing.
    let listed = eve.ask(&command("list", "e", &json!({})));
    let mut topics: Vec<_> = listed["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::as_str)
        .collect();
    topics.sort_unstable();
    assert_eq!(topics, [Some("news/a"), Some("room-7")], "{listed}");
    for (topic, refused) in [("talk", false), ("news/a", true), ("talks", true)] {
        let message = json!({"topic": topic, "payload": 1, "ack": true});
        let answer = eve.ask(&command("publish", "e", &message));
        assert_eq!(error(&answer) == "forbidden", refused, "{topic}: {answer}");
        let (status, said) = publish(&closed, "eve", topic);
        assert_eq!(status == 403, refused, "{topic}: {said}");
    }
    let several = json!({"messages": [{"topic": "talk", "payload": 1}, {"topic": "x", "payload": 1}]});
    let answer = eve.ask(&command("publish", "e", &several));
    assert_eq!(error(&answer), "forbidden", "{answer}");
    assert!(answer["info"].as_str().unwrap().contains("write"), "{answer}");
    // Presence shows what may be seen.
    let mut root = Socket::live(closed.http, &basic("root"));
    let hidden = command("subscribe", "r", &json!({"topic": ["hidden", "news/a"]}));
    assert_eq!(root.ask(&hidden)["result"], "success");
    let shown = eve.ask(&command("presence", "e", &json!({"of": "topics"})));
    assert!(
        shown.to_string().contains("news/a") && !shown.to_string().contains("hidden"),
        "{shown}"
    );
    for (of, refused) in [
        (json!({"topic": "news/a"}), false),
        (json!({"topic": "hidden"}), true),
        (json!({"of": "clients"}), true),
    ] {
        let answer = eve.ask(&command("presence", "e", &of));
        assert_eq!(error(&answer) == "forbidden", refused, "{of}: {answer}");
    }
    for (request, status) in [
        ("GET /live/presence?of=topics", 200),
        ("GET /live/presence?topic=hidden", 403),
        ("GET /live/events?client_id=e&topic=hidden", 403),
        ("GET /live/subscriptions?client_id=r", 200),
    ] {
        let (found, _, said) = closed.ask(request, Some("eve"), "");
        assert_eq!(found, status, "{request}: {said}");
        assert!(found != 200 || !said.contains("hidden"), "{request}: {said}");
    }
}

#[test]
fn patterns_and_subscriptions_of_others_bring_what_may_be_read_and_a_change_acts_at_once() {
    let closed = with_rules();
    let mut root = Socket::live(closed.http, &basic("root"));
    let of_root = command("subscribe", "e", &json!({"topic": "made-by-root"}));
    assert_eq!(root.ask(&of_root)["result"], "success");
    let mut eve = Socket::live(closed.http, &basic("eve"));
    eve.ask(&command("listen", "e", &json!({})));
    let all = eve.ask(&command("subscribe", "e", &json!({"pattern": "*"})));
    assert_eq!(all["result"], "success", "{all}");
    let send = |topics: &[&str]| {
        for topic in topics {
            assert_eq!(publish(&closed, "root", topic).0, 200);
        }
    };
    let next = |eve: &mut Socket| {
        // Each was published by two routes.
        let both = [eve.read().unwrap(), eve.read().unwrap()];
        assert_eq!(both[0], both[1]);
        both[0]["key"].as_str().unwrap().to_owned()
    };
    send(&["made-by-root", "news/secret", "other", "news/a"]);
    assert_eq!(next(&mut eve), "news/a");
    closed.permit(
        r#"{"who": "everyone", "deny": true, "actions": ["read"], "on": ["live_topic"], "prefix": "news"}"#,
    );
    send(&["news/a", "room-1"]);
    assert_eq!(next(&mut eve), "room-1");
    // One name that stands for all, as rules on live topics were before.
    closed.permit(r#"{"who": "user:eve", "actions": ["read"], "on": ["live_topic"], "name": ""}"#);
    send(&["news/a", "made-by-root"]);
    assert_eq!(next(&mut eve), "made-by-root");
    let (_, _, metrics) = closed.ask("GET /metrics", Some("root"), "");
    assert!(metrics.contains("stafett_live_withheld_total 10"), "{metrics}");
    // With the last right the connection goes.
    closed.permit(
        r#"{"who": "user:eve", "deny": true, "actions": ["all"], "on": ["live_topic"], "prefix": ""}"#,
    );
    assert_eq!(eve.read(), None);
    assert_eq!(publish(&closed, "eve", "talk").0, 403);
}

#[test]
fn a_stream_of_events_brings_what_may_be_read() {
    let closed = with_rules();
    let mut stream = connect(closed.http);
    let (host, login) = (closed.http, basic("eve"));
    write!(
        stream,
        "GET /live/events?client_id=e&topic=news/a&pattern=* HTTP/1.1\r\nhost: {host}\r\n{login}\r\n\r\n"
    )
    .unwrap();
    let mut events = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(events.any(|line| line == ": listening"));
    for topic in ["news/secret", "other", "news/a"] {
        assert_eq!(publish(&closed, "root", topic).0, 200);
    }
    let first = events.find(|line| line.starts_with("data: ")).unwrap();
    assert!(first.contains("news/a"), "{first}");
}

#[test]
fn live_topics_come_out_of_the_quota() {
    let closed = Closed::start();
    let set = |rates: &str| {
        let quota = format!(r#"{{"user": "root"{rates}}}"#);
        assert_eq!(closed.ask("PUT /v1/quotas", Some("root"), &quota).0, 200);
    };
    let mut root = Socket::live(closed.http, &basic("root"));
    let message = command(
        "publish",
        "r",
        &json!({"topic": "t", "payload": "0123456789", "ack": true}),
    );
    set(r#", "produced_bytes_per_second": 0.1"#);
    assert_eq!(root.ask(&message)["result"], "success");
    let answer = root.ask(&message);
    assert_eq!(error(&answer), "over_quota", "{answer}");
    assert_eq!(root.ask(&command("ping", "r", &json!({})))["result"], "success");
    for route in ["POST /live/publish", "POST /v1/live/publish"] {
        let (status, head, said) = closed.ask(route, Some("root"), r#"{"topic": "t", "payload": 1}"#);
        assert_eq!(status, 429, "{route}: {said}");
        assert!(head.contains("retry-after: "), "{head}");
    }
    set(r#", "requests_per_second": 0.01"#);
    assert_eq!(root.ask(&command("ping", "r", &json!({})))["result"], "success");
    assert_eq!(error(&root.ask(&command("ping", "r", &json!({})))), "over_quota");
    set("");
    // Pushed messages make a debt, and nothing is refused for it.
    set(r#", "fetched_bytes_per_second": 0.1"#);
    root.ask(&command("listen", "r", &json!({})));
    root.ask(&command("subscribe", "r", &json!({"topic": "t"})));
    assert_eq!(publish(&closed, "root", "t").0, 200);
    assert_eq!(root.read().unwrap()["key"], "t");
    let (status, _, said) = closed.ask("GET /live/events?client_id=s&topic=t", Some("root"), "");
    assert_eq!(status, 429, "{said}");
}

#[test]
fn websockets_count_against_the_connections_of_a_user() {
    let closed = with_rules();
    let limit = r#"{"user": "eve", "connections": 1}"#;
    let (status, _, said) = closed.ask("PUT /v1/limits", Some("root"), limit);
    assert_eq!(status, 200, "{said}");
    let first = Socket::live(closed.http, &basic("eve"));
    let refused = Socket::head_of_live(closed.http, &basic("eve"));
    assert!(refused.starts_with("http/1.1 409"), "{refused}");
    // Requests without a connection of their own go on.
    assert_eq!(closed.ask("GET /v1/whoami", Some("eve"), "").0, 200);
    drop(first);
    while !Socket::head_of_live(closed.http, &basic("eve")).starts_with("http/1.1 101") {}
}
