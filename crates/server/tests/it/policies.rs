//! Policies of queues and limits of namespaces, over HTTP and on the command line.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Folder, Running, serve};
use crate::refusals::ask;
use crate::rights::Closed;

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn code(said: &str) -> String {
    value(said)["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn policies_are_made_and_shown_by_those_with_the_right() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/queues/tmp.a", Some("root"), "{}").0, 201);
    let short = r#"{"pattern": "^tmp", "priority": 3, "settings": {"length_max": 3, "delivery_limit": -1}}"#;
    let put = "PUT /v1/policies/short";
    assert_eq!(closed.ask(put, Some("eve"), short).0, 403);
    assert_eq!(closed.ask("GET /v1/policies", Some("eve"), "").0, 403);
    assert_eq!(closed.ask(put, Some("root"), short).0, 201);
    let (status, _, said) = closed.ask(put, Some("root"), short);
    let expected = json!({
        "name": "short", "namespace": "/", "pattern": "^tmp", "priority": 3, "queues": "all",
        "settings": { "length_max": 3, "delivery_limit": -1 },
    });
    assert_eq!((status, value(&said)), (200, expected.clone()));
    let (_, _, said) = closed.ask("GET /v1/policies/short", Some("root"), "");
    assert_eq!(value(&said), expected);
    let (_, _, queue) = closed.ask("GET /v1/queues/tmp.a", Some("root"), "");
    assert_eq!(value(&queue)["length_max"], 3, "{queue}");
    let (_, _, queue) = closed.ask("GET /api/queues/%2F/tmp.a", Some("root"), "");
    let queue = value(&queue);
    let definition = json!({"max-length": 3, "delivery-limit": -1});
    assert_eq!(
        (&queue["policy"], &queue["effective_policy_definition"]),
        (&json!("short"), &definition)
    );
    let bound = r#"{"pattern": "", "settings": {"length_max": 2}}"#;
    assert_eq!(
        closed
            .ask("PUT /v1/policies/bound?operator=true", Some("root"), bound)
            .0,
        201
    );
    let (_, _, queue) = closed.ask("GET /v1/queues/tmp.a", Some("root"), "");
    assert_eq!(value(&queue)["length_max"], 2, "{queue}");
    let (_, _, listed) = closed.ask("GET /v1/policies?operator=true", Some("root"), "");
    assert_eq!(value(&listed)["matched"], 1, "{listed}");
    wrong_policies_are_refused(&closed, put, bound);
    assert_eq!(closed.ask("DELETE /v1/policies/short", Some("root"), "").0, 200);
    let (_, _, events) = closed.ask("GET /v1/events?count=100", Some("root"), "");
    for kind in ["policy.made", "policy.changed", "policy.deleted"] {
        assert!(events.contains(kind), "{kind}: {events}");
    }
}

