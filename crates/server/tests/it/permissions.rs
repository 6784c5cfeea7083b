//! Permissions over `/v1`, tokens of the broker's own to their end, and secrets, which are shown nowhere.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{connect, ended};
use crate::rights::Closed;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[test]
fn permissions_are_rules_of_one_form_and_show_that_there_are_others() {
    const PATH: &str = "/v1/users/eve/permissions";
    let closed = Closed::start();
    let set = |body: &str| closed.ask(&format!("PUT {PATH}"), Some("root"), body);
    let shown = || parsed(&closed.ask(&format!("GET {PATH}"), Some("root"), "").2)["items"].clone();
    let body = r#"{"namespace": "/", "define": "^eve-", "send": ".*", "receive": ""}"#;
    for (body, status) in [
        (body, 201),
        (body, 200),
        (r#"{"namespace": "none", "send": ""}"#, 404),
        (r#"{"namespace": "/", "send": "("}"#, 400),
        (r#"{"namespace": "/", "write": ""}"#, 400),
    ] {
        let (found, _, said) = set(body);
        assert_eq!(found, status, "{body}: {said}");
    }
    assert_eq!(closed.ask(&format!("PUT {PATH}"), Some("eve"), body).0, 403);
    assert_eq!(
        closed.ask("GET /v1/users/none/permissions", Some("root"), "").0,
        404
    );
    let expected =
        json!([{"namespace": "/", "define": "^eve-", "send": ".*", "receive": "", "complete": true}]);
    assert_eq!(shown(), expected);
    let of_api = || closed.ask("GET /api/users/eve/permissions", Some("root"), "").2;
    let line = json!([{"user": "eve", "vhost": "/", "configure": "^eve-", "write": ".*", "read": ""}]);
    assert_eq!(parsed(&of_api()), line);
    assert_eq!(closed.ask("PUT /v1/queues/eve-1", Some("eve"), "{}").0, 201);
    assert_eq!(closed.ask("PUT /v1/queues/other", Some("eve"), "{}").0, 403);
    // A prohibition has no form here.
    closed.permit(r#"{"who": "everyone", "deny": true, "actions": ["read"], "on": ["queue"], "name": "x"}"#);
    assert_eq!(shown()[0]["complete"], false);
    assert_eq!(parsed(&of_api())[0]["complete"], false, "{}", of_api());
    let remove = || closed.ask(&format!("DELETE {PATH}?namespace=/"), Some("root"), "");
    assert_eq!(remove().0, 200);
    let (status, _, said) = remove();
    assert_eq!(
        (status, &parsed(&said)["code"]),
        (404, &json!("no_such_permission"))
    );
    assert_eq!(shown(), json!([]));
    assert_eq!(closed.ask("PUT /v1/queues/eve-2", Some("eve"), "{}").0, 403);
}

#[test]
fn permissions_for_routing_keys_are_those_of_the_management_api() {
    const PATH: &str = "/v1/users/eve/topic-permissions";
    let closed = Closed::start();
    let keys = r#"{"namespace": "/", "exchange": "news", "publish": "^eve\\.", "bind": ".*"}"#;
    let set = |body: &str| closed.ask(&format!("PUT {PATH}"), Some("root"), body).0;
    assert_eq!((set(keys), set(keys)), (201, 200));
    assert_eq!(set(&keys.replace("^eve", "(")), 400);
    let shown = || parsed(&closed.ask(&format!("GET {PATH}"), Some("root"), "").2)["items"].clone();
    assert_eq!(shown(), json!([parsed(keys)]));
    let (_, _, of_api) = closed.ask("GET /api/topic-permissions/%2F/eve", Some("root"), "");
    let line = json!([{"user": "eve", "vhost": "/", "exchange": "news", "write": "^eve\\.", "read": ".*"}]);
    assert_eq!(parsed(&of_api), line);
    let remove = format!("DELETE {PATH}?exchange=news");
    assert_eq!(closed.ask(&remove, Some("root"), "").0, 200);
    assert_eq!(closed.ask(&remove, Some("root"), "").0, 404);
    assert_eq!(shown(), json!([]));
}

fn token(closed: &Closed, ttl: &str) -> (String, String) {
    let wanted = format!(r#"{{"user": "root"{ttl}}}"#);
    let (status, _, said) = closed.ask("POST /v1/tokens", Some("root"), &wanted);
    assert_eq!(status, 201, "{said}");
    let made = parsed(&said);
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

/// Begins a stream by a token.
fn stream(closed: &Closed, token: &str) -> TcpStream {
    let mut stream = connect(closed.http);
    write!(
        stream,
        "GET /v1/events/stream HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n",
        closed.http
    )
    .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

/// Reads a stream to its end, which tells the reason.
fn end(mut stream: TcpStream) {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.contains("event: end") && rest.contains("unauthenticated"),
        "{rest}"
    );
}

#[test]
fn what_goes_on_by_a_token_ends_when_it_is_revoked_or_expires() {
    let closed = Closed::start();
    let (id, revoked) = token(&closed, "");
    let open = stream(&closed, &revoked);
    assert_eq!(
        closed.ask(&format!("DELETE /v1/tokens/{id}"), Some("root"), "").0,
        200
    );
    end(open);
    // Long enough to begin, and nothing else changes until then.
    let (_, short) = token(&closed, r#", "ttl_ms": 2000"#);
    end(stream(&closed, &short));
    for gone in [&revoked, &short] {
        let login = format!("authorization: Bearer {gone}");
        let host = format!("host: {}", closed.http);
        let (status, ..) = crate::refusals::ask(closed.http, "GET /v1/whoami", &[&host, &login], "");
        assert_eq!(status, 401);
    }
}

fn files(folder: &Path, found: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.extend(std::fs::read(path).unwrap());
        }
    }
}

#[test]
fn no_secret_is_in_answers_errors_metrics_logs_dumps_and_backups() {
    let closed = Closed::start();
    let (_, token) = token(&closed, "");
    let secret = "a-password-of-bob";
    closed.put("bob", Some("root"), &format!(r#"{{"password": "{secret}"}}"#));
    let wrong = format!(r#"{{"password": "{secret}", "tags": 1}}"#);
    let mut shown = Vec::new();
    for (request, body) in [
        ("PUT /v1/users/bob", &*wrong),
        ("PUT /v1/users/bob", secret),
        (
            "POST /v1/login",
            &*format!(r#"{{"user": "bob", "password": "{secret}", "more": 1}}"#),
        ),
        (
            "POST /v1/login",
            &*format!(r#"{{"user": "nobody", "password": "{secret}"}}"#),
        ),
        (
            "PUT /api/users/kim",
            &*format!(r#"{{"password": "{secret}", "tags": {{}}}}"#),
        ),
        ("GET /v1/users", ""),
        ("GET /v1/tokens", ""),
        ("GET /v1/definitions", ""),
        ("GET /api/definitions", ""),
        ("GET /v1/node/settings", ""),
        ("GET /v1/audit", ""),
        ("GET /v1/events", ""),
        ("GET /metrics", ""),
        ("GET /api/users", ""),
    ] {
        let (status, head, said) = closed.ask(request, Some("root"), body);
        assert_ne!(status, 404, "{request}: {said}");
        shown.push((request.to_owned(), format!("{head}{said}").into_bytes()));
    }
    let Closed { running, folder, .. } = closed;
    running.signal(Signal::TERM);
    let (_, out, error) = running.end();
    shown.push(("the log".to_owned(), [out, error].concat().into_bytes()));
    let data = folder.path().join("data");
    let backup = folder.path().join("backup");
    let stafett = || Command::new(env!("CARGO_BIN_EXE_stafett"));
    let data_text = data.to_str().unwrap();
    let dumped = ended(stafett(), &["journal", "dump", data_text]);
    assert!(dumped.status.success() && !dumped.stdout.is_empty());
    shown.push(("journal dump".to_owned(), [dumped.stdout, dumped.stderr].concat()));
    let copied = ended(
        stafett(),
        &["journal", "backup", data_text, backup.to_str().unwrap()],
    );
    assert!(
        copied.status.success(),
        "{}",
        String::from_utf8_lossy(&copied.stderr)
    );
    for (name, folder) in [("the data directory", &data), ("the backup", &backup)] {
        let mut bytes = Vec::new();
        files(folder, &mut bytes);
        assert!(bytes.windows(3).any(|part| part == b"bob"), "{name} has the user");
        shown.push((name.to_owned(), bytes));
    }
    for (name, bytes) in shown {
        for secret in [secret, &token, "pw-root"] {
            let has = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!has, "{name} has {secret}");
        }
    }
}
