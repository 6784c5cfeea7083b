//! Routes that are reached without a login, and by a user without rules; and answers that end with a right.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::common::{Folder, Running, connect, serve};
use crate::refusals::ask;
use crate::sockets::Socket;

/// Routes that answer before a login.
const FREE: &[&str] = &[
    "/v1",
    "/v1/openapi.json",
    "/v1/problems/{code}",
    "/v1/login",
    "/health",
    "/live/try",
];
/// Routes that answer a user without rules: its own state, or nothing of others.
const OWN: &[&str] = &["/v1/whoami", "/v1/logout", "/v1/pending", "/v1/receive"];

/// Requests to other paths of the port. Those under `/api` are in `management_rights`.
const OTHERS: &[&str] = &[
    "GET /metrics",
    "GET /metrics/detailed",
    "GET /live",
    "POST /live/publish",
];

pub(crate) fn basic(user: &str) -> String {
    format!(
        "authorization: Basic {}",
        STANDARD.encode(format!("{user}:pw-{user}"))
    )
}

pub(crate) struct Closed {
    pub(crate) running: Running,
    pub(crate) http: SocketAddr,
    pub(crate) folder: Folder,
}

impl Closed {
    pub(crate) fn start() -> Self {
        let folder = Folder::new();
        let running = Running::start(serve(&folder));
        let closed = Self {
            http: running.address("http"),
            running,
            folder,
        };
        closed.put("root", None, r#"{"password": "pw-root", "tags": ["superuser"]}"#);
        closed.put("eve", Some("root"), r#"{"password": "pw-eve"}"#);
        closed
    }

    pub(crate) fn put(&self, user: &str, by: Option<&str>, body: &str) {
        let request = format!("PUT /v1/users/{user}");
        let (status, _, said) = self.ask(&request, by, body);
        assert!(status < 300, "{status} {said}");
    }

    pub(crate) fn permit(&self, rule: &str) {
        let (status, _, said) = self.ask("POST /v1/rules", Some("root"), rule);
        assert_eq!(status, 201, "{said}");
    }

    pub(crate) fn ask(&self, request: &str, user: Option<&str>, body: &str) -> (u16, String, String) {
        let host = format!("host: {}", self.http);
        let login = user.map(basic).unwrap_or_default();
        let mut headers = vec![&*host, "content-type: application/json"];
        headers.extend((!login.is_empty()).then_some(&*login));
        ask(self.http, request, &headers, body)
    }

    /// Begins a request whose answer goes on, and reads its head.
    fn begin(&self, request: &str, user: &str, more: &str) -> BufReader<TcpStream> {
        let mut stream = connect(self.http);
        let (host, login) = (self.http, basic(user));
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: {host}\r\n{login}\r\n{more}\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(
            line.contains(" 200 ") || line.contains(" 101 "),
            "{request}: {line}"
        );
        reader
    }
}

#[test]
fn every_route_is_closed_to_strangers_and_to_a_user_without_rules() {
    let closed = Closed::start();
    for made in ["/v1/queues/q", "/v1/topics/t", "/v1/exchanges/x"] {
        let body = if made.contains("exchange") {
            r#"{"kind": "direct"}"#
        } else {
            ""
        };
        closed.ask(&format!("PUT {made}"), Some("root"), body);
    }
    let (_, _, document) = closed.ask("GET /v1/openapi.json", None, "");
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut open = Vec::new();
    let mut walked = 0;
    for (template, methods) in document["paths"].as_object().unwrap() {
        let path = template
            .replace("{queue}", "q")
            .replace("{topic}", "t")
            .replace("{exchange}", "x")
            .replace("{user}", "root")
            .replace("{namespace}", "%2F")
            .replace("{partition}", "0");
        let path: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { "1" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        for method in methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|it| *it != "parameters")
        {
            let request = format!("{} {path}", method.to_uppercase());
            walked += 1;
            let is_free = FREE.contains(&&**template) || template.starts_with("/health") || *template == "/";
            let (status, ..) = closed.ask(&request, None, "{}");
            if status != 401 && !is_free {
                open.push(format!("{request} without a login: {status}"));
            }
            let (status, _, said) = closed.ask(&request, Some("eve"), "{}");
            let is_own = OWN.contains(&&**template);
            if !matches!(status, 400..=499) && !is_free && !is_own {
                open.push(format!("{request} without rules: {status} {said}"));
            }
        }
    }
    for request in OTHERS {
        for user in [None, Some("eve")] {
            walked += 1;
            let (status, _, said) = closed.ask(request, user, "{}");
            if !matches!(status, 400..=499) {
                open.push(format!("{request} by {user:?}: {status} {said}"));
            }
        }
    }
    assert!(walked > 100, "{walked}");
    assert!(open.is_empty(), "{}", open.join("\n"));
}

#[test]
fn streams_and_sockets_end_when_the_right_is_gone() {
    let closed = Closed::start();
    let socket = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let watcher = r#"{"password": "pw-bob", "tags": ["monitoring"]}"#;
    for (request, more) in [
        ("GET /v1/events/stream", "connection: close\r\n"),
        ("GET /v1/watch?list=queues", "connection: close\r\n"),
        ("GET /v1/ws", socket),
    ] {
        closed.put("bob", Some("root"), watcher);
        let mut reader = closed.begin(request, "bob", more);
        let (status, ..) = closed.ask("DELETE /v1/users/bob", Some("root"), "");
        assert_eq!(status, 200);
        // It ends, and not by the limit of the test on waiting; events tell the reason.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let rest = String::from_utf8_lossy(&rest);
        let is_told = rest.contains("event: end\ndata: {") && rest.contains("unauthenticated");
        assert_eq!(is_told, !request.ends_with("/ws"), "{request}: {rest}");
    }
    // The right alone goes, and the user stays.
    closed.put("bob", Some("root"), watcher);
    let mut reader = closed.begin("GET /v1/events/stream", "bob", "connection: close\r\n");
    closed.put("bob", Some("root"), r#"{"tags": []}"#);
    reader.read_to_end(&mut Vec::new()).unwrap();
    drop(closed.running);
}

#[test]
fn a_user_is_its_own_client_only_in_namespaces_that_it_may_enter() {
    let closed = Closed::start();
    let made = closed.ask("PUT /v1/namespaces/other", Some("root"), "{}");
    assert_eq!(made.0, 201, "{made:?}");
    let put = |path: &str| closed.ask(&format!("PUT /v1/clients/{path}"), Some("eve"), "").0;
    assert_eq!(put("eve"), 201);
    assert_eq!(put("bob"), 403);
    assert_eq!(put("eve?namespace=other"), 403);
    closed.permit(r#"{"who": "user:eve", "actions": ["read"], "on": ["namespace"], "name": "other"}"#);
    assert_eq!(put("eve?namespace=other"), 201);
}

#[test]
fn a_topic_that_shows_a_queue_needs_the_right_on_the_queue() {
    let closed = Closed::start();
    for path in ["queues/secret", "queues/mine"] {
        let made = closed.ask(&format!("PUT /v1/{path}"), Some("root"), "{}");
        assert_eq!(made.0, 201, "{made:?}");
    }
    closed.permit(r#"{"who": "user:eve", "actions": ["all"], "on": ["topic", "group"], "prefix": ""}"#);
    closed.permit(r#"{"who": "user:eve", "actions": ["all"], "on": ["queue"], "name": "mine"}"#);
    let offsets = r#"{"offsets": [{"topic": "queue.secret", "partition": 0, "offset": 0}]}"#;
    let asked = [
        ("GET /v1/topics/queue.secret", ""),
        ("GET /v1/topics/queue.secret/records", ""),
        ("GET /v1/watch?of=topics%2Fqueue.secret", ""),
        ("PUT /v1/groups/g/offsets", offsets),
    ];
    for (request, body) in asked {
        let (status, _, said) = closed.ask(request, Some("eve"), body);
        assert_eq!(status, 403, "{request}: {said}");
    }
    closed.permit(r#"{"who": "user:eve", "actions": ["read"], "on": ["queue"], "name": "secret"}"#);
    for (request, body) in asked
        .into_iter()
        .filter(|(request, _)| !request.contains("watch"))
    {
        let (status, _, said) = closed.ask(request, Some("eve"), body);
        assert!(status < 300, "{request}: {said}");
    }
    // A watch ends with the right, as its stream does.
    let mut reader = closed.begin(
        "GET /v1/watch?of=topics%2Fqueue.secret",
        "eve",
        "connection: close\r\n",
    );
    let forbid =
        r#"{"who": "user:eve", "deny": true, "actions": ["all"], "on": ["queue"], "name": "secret"}"#;
    closed.permit(forbid);
    let mut said = String::new();
    while !said.contains("forbidden") {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "{said}");
        said.push_str(&line);
    }
}

/// The body is not read, and the answer arrives all the same.
#[test]
fn a_refusal_is_read_by_a_client_that_still_sends() {
    let closed = Closed::start();
    let body = "x".repeat(300_000);
    for _ in 0..20 {
        assert_eq!(closed.ask("POST /v1/topics/t/records", None, &body).0, 401);
    }
}

#[test]
fn requests_beyond_a_quota_are_refused_with_the_time_to_wait() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/topics/t", Some("root"), "{}").0, 201);
    let set = |user: &str, rates: &str| {
        let quota = format!(r#"{{"user": "{user}"{rates}}}"#);
        closed.ask("PUT /v1/quotas", Some("root"), &quota)
    };
    assert_eq!(set("root", "").0, 200);
    assert_eq!(set("root", r#", "produced_bytes_per_second": -1"#).0, 400);
    assert_eq!(set("", r#", "produced_bytes_per_second": 1"#).0, 400);
    assert_eq!(closed.ask("PUT /v1/quotas", Some("eve"), "{}").0, 403);
    assert_eq!(
        set(
            "root",
            r#", "produced_bytes_per_second": 1, "fetched_bytes_per_second": 1"#
        )
        .0,
        200
    );
    let (_, _, listed) = closed.ask("GET /v1/quotas", Some("root"), "");
    let expected = r#""produced_bytes_per_second":1.0,"user":"root""#;
    assert!(listed.contains(expected), "{listed}");
    let record = r#"{"value": "0123456789"}"#;
    assert_eq!(closed.ask("PUT /v1/queues/q", Some("root"), "{}").0, 201);
    for (request, body) in [
        ("POST /v1/topics/t/records?as=record", record),
        ("GET /v1/topics/t/records", ""),
    ] {
        let (status, _, said) = closed.ask(request, Some("root"), body);
        assert!(status < 300, "{request}: {said}");
        let (status, head, said) = closed.ask(request, Some("root"), body);
        assert_eq!(status, 429, "{request}: {said}");
        assert!(head.to_lowercase().contains("retry-after: "), "{head}");
    }
    // Messages for queues come out of the same rate, whose debt is not paid yet.
    assert_eq!(
        closed.ask("POST /v1/queues/q/messages", Some("root"), "text").0,
        429
    );
    assert_eq!(
        closed.ask("GET /v1/topics", Some("root"), "").0,
        200,
        "no content"
    );
    assert_eq!(set("root", "").0, 200);
    assert_eq!(closed.ask("GET /v1/topics/t/records", Some("root"), "").0, 200);
}

#[test]
fn bodies_without_a_length_and_messages_of_a_websocket_come_out_of_the_quota() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/topics/t", Some("root"), "{}").0, 201);
    assert_eq!(closed.ask("PUT /v1/queues/q", Some("root"), "{}").0, 201);
    let set = |rate: &str| {
        let quota = format!(r#"{{"user": "root"{rate}}}"#);
        assert_eq!(closed.ask("PUT /v1/quotas", Some("root"), &quota).0, 200);
    };
    set(r#", "produced_bytes_per_second": 1"#);
    let record = r#"{"value": "0123456789"}"#;
    let chunked = || {
        let mut stream = connect(closed.http);
        let (host, login) = (closed.http, basic("root"));
        write!(
            stream,
            "POST /v1/topics/t/records?as=record HTTP/1.1\r\nhost: {host}\r\n{login}\r\nconnection: close\r\n\
             content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{record}\r\n0\r\n\r\n",
            record.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = chunked();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    let answer = chunked();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    // Without a debt again, a message by WebSocket makes the next one.
    set("");
    set(r#", "produced_bytes_per_second": 2"#);
    let mut socket = Socket::open_as(closed.http, &basic("root"));
    let send = json!({"op": "send", "id": 1, "to": {"queues": ["q"]}, "content": "0123456789"});
    let answer = socket.ask(&send);
    assert!(answer["ok"].is_object(), "{answer}");
    let answer = socket.ask(&send);
    assert_eq!(answer["error"]["code"], "over_quota", "{answer}");
    let answer = socket.ask(&json!({"op": "produce", "id": 2, "topic": "t", "value": "x"}));
    assert_eq!(answer["error"]["code"], "over_quota", "{answer}");
    set("");
    let answer = socket.ask(&send);
    assert!(answer["ok"].is_object(), "{answer}");
    // Requests count too, of all routes under /v1 and of messages by WebSocket.
    set(r#", "requests_per_second": 0.01"#);
    assert_eq!(closed.ask("GET /v1/topics", Some("root"), "").0, 200);
    let (status, _, said) = closed.ask("GET /v1/topics", Some("root"), "");
    assert_eq!((status, said.contains("over_quota")), (429, true), "{said}");
    let answer = socket.ask(&send);
    assert_eq!(answer["error"]["code"], "over_quota", "{answer}");
    for outside in ["GET /health", "GET /metrics"] {
        assert_eq!(closed.ask(outside, Some("root"), "").0, 200, "{outside}");
    }
    let (status, head, said) = closed.ask("GET /api/overview", Some("root"), "");
    assert_eq!((status, said.contains("over_quota")), (429, true), "{said}");
    assert!(head.contains("retry-after: "), "{head}");
}

#[test]
fn decisions_about_a_user_are_those_of_its_rules() {
    let closed = Closed::start();
    let rule =
        r#"{"who": "user:eve", "actions": ["read"], "on": ["queue"], "prefix": "work", "namespace": "/"}"#;
    let (status, _, said) = closed.ask("POST /v1/rules", Some("root"), rule);
    assert_eq!(status, 201, "{said}");
    let decide = |user: &str, what: &str, by: &str| {
        let (status, _, said) = closed.ask(&format!("GET /v1/users/{user}/may?{what}"), Some(by), "");
        (status, said.trim_end().to_owned())
    };
    for (what, may) in [
        ("action=read&on=queue&name=work.1", true),
        ("action=describe&on=queue&name=work.1", true),
        ("action=write&on=queue&name=work.1", false),
        ("action=read&on=queue&name=other", false),
        ("action=read&on=queue&name=work.1&namespace=shop", false),
        ("action=describe&on=cluster", false),
    ] {
        let expected = (200, format!("{{\"may\":{may}}}"));
        assert_eq!(decide("eve", what, "root"), expected, "{what}");
    }
    assert_eq!(
        decide("root", "action=delete&on=topic&name=any", "root").1,
        r#"{"may":true}"#
    );
    assert_eq!(decide("nobody", "action=read&on=topic", "root").0, 404);
    assert_eq!(decide("eve", "action=fly&on=topic", "root").0, 400);
    assert_eq!(decide("eve", "action=read&on=topic&host=here", "root").0, 400);
    assert_eq!(decide("root", "action=read&on=topic", "eve").0, 403);
    drop(closed.running);
}

#[test]
fn limits_are_of_a_namespace_or_a_user_that_is_there_and_hold_over_amqp() {
    let closed = Closed::start();
    let set = |body: &str| closed.ask("PUT /v1/limits", Some("root"), body);
    for (body, status) in [
        (r#"{"queues": 1}"#, 400),
        (r#"{"user": "root", "namespace": "/", "connections": 1}"#, 400),
        (r#"{"user": "root", "queues": 1}"#, 400),
        (r#"{"user": "root", "topics": 1}"#, 400),
        (r#"{"namespace": "none", "queues": 1}"#, 404),
        (r#"{"user": "none", "channels": 1}"#, 404),
        (r#"{"namespace": "/", "queues": 1}"#, 200),
        (r#"{"user": "root", "connections": 3, "channels": 9}"#, 200),
    ] {
        let (found, _, said) = set(body);
        assert_eq!(found, status, "{body}: {said}");
    }
    assert_eq!(closed.ask("GET /v1/limits", Some("eve"), "").0, 403);
    let listed = || closed.ask("GET /v1/limits", Some("root"), "").2;
    let all: Value = serde_json::from_str(&listed()).unwrap();
    let expected = serde_json::json!([
        {"namespace": "/", "queues": 1},
        {"user": "root", "connections": 3, "channels": 9},
    ]);
    assert_eq!(all["items"], expected);
    let (_, _, of_api) = closed.ask("GET /api/vhost-limits", Some("root"), "");
    assert!(of_api.contains(r#""max-queues":1"#), "{of_api}");
    for _ in 0..2 {
        assert_eq!(
            closed.ask("PUT /api/queues/%2F/q", Some("root"), "{}").0 / 100,
            2,
            "one is permitted"
        );
    }
    assert_eq!(
        closed.ask("PUT /api/queues/%2F/other", Some("root"), "{}").0 / 100,
        4
    );
    assert_eq!(set(r#"{"namespace": "/"}"#).0, 200);
    // Requests open no connections and channels.
    assert_eq!(set(r#"{"user": "root", "connections": 0, "channels": 0}"#).0, 200);
    let (status, _, said) = closed.ask("PUT /api/queues/%2F/other", Some("root"), "{}");
    assert_eq!(status, 201, "{said}");
    let message =
        r#"{"routing_key": "other", "payload": "x", "payload_encoding": "string", "properties": {}}"#;
    let publish = "POST /api/exchanges/%2F/amq.default/publish";
    let (status, _, said) = closed.ask(publish, Some("root"), message);
    assert_eq!((status, &*said), (200, r#"{"routed":true}"#));
    assert_eq!(set(r#"{"user": "root"}"#).0, 200);
    assert!(listed().contains(r#""items":[]"#), "{}", listed());
}
