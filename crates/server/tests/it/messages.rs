//! Exchanges, bindings, clients and messages by command.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Folder, Running, serve};

/// Runs a command with this input, and returns its output. Panics unless it succeeds.
pub(crate) fn run(http: SocketAddr, arguments: &[&str], input: &[u8]) -> String {
    let (code, out, error) = run_any(http, arguments, input);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
    out
}

pub(crate) fn run_any(http: SocketAddr, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stafett"))
        .env_clear()
        .args(arguments)
        .args(["--http", &http.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_queue_is_created_with_its_settings_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let does = |arguments: &[&str], out: &str| assert_eq!(run(http, arguments, b""), out, "{arguments:?}");
    does(
        &[
            "queue",
            "create",
            "orders",
            "--priorities",
            "10",
            "--ttl",
            "1h",
            "--dead-letter-to",
            "dead",
        ],
        "queue orders created\n",
    );
    let shown = json(&run(http, &["queue", "show", "orders", "--json"], b""));
    assert_eq!(shown["priority_max"], 10);
    assert_eq!(shown["ttl_ms"], 3_600_000);
    assert_eq!(shown["dead_letter"]["routing_key"], "dead");
}

#[test]
fn a_message_goes_through_an_exchange_into_a_queue_and_out_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let does = |arguments: &[&str], out: &str| assert_eq!(run(http, arguments, b""), out, "{arguments:?}");
    does(
        &["queue", "create", "orders", "--priorities", "10"],
        "queue orders created\n",
    );
    does(
        &["exchange", "create", "events", "--kind", "topic"],
        "exchange events created\n",
    );
    does(
        &[
            "binding", "create", "events", "--queue", "orders", "--key", "orders.#",
        ],
        "queue orders bound to events\n",
    );
    does(
        &["exchange", "route", "events", "orders.eu"],
        "KIND   NAME\nqueue  orders\n",
    );
    does(
        &["exchange", "route", "events", "other"],
        "nowhere: no binding fits\n",
    );
    does(
        &["message", "publish", "events", "-k", "orders.eu", "hello"],
        "stored in orders\n",
    );
    does(
        &["message", "send", "--queue", "orders", "--priority", "7", "first"],
        "stored in orders (sync)\n",
    );
    let first = json(&run(http, &["message", "receive", "orders", "--stored"], b""));
    assert_eq!(
        (&first["content"], &first["priority"]),
        (&"first".into(), &7.into())
    );
    let held = json(&run(
        http,
        &["message", "receive", "orders", "--lease", "1m"],
        b"",
    ));
    assert_eq!(
        (&held["content"], &held["routing_key"]),
        (&"hello".into(), &"orders.eu".into())
    );
    let lease = held["lease"].as_str().unwrap();
    does(
        &["message", "settle", "orders", "--complete", lease],
        "1 settled, 0 extended, 0 have ended before\n",
    );
    does(&["message", "receive", "orders"], "");
    let listed = run(http, &["binding", "list", "events", "--json"], b"");
    let id = json(&listed)["id"].as_str().unwrap().to_owned();
    does(
        &["binding", "delete", &id, "--yes"],
        "queue orders no longer bound to events\n",
    );
    does(&["binding", "list", "events"], "no bindings\n");
    does(
        &["exchange", "delete", "events", "--yes"],
        "exchange events deleted with 0 bindings\n",
    );
}

#[test]
fn clients_call_each_other_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let does = |arguments: &[&str], out: &str| assert_eq!(run(http, arguments, b""), out, "{arguments:?}");
    does(&["client", "list"], "no clients\n");
    does(&["client", "register", "jürgen"], "client jürgen registered\n");
    does(&["client", "register", "bob"], "client bob registered\n");
    let request = std::thread::spawn(move || {
        run(
            http,
            &["message", "call", "bob", "ping", "--wait", "1m", "--as", "jürgen"],
            b"",
        )
    });
    let asked = json(&run(
        http,
        &["message", "receive", "client.bob", "--wait", "1m", "--as", "bob"],
        b"",
    ));
    assert_eq!(
        (&asked["content"], &asked["sender"]),
        (&"ping".into(), &"jürgen".into())
    );
    let context = asked["context"].to_string();
    let answer = [
        "message",
        "send",
        "--client",
        "jürgen",
        "--context",
        &context,
        "--as",
        "bob",
        "-",
    ];
    run(http, &answer, b"pong\xff");
    let answered = json(&request.join().unwrap());
    assert_eq!(answered["content_base64"], "cG9uZ/8=");
    let key = [
        "message",
        "send",
        "--queue",
        "client.bob",
        "--idempotency-key",
        "k",
        "--json",
        "once",
    ];
    assert_eq!(json(&run(http, &key, b""))["repeated"], false);
    assert_eq!(json(&run(http, &key, b""))["repeated"], true);
    does(
        &["client", "list"],
        "CLIENT  QUEUE          READY\nbob     client.bob         1\njürgen  client.jürgen      0\n",
    );
    does(
        &["client", "delete", "bob", "--yes"],
        "client bob deleted with 1 messages\n",
    );
}

#[test]
fn wrong_messages_are_refused_in_one_line_by_command() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    for (arguments, code, why) in [
        (&["message", "send", "--queue", "q", "x"][..], 1, "q"),
        (&["message", "publish", "x", "hello"], 1, "x"),
        (&["message", "call", "bob", "hello"], 1, "client"),
        (&["message", "receive", "q"], 1, "q"),
        (&["message", "settle", "q", "--complete", "0-0-0"], 1, "q"),
        (
            &["message", "send", "--queue", "q", "--header", "h", "x"],
            2,
            "NAME=VALUE",
        ),
        (&["message", "send", "x"], 2, "--queue"),
        (&["exchange", "create", "amq.mine"], 1, "amq."),
        (&["exchange", "create", "x", "--kind", "other"], 2, "other"),
        (&["exchange", "show", "x"], 1, "x"),
        (&["binding", "create", "x"], 2, "--queue"),
        (&["binding", "create", "x", "--queue", "q"], 1, "x"),
        (&["binding", "delete", "0"], 1, "0"),
        (&["client", "show", "ann"], 1, "ann"),
        (&["queue", "create", "q", "--ttl", "soon"], 2, "30s"),
        (&["queue", "create", "q", "--from", "latest"], 2, "--over"),
    ] {
        let (ended, out, error) = run_any(http, arguments, b"");
        assert_eq!((ended, out.as_str()), (Some(code), ""), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
        assert!(code == 2 || error.lines().count() == 1, "{error}");
    }
}
