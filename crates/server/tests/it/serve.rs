//! The real binary, from its start to its end.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Folder, Running, connect, ended, get, serve};

fn error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "one sentence: {text}");
    text
}

#[test]
fn it_says_where_it_listens_and_answers_there() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let health = get(http, "/health");
    assert!(
        health.starts_with("HTTP/1.1 200 OK") && health.contains("{\"status\":\"ok\"}"),
        "{health}"
    );
    let metrics = get(http, "/metrics");
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(
        metrics.contains("stafett_connections_accepted_total{listener=\"http\"} 2"),
        "{metrics}"
    );
    assert!(metrics.trim_end().ends_with("# EOF"));
    assert!(get(http, "/").contains("This is Stafett"));
    assert!(get(http, "/nothing").starts_with("HTTP/1.1 404"));

    running.signal(Signal::TERM);
    let (status, rest, _) = running.end();
    assert_eq!(status.code(), Some(0));
    let tries: Vec<_> = rest.lines().collect();
    assert_eq!(tries.len(), 3, "three lines to try: {rest}");
    assert!(
        tries.iter().all(|line| line.starts_with("  ")) && rest.contains(&http.to_string()),
        "{rest}"
    );
}

#[test]
fn interrupt_ends_it_too_and_logs_are_json_if_asked() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--log-format", "json", "--log-level", "debug"]);
    let running = Running::start(command);
    running.signal(Signal::INT);
    let (status, _, logs) = running.end();
    assert_eq!(status.code(), Some(0));
    assert!(logs.contains("\"by\":\"SIGINT\""), "{logs}");
    assert!(
        logs.lines()
            .all(|line| line.starts_with('{') && line.ends_with('}')),
        "{logs}"
    );
}

#[test]
fn clients_that_hold_their_connections_do_not_hold_up_the_end() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let silent = connect(running.address("http"));
    let mut halfway = connect(running.address("http"));
    halfway.write_all(b"GET /health HTT").unwrap();
    let mut kept = connect(running.address("http"));
    kept.write_all(b"GET /health HTTP/1.1\r\nhost: test\r\n\r\n")
        .unwrap();
    let mut answer = [0; 15];
    kept.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let start = Instant::now();
    running.signal(Signal::TERM);
    assert_eq!(running.end().0.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(10));
    drop((silent, halfway, kept));
}

#[test]
fn headers_beyond_the_limit_are_refused() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let mut many = String::from("GET / HTTP/1.1\r\nhost: test\r\n");
    for number in 0..100 {
        write!(many, "h{number}: x\r\n").unwrap();
    }
    let large = format!(
        "GET / HTTP/1.1\r\nhost: test\r\nlarge: {}\r\n",
        "x".repeat(50_000)
    );
    for request in [many, large] {
        let mut stream = connect(running.address("http"));
        // The answer may come, and the connection end, before all of it is sent.
        let _ = stream.write_all(format!("{request}\r\n").as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    }
    assert!(get(running.address("http"), "/health").contains("200 OK"));
}

#[test]
fn an_unknown_setting_ends_it_with_the_place_and_the_nearest_name() {
    let folder = Folder::new();
    let file = folder.path().join("stafett.toml");
    std::fs::write(&file, "# settings\n[kafka]\nlissen = '127.0.0.1:0'\n").unwrap();
    let output = ended(serve(&folder), &["--config".as_ref(), file.as_os_str()]);
    assert_eq!(output.status.code(), Some(2));
    let said = error(&output);
    assert!(
        said.ends_with(
            "stafett.toml:3: unknown setting kafka.lissen; the nearest known one is kafka.listen\n"
        ),
        "{said}"
    );

    let mut command = serve(&folder);
    command.env("STAFETT_DATADIR", "x");
    let output = ended(command, &[""; 0]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("STAFETT_DATADIR; the nearest known one is STAFETT_DATA_DIR"));
}

#[test]
fn a_busy_port_is_named_with_the_setting_to_change() {
    let folder = Folder::new();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command
        .env_clear()
        .args(["serve", "--kafka", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path());
    let output = ended(command, &["--http", &address, "--log-level", "off"]);
    assert_eq!(output.status.code(), Some(1));
    let said = error(&output);
    assert!(
        said.contains(&format!("cannot listen on {address}: the address is in use")),
        "{said}"
    );
    assert!(
        said.contains("setting http.listen, --http, variable STAFETT_HTTP_LISTEN"),
        "{said}"
    );
}

#[test]
fn an_address_that_others_can_reach_needs_a_word() {
    let output = Command::new(env!("CARGO_BIN_EXE_stafett"))
        .env_clear()
        .args(["serve", "--http", "0.0.0.0:0", "--kafka", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("set allow_unauthenticated = true"));
}
