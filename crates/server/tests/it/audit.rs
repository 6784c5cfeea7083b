//! The audit: actions and refusals, with their callers and addresses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Running, serve};
use crate::rights::Closed;

/// Returns the entries that a query chooses, once there is one.
fn entries(closed: &Closed, query: &str) -> Vec<Value> {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let (status, _, said) = closed.ask(&format!("GET /v1/audit?{query}"), Some("root"), "");
        assert_eq!(status, 200, "{said}");
        let answer: Value = serde_json::from_str(&said).unwrap();
        let items = answer.get("items").and_then(Value::as_array).unwrap().clone();
        if !items.is_empty() {
            return items;
        }
        assert!(Instant::now() < until, "there is no entry of {query}");
        std::thread::yield_now();
    }
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or("-")
}

#[test]
fn what_is_done_and_what_is_refused_is_stored_with_its_user_and_survives_a_restart() {
    let closed = Closed::start();
    let made = closed.ask("PUT /v1/topics/orders", Some("root"), "{}");
    assert_eq!(made.0, 201, "{made:?}");
    assert_eq!(closed.ask("PUT /v1/topics/orders", Some("eve"), "{}").0, 403);
    assert_eq!(closed.ask("GET /v1/whoami", Some("nobody"), "").0, 401);
    let read = r#"{"who": "user:eve", "actions": ["read"], "on": ["topic"], "name": "orders"}"#;
    closed.permit(read);
    for (query, expected) in [
        (
            "action=topic.made",
            ["root", "topic.made", "done", "topic", "orders"],
        ),
        (
            "by=eve&result=refused",
            ["eve", "topic.create", "refused", "topic", "orders"],
        ),
        (
            "action=login&result=refused",
            ["nobody", "login", "refused", "-", "-"],
        ),
        ("action=login&by=eve", ["eve", "login", "done", "-", "-"]),
        ("action=user&on=eve", ["root", "user.set", "done", "user", "eve"]),
        ("action=rule.set", ["root", "rule.set", "done", "-", "-"]),
    ] {
        let found = entries(&closed, query);
        let entry = found.last().unwrap();
        let fields = ["by", "action", "result", "kind", "name"].map(|field| text(entry, field));
        assert_eq!(fields, expected, "{query}: {entry}");
        assert_eq!(text(entry, "from"), "127.0.0.1", "{entry}");
    }
    // Each page goes on where the one before ended.
    let all = entries(&closed, "count=1000");
    let ids = |items: &[Value]| {
        items
            .iter()
            .map(|one| text(one, "id").to_owned())
            .collect::<Vec<_>>()
    };
    let (mut paged, mut after) = (Vec::new(), text(&all[0], "id").to_owned());
    loop {
        let path = format!("GET /v1/audit?count=2&after={after}");
        let answer: Value = serde_json::from_str(&closed.ask(&path, Some("root"), "").2).unwrap();
        paged.extend(ids(answer["items"].as_array().unwrap()));
        match answer["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(paged, ids(&all)[1..]);
    let Closed { running, folder, .. } = closed;
    running.signal(Signal::TERM);
    let (_, _, log) = running.end();
    assert!(log.contains("login refused") && !log.contains("pw-"), "{log}");
    let stored = serde_json::to_string(&all).unwrap();
    assert!(!stored.contains("pw-"), "{stored}");
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let closed = Closed {
        running,
        http,
        folder,
    };
    assert_eq!(entries(&closed, "action=topic.made").len(), 1);
}

#[test]
fn the_audit_is_read_by_a_right_of_its_own_and_written_by_the_broker_alone() {
    let closed = Closed::start();
    entries(&closed, "");
    for request in ["GET /v1/audit", "GET /v1/topics/stafett.audit/records"] {
        let (status, _, said) = closed.ask(request, Some("eve"), "");
        assert!(status == 403 || status == 404, "{request}: {said}");
    }
    let all = r#"{"who": "user:eve", "actions": ["all"], "on": ["topic"], "name": "stafett.audit"}"#;
    closed.permit(all);
    let (status, _, said) = closed.ask("GET /v1/audit?by=root", Some("eve"), "");
    assert_eq!(status, 200, "{said}");
    for (request, body) in [
        (
            "POST /v1/topics/stafett.audit/records?as=record",
            r#"{"value": "forged"}"#,
        ),
        ("POST /v1/topics/stafett.audit/truncate", r#"{"to": "latest"}"#),
        ("DELETE /v1/topics/stafett.audit", ""),
    ] {
        let (status, _, said) = closed.ask(request, Some("eve"), body);
        assert!((400..500).contains(&status), "{request}: {status} {said}");
    }
    // No exchange leads to it either, whatever the rights.
    let binding = r##"{"source": "amq.topic", "to": {"topic": "stafett.audit"}, "key": "#"}"##;
    let (status, _, said) = closed.ask("POST /v1/bindings", Some("root"), binding);
    assert_eq!(status, 404, "{said}");
    let by_key = r#"{"routing_key": "stafett.audit", "content": "forged"}"#;
    let (status, _, said) = closed.ask("POST /v1/exchanges/amq.default/publish", Some("root"), by_key);
    assert!((400..500).contains(&status), "{said}");
    for query in ["result=x", "since=x", "after=x", "count=x"] {
        let (status, _, said) = closed.ask(&format!("GET /v1/audit?{query}"), Some("eve"), "");
        assert_eq!(status, 400, "{query}: {said}");
    }
    let (_, _, metrics) = closed.ask("GET /metrics", Some("root"), "");
    assert!(
        metrics.contains("stafett_audit_entries_dropped_total 0"),
        "{metrics}"
    );
}
