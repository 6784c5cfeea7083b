//! Apps by command, with a worker that is driven by requests.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::common::{Folder, Running, connect, serve};
use crate::messages::{run, run_any};

/// Sends a request; returns the answer's body. Panics unless it succeeds.
fn ask(http: SocketAddr, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nStafett-Worker: {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = connect(http);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// A worker that holds task 0 of the app `sums` and has committed one entry.
fn work(http: SocketAddr) {
    ask(http, "PUT", "/v1/topics/in", "", &json!({ "partitions": 1 }));
    let definition = json!({ "topics": ["in"], "tables": { "sum": {} }, "worker_timeout_ms": 60_000 });
    ask(http, "PUT", "/v1/apps/sums", "", &definition);
    for (key, value) in [("a", 1), ("b", 2)] {
        let record = json!({ "key": key, "value": value });
        ask(http, "POST", "/v1/topics/in/records?as=record", "", &record);
    }
    let at = |command: &str| format!("/v1/apps/sums/workers/w-1/{command}");
    let joined = ask(http, "POST", &at("join"), "", &json!({}));
    let token = joined["token"].as_str().unwrap();
    let polled = ask(
        http,
        "POST",
        &at("poll"),
        token,
        &json!({ "after": 0, "wait_ms": 20_000 }),
    );
    let epoch = &polled["events"][0]["epoch"];
    let of = json!({ "task": "0", "epoch": epoch, "wait_ms": 20_000 });
    let fetched = ask(http, "POST", &at("fetch"), token, &of);
    assert_eq!(fetched["records"].as_array().unwrap().len(), 2);
    let commit = json!({
        "task": "0", "epoch": epoch, "seq": 1, "next": { "in": 1 }, "put": { "sum": [["a", 1]] },
    });
    ask(http, "POST", &at("commit"), token, &commit);
}

#[test]
fn apps_are_shown_and_looked_after_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    assert_eq!(run(http, &["app", "list"], b""), "no apps\n");
    work(http);
    let app = |arguments: &[&str]| run(http, &[&["app"], arguments].concat(), b"");
    let shown = |arguments: &[&str], words: &[&str]| {
        let out = app(arguments);
        let last: Vec<&str> = out.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, words, "{out}");
    };
    shown(&["list"], &["sums", "1", "1", "0", "1", "false"]);
    shown(
        &["describe", "sums"],
        &["0", "held", "w-1", "-", "1", "1", "1", "1"],
    );
    shown(&["lag", "sums"], &["0", r#"{"in":1}"#, r#"{"in":2}"#, "1"]);
    shown(&["state", "sums", "sum", "a"], &["a", "1", "0"]);
    shown(&["state", "sums", "sum"], &["a", "1", "0"]);
    assert_eq!(app(&["assign", "sums", "0", "w-1"]), "task 0 is pinned to w-1\n");
    assert_eq!(app(&["assign", "sums", "0"]), "task 0 is not pinned\n");
    assert_eq!(
        app(&["drain", "sums", "w-1", "--over", "60s"]),
        "worker w-1 hands over its tasks\n"
    );
    assert_eq!(
        app(&["drain", "sums", "w-1", "--cancel"]),
        "worker w-1 is given tasks again\n"
    );
    assert_eq!(app(&["split", "sums", "0"]), "task 0 goes on as 0.0, 0.1\n");
    assert_eq!(app(&["merge", "sums", "0"]), "task 0 goes on as 0\n");
    let (code, _, error) = run_any(http, &["app", "reset", "sums", "--to", "earliest"], b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("pause"), "{error}");
    assert_eq!(app(&["pause", "sums"]), "app sums is paused\n");
    shown(
        &["reset", "sums", "--to", "latest", "--dry-run"],
        &["0", r#"{"in":1}"#, r#"{"in":2}"#],
    );
    shown(
        &["reset", "sums", "--to", "latest"],
        &["0", r#"{"in":1}"#, r#"{"in":2}"#],
    );
    assert_eq!(app(&["resume", "sums"]), "app sums goes on\n");
    assert_eq!(app(&["accept-gap", "sums"]), "app sums goes on\n");
    let (code, _, error) = run_any(http, &["app", "delete", "sums", "--yes"], b"");
    assert_eq!(code, Some(1), "a worker holds the task");
    assert!(error.contains("workers hold"), "{error}");
    assert_eq!(app(&["delete", "sums", "--yes", "--force"]), "app sums deleted\n");
    let (code, _, error) = run_any(http, &["app", "lag", "sums"], b"");
    assert_eq!((code, error.contains("no app")), (Some(1), true), "{error}");
}