fn wrong_policies_are_refused(closed: &Closed, put: &str, bound: &str) {
    for (request, body, status, expected) in [
        (put, r#"{"pattern": "(", "settings": {}}"#, 400, "bad_request"),
        (
            put,
            r#"{"pattern": "x", "settings": {"ttl": 1}}"#,
            400,
            "unknown_field",
        ),
        (
            put,
            r#"{"pattern": "x", "settings": {"delivery_limit": -2}}"#,
            422,
            "out_of_range",
        ),
        (
            put,
            r#"{"pattern": "x", "settings": {"expires_ms": 0}}"#,
            422,
            "out_of_range",
        ),
        (
            "PUT /v1/policies/p?namespace=none",
            bound,
            404,
            "no_such_namespace",
        ),
        ("GET /v1/policies/none", "", 404, "no_such_policy"),
        ("DELETE /v1/policies/bound", "", 404, "no_such_policy"),
    ] {
        let (found, _, said) = closed.ask(request, Some("root"), body);
        assert_eq!(
            (found, &*code(&said)),
            (status, expected),
            "{request} {body}: {said}"
        );
    }
}

#[test]
fn a_policymaker_makes_policies_where_it_may_enter_and_reaches_no_topic_by_them() {
    let closed = Closed::start();
    for (user, tag) in [("pol", "policymaker"), ("man", "management")] {
        let body = format!(r#"{{"password": "pw-{user}", "tags": ["{tag}"]}}"#);
        closed.put(user, Some("root"), &body);
        let all = r#"{"configure": ".*", "write": ".*", "read": ".*"}"#;
        let permission = format!("PUT /api/permissions/%2F/{user}");
        assert_eq!(closed.ask(&permission, Some("root"), all).0, 201);
    }
    assert_eq!(closed.ask("PUT /api/vhosts/other", Some("root"), "").0, 201);
    assert_eq!(closed.ask("PUT /v1/topics/secret", Some("root"), "{}").0, 201);
    let policy = r#"{"pattern": "^x", "definition": {"max-length": 1}}"#;
    let to_topic = r#"{"pattern": "^x", "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "secret"}}"#;
    let to_any = r#"{"pattern": "^x", "definition": {"dead-letter-exchange": ""}}"#;
    let to_queue =
        r#"{"pattern": "^x", "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "q"}}"#;
    for (user, request, body, expected) in [
        ("pol", "PUT /api/policies/%2F/p", policy, 201),
        ("man", "PUT /api/policies/%2F/p", policy, 401),
        ("man", "DELETE /api/policies/%2F/p", "", 401),
        ("man", "GET /api/policies/%2F", "", 200),
        ("pol", "PUT /api/policies/other/p", policy, 401),
        ("pol", "PUT /api/operator-policies/%2F/o", policy, 401),
        ("pol", "PUT /api/policies/%2F/t", to_topic, 401),
        ("pol", "PUT /api/policies/%2F/t", to_any, 401),
        ("pol", "PUT /api/policies/%2F/t", to_queue, 201),
        ("root", "PUT /api/policies/%2F/t", to_topic, 204),
        ("pol", "DELETE /api/policies/%2F/p", "", 204),
    ] {
        let (status, _, said) = closed.ask(request, Some(user), body);
        assert_eq!(status, expected, "{user} {request} {body}: {said}");
    }
}

#[test]
fn limits_of_a_namespace_hold_over_http_and_after_a_restart() {
    let closed = Closed::start();
    let limits = r#"{"namespace": "/", "queues": 1, "topics": 1, "messages": 2}"#;
    let put = "PUT /v1/limits";
    assert_eq!(closed.ask(put, Some("eve"), limits).0, 403);
    let (status, _, said) = closed.ask(put, Some("root"), limits);
    assert_eq!(status, 200, "{said}");
    for (body, status, expected) in [
        (r#"{"user": "eve", "queues": 1}"#, 400, "bad_request"),
        (r#"{"user": "eve", "messages": 1}"#, 400, "bad_request"),
        (r#"{"queues": 1}"#, 400, "bad_request"),
        (r#"{"namespace": "none", "queues": 1}"#, 404, "no_such_namespace"),
        (r#"{"user": "none", "connections": 1}"#, 404, "no_such_user"),
        (r#"{"namespace": "/", "queues": -1}"#, 400, "bad_request"),
    ] {
        let (found, _, said) = closed.ask(put, Some("root"), body);
        assert_eq!((found, &*code(&said)), (status, expected), "{body}: {said}");
    }
    let Closed { running, folder, .. } = closed;
    running.signal(Signal::TERM);
    running.end();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let closed = Closed {
        running,
        http,
        folder,
    };
    assert_eq!(closed.ask("PUT /v1/queues/q", Some("root"), "{}").0, 201);
    for (request, body, expected) in [
        ("PUT /v1/queues/other", "{}", "limit_reached"),
        ("PUT /v1/clients/root", "", "limit_reached"),
        // The audit is a topic of the broker's own.
        ("PUT /v1/topics/t", "{}", ""),
        ("PUT /v1/topics/other", "{}", "limit_reached"),
        ("POST /v1/queues/q/messages", "one", ""),
        ("POST /v1/queues/q/messages", "two", ""),
        ("POST /v1/queues/q/messages", "three", "queue_full"),
    ] {
        let (_, _, said) = closed.ask(request, Some("root"), body);
        assert_eq!(code(&said), expected, "{request}: {said}");
    }
    let (_, _, listed) = closed.ask("GET /v1/limits", Some("root"), "");
    let expected = json!([{"namespace": "/", "queues": 1, "topics": 1, "messages": 2}]);
    assert_eq!(value(&listed)["items"], expected, "{listed}");
    // RabbitMQ knows the limit on queues.
    let (_, _, listed) = closed.ask("GET /api/vhost-limits", Some("root"), "");
    assert_eq!(
        value(&listed),
        json!([{"vhost": "/", "value": {"max-queues": 1}}])
    );
}

#[test]
fn policies_and_limits_are_set_on_the_command_line() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http").to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
        let output = command
            .env_clear()
            .args(arguments)
            .args(["--http", &http])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    run(&["queue", "create", "tmp.a"]);
    run(&[
        "policy",
        "set",
        "short",
        "^tmp",
        "--ttl",
        "1h",
        "--length",
        "5",
        "--overflow",
        "drop-head",
    ]);
    let listed = run(&["policy", "list"]);
    assert!(
        listed.contains("short") && listed.contains("length_max=5"),
        "{listed}"
    );
    run(&["policy", "set", "bound", "", "--operator", "--bytes", "1KiB"]);
    let listed = run(&["policy", "list", "--operator", "--json"]);
    assert_eq!(value(&listed)["settings"]["bytes_max"], 1024, "{listed}");
    run(&["policy", "delete", "short"]);
    assert!(run(&["policy", "list"]).contains("no policies"));
    run(&[
        "limit",
        "set",
        "--namespace",
        "/",
        "--queues",
        "3",
        "--bytes",
        "1MiB",
    ]);
    let listed = run(&["limit", "list"]);
    assert!(
        listed.contains("1048576") || listed.contains("1.0 MiB"),
        "{listed}"
    );
    // Without numbers they are removed.
    run(&["limit", "set", "--namespace", "/"]);
    assert!(run(&["limit", "list"]).contains("no limits"));
    let login = format!("authorization: Basic {}", STANDARD.encode("guest:guest"));
    let host = format!("host: {http}");
    let (_, _, queue) = ask(
        running.address("http"),
        "GET /api/queues/%2F/tmp.a",
        &[&host, &login],
        "",
    );
    assert_eq!(value(&queue)["operator_policy"], "bound", "{queue}");
}
