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

[ingest.strict]
path = "/strict"
topic = "EventLog"
token = "bearer"
check = { hmac = "env:EVENT_KEY" }
schema = "file:SCHEMA"
unknown = "drop"
limit = { per = "token", rate = "0.001/s", burst = 3 }
ack = "stored"

[ingest.kinds]
path = "/kinds"
topic_field = "kind"
topics = ["Plays", "Errors"]
filter = "value.n > 1"
token = "bearer"
check = { public_key = "file:PEM" }
ack = "stored"

[ingest.open]
path = "/beacon"
topic = "EventLog"
answer = 204
"#;
const SCHEMA: &str = r#"{
    "type": "object",
    "required": ["eventType"],
    "properties": { "eventType": { "enum": ["PLAY", "QUIT"] }, "retentionTime": { "type": "integer", "minimum": 0 } }
}"#;
/// A public key on P-256, and a token that was signed with its private key.
const PEM: &str = include_str!("ingest.pem");
const ES256: &str = "eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImlzcyI6ICJhcHBzIiwgImlhdCI6IDEwMDB9.4lGitoRFFNM4WiwhppRCKJr1M_SYfYmmOrlEJY9edpv3K_n7gmRwJcPRNKR6mZNkhPqb_UhLQJGWS1QAY1GX9A";
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

/// A broker with the endpoints, and a token for them.
struct Scene {
    /// Deleted with this.
    _folder: Folder,
    running: Running,
    path: String,
    /// Headers of two clients of `/strict`.
    strict: [String; 2],
}

impl Scene {
    fn new() -> Self {
        let folder = Folder::new();
        let file = folder.path().join("endpoints.toml");
        let schema = folder.path().join("event.schema.json");
        fs::write(&schema, SCHEMA).unwrap();
        let pem = folder.path().join("key.pem");
        fs::write(&pem, PEM).unwrap();
        let endpoints = ENDPOINTS.replace("SCHEMA", schema.to_str().unwrap());
        fs::write(&file, endpoints.replace("PEM", pem.to_str().unwrap())).unwrap();
        let file = file.to_str().unwrap();
        let mut command = serve(&folder);
        command
            .env("EVENT_KEY", KEY)
            .env("STAFETT_INGEST_ENDPOINTS", file);
        let running = Running::start(command);
        for topic in ["EventLog", "ApiLog", "Plays", "Errors"] {
            let kafka = running.address("kafka");
            stafett(&["topic", "create", topic, "-p", "1"], Some(kafka));
        }
        let token = stafett(&["ingest", "token", "-f", file, "log", "sub=d-1", "app=tv"], None);
        let strict = ["sub=d-1", "sub=d-2"].map(|subject| {
            let token = stafett(&["ingest", "token", "-f", file, "strict", subject], None);
            format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n")
        });
        Self {
            strict,
            path: format!("/event/log?sessionKey={token}"),
            running,
            _folder: folder,
        }
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> String {
        post(self.running.address("http"), path, headers, body)
    }
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn events_are_stored_as_their_endpoint_says() {
    let scene = Scene::new();
    let kafka = scene.running.address("kafka");
    let answer = scene.post(&scene.path, JSON, r#"{"eventType":"QUIT","app":"forged"}"#);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "200 and nothing else: {answer}");
    let more = "content-type: application/x-ndjson\r\ncf-ipcountry: SE\r\norigin: https://tv.example\r\n";
    let answer = scene.post(&scene.path, more, "{\"n\":1}\n{\"n\":2}\n");
    let allowed = "access-control-allow-origin: https://tv.example";
    assert!(answer.contains(allowed), "{answer}");
    // A beacon is text, so that a browser asks nothing before.
    let answer = scene.post(
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
    let subject = calls.first().and_then(|call| call.get("subject"));
    assert_eq!(subject, Some(&"d-1".into()));
}

#[test]
fn a_field_chooses_the_topic_and_a_public_key_checks_tokens() {
    let scene = Scene::new();
    let headers = format!("{JSON}authorization: Bearer {ES256}\r\n");
    let body = r#"[{"kind":"Errors","n":2},{"kind":"Plays","n":1},{"kind":"Plays","n":3}]"#;
    let answer = scene.post("/kinds", &headers, body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let other = scene.post(
        "/kinds",
        &headers,
        r#"[{"kind":"Plays","n":4},{"kind":"ApiLog","n":4}]"#,
    );
    assert!(other.starts_with("HTTP/1.1 422"), "{other}");
    assert!(other.contains(r#""expected":"one of Plays, Errors""#), "{other}");
    let kafka = scene.running.address("kafka");
    assert_eq!(
        values(kafka, "Plays"),
        [serde_json::json!({"kind": "Plays", "n": 3})]
    );
    assert_eq!(
        values(kafka, "Errors"),
        [serde_json::json!({"kind": "Errors", "n": 2})]
    );
    let metrics = crate::common::get(scene.running.address("http"), "/metrics");
    let line = "stafett_ingest_left_out_total{endpoint=\"kinds\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[test]
fn events_fit_their_schema_and_a_token_has_its_limit() {
    let scene = Scene::new();
    let [one, other] = &scene.strict;
    let good = r#"{"eventType":"QUIT","retentionTime":100,"more":1}"#;
    let answer = scene.post("/strict", one, good);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = scene.post("/strict", one, r#"{"eventType":"QUIT","retentionTime":-1}"#);
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    for part in [
        r#""code":"schema""#,
        r#""path":"/retentionTime""#,
        r#""expected":"at least 0""#,
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    assert!(scene.post("/strict", one, good).starts_with("HTTP/1.1 200"));
    let answer = scene.post("/strict", one, good);
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(
        answer.contains("retry-after: ") && answer.contains(r#""code":"too_many""#),
        "{answer}"
    );
    assert!(scene.post("/strict", other, good).starts_with("HTTP/1.1 200"));
    let stored = values(scene.running.address("kafka"), "EventLog");
    let fields = serde_json::json!({"eventType": "QUIT", "retentionTime": 100});
    assert_eq!(stored, vec![fields; 3]);
}

#[test]
fn wrong_requests_store_nothing_and_are_counted() {
    let scene = Scene::new();
    let path = &*scene.path;
    let forged = format!("{path}x");
    for (path, headers, body, status, code) in [
        (&*forged, JSON, "{}", "401", "unauthenticated"),
        ("/event/log", JSON, "{}", "401", "unauthenticated"),
        (path, JSON, "[1]", "400", "bad_request"),
        (path, JSON, "{", "400", "bad_request"),
        (
            path,
            "content-type: text/html\r\n",
            "{}",
            "415",
            "unsupported_type",
        ),
        (
            path,
            "origin: https://other.example\r\n",
            "{}",
            "403",
            "cross_site",
        ),
        (path, JSON, &" ".repeat(1001), "413", "too_large"),
        (path, "content-encoding: br\r\n", "{}", "415", "unsupported_type"),
        (path, "content-encoding: gzip\r\n", "{}", "400", "bad_request"),
    ] {
        let answer = scene.post(path, headers, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path} {body}: {answer}"
        );
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
    }
    let stored = values(scene.running.address("kafka"), "EventLog");
    assert!(stored.is_empty(), "{stored:?}");
    let metrics = crate::common::get(scene.running.address("http"), "/metrics");
    for line in [
        "stafett_ingest_requests_total{endpoint=\"log\",result=\"refused\"} 6",
        "stafett_ingest_requests_total{endpoint=\"log\",result=\"unauthenticated\"} 2",
        "stafett_ingest_records_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}");
    }
}
