//! Endpoints of the real binary: events come in, wrong tokens do not.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::common::{Folder, Running, connect, serve};

const ENDPOINTS: &str = r#"
[ingest.log]
path = "/event/log"
topic = "EventLog"
key_field = "app"
token = "query:sessionKey"
check = { hmac = "env:EVENT_KEY", issuer = "tests" }
add = { app = "token.app", country = "header.cf-ipcountry" }
log_calls_to = "ApiLog"
ack = "stored"
body_bytes_max = 1000
origins = ["https://tv.example"]

[ingest.open]
path = "/beacon"
topic = "EventLog"
answer = 204
"#;
const KEY: &str = "a key of sixteen bytes or more";

fn stafett(arguments: &[&str], server: Option<SocketAddr>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command.env_clear().env("EVENT_KEY", KEY).args(arguments);
    if let Some(server) = server {
        command.env("STAFETT_SERVER", server.to_string());
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Posts a body, and returns status line, headers and body of the answer.
fn post(http: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    let mut stream = connect(http);
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {http}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn values(kafka: SocketAddr, topic: &str) -> Vec<Value> {
    let lines = stafett(
        &[
            "consume", topic, "--from", "earliest", "--until", "latest", "--json",
        ],
        Some(kafka),
    );
    let value = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let value = record.get("value").unwrap();
        value
            .as_str()
            .map_or_else(|| value.clone(), |text| serde_json::from_str(text).unwrap())
    };
    lines.lines().map(value).collect()
}

#[test]
fn events_are_stored_as_their_endpoint_says_and_wrong_tokens_store_nothing() {
    let folder = Folder::new();
    let file = folder.path().join("endpoints.toml");
    fs::write(&file, ENDPOINTS).unwrap();
    let file = file.to_str().unwrap();
    let mut command = serve(&folder);
    let running = Running::start({
        command
            .env("EVENT_KEY", KEY)
            .env("STAFETT_INGEST_ENDPOINTS", file);
        command
    });
    let (kafka, http) = (running.address("kafka"), running.address("http"));
    for topic in ["EventLog", "ApiLog"] {
        stafett(&["topic", "create", topic, "-p", "1"], Some(kafka));
    }
    let token = stafett(&["ingest", "token", "-f", file, "log", "sub=d-1", "app=tv"], None);
    let path = format!("/event/log?sessionKey={token}");
    let json = "content-type: application/json\r\n";
    let answer = post(http, &path, json, r#"{"eventType":"QUIT","app":"forged"}"#);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "200 and nothing else: {answer}");
    let lines = "{\"n\":1}\n{\"n\":2}\n";
    let more = "content-type: application/x-ndjson\r\ncf-ipcountry: SE\r\norigin: https://tv.example\r\n";
    let answer = post(http, &path, more, lines);
    assert!(
        answer.contains("access-control-allow-origin: https://tv.example"),
        "{answer}"
    );
    let forged = format!("/event/log?sessionKey={token}x");
    for (path, headers, body, status, code) in [
        (&*forged, json, "{}", "401", "unauthenticated"),
        ("/event/log", json, "{}", "401", "unauthenticated"),
        (&path, json, "[1]", "400", "bad_request"),
        (&path, json, "{", "400", "bad_request"),
        (
            &path,
            "content-type: text/html\r\n",
            "{}",
            "415",
            "unsupported_type",
        ),
        (
            &path,
            "origin: https://other.example\r\n",
            "{}",
            "403",
            "cross_site",
        ),
        (&path, json, &" ".repeat(1001), "413", "too_large"),
    ] {
        let answer = post(http, path, headers, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path} {body}: {answer}"
        );
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
    }
    // A beacon is text, so that a browser asks nothing before.
    let answer = post(
        http,
        "/beacon",
        "content-type: text/plain;charset=UTF-8\r\n",
        "{\"n\":3}",
    );
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let expected = [
        r#"{"eventType":"QUIT","app":"tv","country":null}"#,
        r#"{"n":1,"app":"tv","country":"SE"}"#,
        r#"{"n":2,"app":"tv","country":"SE"}"#,
        r#"{"n":3}"#,
    ];
    let expected: Vec<Value> = expected
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    // The last one was answered before it was stored.
    let mut stored = values(kafka, "EventLog");
    while stored.len() < expected.len() {
        stored = values(kafka, "EventLog");
    }
    assert_eq!(stored, expected);
    let calls = values(kafka, "ApiLog");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(
        calls.first().and_then(|call| call.get("subject")),
        Some(&"d-1".into())
    );
    let metrics = crate::common::get(http, "/metrics");
    for line in [
        "stafett_ingest_requests_total{endpoint=\"log\",result=\"stored\"} 2",
        "stafett_ingest_requests_total{endpoint=\"log\",result=\"unauthenticated\"} 2",
        "stafett_ingest_records_total 6",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
