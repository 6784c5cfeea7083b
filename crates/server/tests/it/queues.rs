//! Queues and namespaces over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Folder, Running, connect, get, serve};

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn namespaces_are_made_listed_and_deleted_over_http_and_stay_so() {
    let folder = Folder::new();
    let mut listed = "{\"items\":[{\"name\":\"/\"}],";
    for (request, status, after) in [
        (
            "PUT /v1/namespaces/shop",
            "201 Created",
            "{\"items\":[{\"name\":\"/\"},{\"name\":\"shop\"}],",
        ),
        (
            "DELETE /v1/namespaces/shop",
            "200 OK",
            "{\"items\":[{\"name\":\"/\"}],",
        ),
    ] {
        let running = Running::start(serve(&folder));
        let http = running.address("http");
        assert!(ask(http, "GET /v1/namespaces?columns=name").contains(listed));
        assert!(ask(http, request).contains(status), "{request}");
        listed = after;
        running.signal(Signal::TERM);
        assert_eq!(running.end().0.code(), Some(0));
    }
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    assert!(ask(http, "GET /v1/namespaces?columns=name").contains(listed));
    assert!(ask(http, "GET /v1/queues").contains("{\"items\":[],"));
    assert!(ask(http, "POST /v1/queues/q/purge").contains("404 Not Found"));
    assert!(ask(http, "GET /v1/queues/q/messages?count=x").contains("400 Bad Request"));
    let refused = get(http, "/v1/queues");
    assert!(
        refused.contains("403 Forbidden"),
        "by a name of somebody else's: {refused}"
    );
}

/// Runs a command that uses the broker at `http`.
fn stafett(http: SocketAddr, arguments: &[&str]) -> Output {
    stafett_at(&http.to_string(), arguments)
}

fn stafett_at(http: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stafett"))
        .env_clear()
        .args(arguments)
        .args(["--http", http])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn namespaces_have_counters(http: SocketAddr) {
    let listed = stafett(http, &["namespace", "list", "--json"]);
    let (code, out, error) = said(&listed);
    assert_eq!((code, error), (Some(0), ""));
    let fields = ["/name", "/exchanges", "/queues", "/counters/published"];
    let shown: Vec<_> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|row: Value| fields.map(|field| row.pointer(field).cloned()))
        .collect();
    let row = |name: &str, exchanges: u64| [name.into(), exchanges.into(), 0.into(), 0.into()].map(Some);
    assert_eq!(shown, [row("/", 8), row("a/b c", 1)]);
}

#[test]
fn namespaces_and_queues_are_looked_after_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let expect = |arguments: &[&str], code: i32, out: &str, error: &str| {
        let output = stafett(http, arguments);
        assert_eq!(said(&output), (Some(code), out, error), "{arguments:?}");
    };
    expect(
        &["namespace", "create", "a/b c"],
        0,
        "namespace a/b c created\n",
        "",
    );
    expect(&["namespace", "list"], 0, "NAMESPACE\n/\na/b c\n", "");
    namespaces_have_counters(http);
    expect(
        &["namespace", "delete", "a/b c"],
        0,
        "namespace a/b c deleted\n",
        "",
    );
    expect(&["queue", "list"], 0, "no queues\n", "");
    // A name that is not an address itself but resolves to one.
    let by_name = format!("127.1:{}", http.port());
    let output = stafett_at(&by_name, &["queue", "list"]);
    assert_eq!(said(&output), (Some(0), "no queues\n", ""));
    for arguments in [
        &["namespace", "delete", "/"][..],
        &["namespace", "delete", "a/b c"],
        &["queue", "purge", "q"],
        &["queue", "messages", "q", "--priority", "3", "--header", "a=b"],
        &["queue", "move", "q", "--to", "r", "--namespace", "x"],
        &["queue", "delete", "q", "--if-unused"],
    ] {
        let output = stafett(http, arguments);
        let (code, out, error) = said(&output);
        assert_eq!((code, out), (Some(1), ""), "{arguments:?}");
        assert!(
            error.starts_with("stafett: ") && error.lines().count() == 1,
            "{error}"
        );
    }
    let output = stafett(http, &["queue", "messages", "q", "--header", "a"]);
    assert_eq!(
        said(&output),
        (Some(2), "", "stafett: --header a: a header is NAME=VALUE\n")
    );
    running.signal(Signal::TERM);
    assert_eq!(running.end().0.code(), Some(0));
    let output = stafett(http, &["namespace", "list"]);
    let (code, _, error) = said(&output);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("does not answer: is the broker running"),
        "{error}"
    );
}

/// Answers requests with these texts in order, and returns the requests.
fn canned(answers: &'static [&'static str]) -> (SocketAddr, std::thread::JoinHandle<Vec<String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = std::thread::spawn(move || {
        let ask = |answer: &&str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            lines.find(|line| line.as_deref().is_ok_and(str::is_empty));
            let length = answer.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{answer}"
            )
            .unwrap();
            first
        };
        answers.iter().map(ask).collect()
    });
    (address, asked)
}

#[test]
fn a_list_of_queues_is_asked_for_page_by_page() {
    let (http, asked) = canned(&[
        r#"{"items":[{"namespace":"/","name":"a"}],"next":"a b"}"#,
        r#"{"items":[{"namespace":"x","name":"b"}],"next":null}"#,
    ]);
    let output = stafett(http, &["queue", "list", "--json"]);
    let listed = "{\"name\":\"a\",\"namespace\":\"/\"}\n{\"name\":\"b\",\"namespace\":\"x\"}\n";
    assert_eq!(said(&output), (Some(0), listed, ""));
    let expected = [
        "GET /v1/queues?count=1000 HTTP/1.1",
        "GET /v1/queues?count=1000&after=a%20b HTTP/1.1",
    ];
    assert_eq!(asked.join().unwrap(), expected);
}
