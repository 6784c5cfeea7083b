//! Refusals over HTTP: status, form and code of each.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::SocketAddr;

use serde_json::Value;

use crate::common::{Folder, Running, connect, serve};

/// Sends a request; returns status, headers and body.
pub(crate) fn ask(address: SocketAddr, request: &str, headers: &[&str], body: &str) -> (u16, String, String) {
    let mut stream = connect(address);
    let mut text = format!("{request} HTTP/1.1\r\nconnection: close\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    write!(stream, "{text}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// Returns the status and the code of a refusal, which has to be `application/problem+json`.
pub(crate) fn refused(address: SocketAddr, request: &str, headers: &[&str], body: &str) -> (u16, String) {
    let (status, head, body) = ask(address, request, headers, body);
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    let problem: Value = serde_json::from_str(&body).unwrap();
    let code = problem["code"].as_str().unwrap().to_owned();
    assert_eq!(problem["status"], status);
    assert_eq!(problem["type"], format!("/v1/problems/{code}"));
    for text in ["title", "detail"] {
        let text = problem[text].as_str().unwrap();
        assert!(!text.is_empty() && text.lines().count() == 1, "{text:?}");
    }
    (status, code)
}

#[test]
fn requests_to_the_api_are_refused_with_a_code() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let host = format!("host: {http}");
    let taken = format!("{{\"target\": {:?}}}", folder.path());
    for (request, body, status, code) in [
        ("GET /v1/queues?cuont=1", "", 400, "unknown_field"),
        ("GET /v1/queues?count=1001", "", 400, "bad_request"),
        ("POST /v1/queues/q/move", "", 400, "bad_request"),
        ("POST /v1/queues/q/purge", "", 404, "no_such_queue"),
        ("DELETE /v1/namespaces/shop", "", 404, "no_such_namespace"),
        ("DELETE /v1/namespaces/%2F", "", 409, "is_default"),
        ("POST /v1/journal/backups", "", 400, "bad_request"),
        (
            "POST /v1/journal/backups",
            "{\"target\": \"name\"}",
            400,
            "bad_request",
        ),
        ("POST /v1/journal/backups", &taken, 409, "backup_failed"),
        ("POST /journal/backup?target=/x", "", 404, "no_such_path"),
        ("GET /v1/nothing", "", 404, "no_such_path"),
        ("PUT /v1/queues", "", 405, "method_not_allowed"),
        (
            "PUT /v1/node/log-level",
            "{\"level\": \"loud\"}",
            422,
            "bad_settings",
        ),
    ] {
        let found = refused(http, request, &[&host], body);
        assert_eq!(found, (status, code.to_owned()), "{request}");
    }
    let (_, head, _) = ask(http, "GET /v1", &[&host], "");
    for header in [
        "server-timing: recv;dur=",
        "stafett-request-id: ",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{head}");
    }
    let message = r#"{"to": {"queues": ["timed"]}, "content": "x"}"#;
    for (request, body) in [("PUT /v1/queues/timed", "{}"), ("POST /v1/messages", message)] {
        let (status, head, _) = ask(http, request, &[&host], body);
        let waits = head.contains("store;dur=") && !head.contains("store;dur=0.000");
        assert!(status == 201 && waits, "{request} waits for the disk: {head}");
    }
}

#[test]
fn live_topics_are_refused_to_pages_of_other_sites() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let host = format!("host: {http}");
    let large = "x".repeat(2 << 20);
    for (request, header, body, status, code) in [
        (
            "GET /live",
            "origin: https://elsewhere.example",
            "",
            403,
            "cross_site",
        ),
        (
            "GET /live/presence",
            "sec-fetch-site: cross-site",
            "",
            403,
            "cross_site",
        ),
        (
            "GET /live/events?client_id=1",
            "sec-fetch-site: same-site",
            "",
            403,
            "cross_site",
        ),
        (
            "OPTIONS /live/publish",
            "origin: https://elsewhere.example",
            "",
            403,
            "cross_site",
        ),
        ("GET /live", "accept: */*", "", 426, "no_websocket"),
        ("POST /live/publish", "accept: */*", &large, 413, "too_large"),
    ] {
        let found = refused(http, request, &[&host, header], body);
        assert_eq!(found, (status, code.to_owned()), "{request}");
    }
    let headers = ["host: a", "sec-fetch-site: cross-site"];
    assert_eq!(ask(http, "GET /live/try", &headers, "").0, 200);
    assert_eq!(ask(http, "GET /nothing", &headers, "").0, 404);
}

#[test]
fn errors_of_live_commands_keep_their_form_and_can_be_read_by_allowed_pages() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let host = format!("host: {http}");
    let large = "x".repeat(2 << 20);
    let page = [
        &*host,
        "origin: http://localhost:8000",
        "sec-fetch-site: same-site",
    ];
    for (request, body, info) in [
        (
            "POST /live/publish",
            "{\"topic\":\"a\"}",
            "Key 'payload' not specified",
        ),
        ("GET /live/subscriptions", "", "Key 'client_id' not specified"),
        ("GET /live/events", "", "Key 'client_id' not specified"),
        (
            "GET /live/presence?topic=%ff",
            "",
            "topic: expected percent-encoded UTF-8",
        ),
    ] {
        let (status, head, body) = ask(http, request, &page, body);
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &error["error"]), (400, &Value::from("bad_state")));
        assert_eq!(error["info"], info, "{request}");
        assert!(
            head.contains("access-control-allow-origin: http://localhost:8000"),
            "{head}"
        );
    }
    let (status, head, _) = ask(http, "POST /live/publish", &page, &large);
    assert!(
        status == 413 && head.contains("access-control-allow-origin"),
        "{head}"
    );
}
