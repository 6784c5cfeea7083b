//! The daily commands of the real binary: output and exit codes. Their effects on brokers are tested in
//! `tests/clients`, on Stafett and on Apache Kafka.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use crate::common::{Folder, Running, serve};

/// The command, pointed at `server`; nothing of this process's environment reaches it.
fn stafett(server: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command
        .env_clear()
        .env("STAFETT_SERVER", server.to_string())
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn printed(server: SocketAddr, arguments: &[&str]) -> String {
    let output = stafett(server, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn produce(server: SocketAddr, folder: &Folder, topic: &str, input: &[u8]) -> Output {
    let file = folder.path().join("input");
    fs::write(&file, input).unwrap();
    stafett(server, &["produce", topic])
        .stdin(File::open(&file).unwrap())
        .output()
        .unwrap()
}

#[test]
fn tables_are_aligned_and_have_no_noise() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let server = running.address("kafka");
    assert_eq!(printed(server, &["topic", "list"]), "no topics\n");
    assert_eq!(printed(server, &["group", "list"]), "no groups\n");
    printed(
        server,
        &[
            "topic",
            "create",
            "audit.log",
            "-p",
            "1",
            "--set",
            "stafett.durability=os",
        ],
    );
    printed(
        server,
        &[
            "topic",
            "create",
            "orders",
            "-p",
            "12",
            "--set",
            "retention.ms=36h",
        ],
    );
    let lines = "x\n".repeat(1234);
    let output = produce(server, &folder, "audit.log", lines.as_bytes());
    assert!(
        said(&output).starts_with("1,234 records to audit.log in "),
        "{output:?}"
    );

    let listed = printed(server, &["topic", "list"]);
    let columns: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        columns[0],
        ["TOPIC", "PARTITIONS", "RECORDS", "SIZE", "DURABILITY"]
    );
    assert_eq!(columns[1][..3], ["audit.log", "1", "1,234"]);
    assert_eq!(columns[1].last(), Some(&"os"));
    assert_eq!(columns[2][..3], ["orders", "12", "0"]);
    assert!(listed.starts_with("TOPIC      PARTITIONS  RECORDS"), "{listed}");
    assert!(listed.contains("\norders             12        0"), "{listed}");

    let described = printed(server, &["topic", "describe", "audit.log"]);
    let (title, rest) = described.split_once("\n\n").unwrap();
    assert!(
        title.starts_with("audit.log  1 partition  1,234 records  id "),
        "{title}"
    );
    assert_eq!(
        rest,
        "PARTITION  LEADER  START   END  RECORDS\n        0       1      0  1234    1,234\n\nSETTING             \
         VALUE\nstafett.durability  os\n"
    );
    let described = printed(server, &["topic", "describe", "orders"]);
    assert!(
        described.ends_with("\nretention.ms  129600000 (36h)\n"),
        "{described}"
    );
}

#[test]
fn wrong_command_lines_end_with_code_2_before_anything_is_asked() {
    // No connection is accepted: a client that connects would wait.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = nobody.local_addr().unwrap();
    for (arguments, reason) in [
        (&["topic"][..], "Usage: stafett topic"),
        (&["topic", "create"], "required"),
        (&["topic", "create", "a", "-p", "0"], "0 is not in"),
        (
            &["topic", "create", "a", "--set", "x"],
            "expected KEY=VALUE, such as retention.ms=7d",
        ),
        (&["topic", "set", "a"], "required"),
        (&["topic", "list", "--server", "nowhere"], "expected HOST:PORT"),
        (&["topic", "list", "--server", "127.0.0.1:0"], "port 0"),
        (
            &["topic", "list", "--server", "127.0.0.1:99999"],
            "expected HOST:PORT",
        ),
        (&["produce", "a b"], "only a-z, A-Z"),
        (
            &["produce", "a", "--format", "xml"],
            "possible values: line, json, raw, base64",
        ),
        (
            &["produce", "a", "-z", "rar"],
            "possible values: none, gzip, snappy, lz4, zstd",
        ),
        (&["produce", "a", "--acks", "2"], "possible values: all, 1, 0"),
        (&["produce", "a", "--delimiter", ""], "at least one byte"),
        (&["produce", "a", "-H", "x"], "expected KEY=VALUE"),
        (&["consume", "a:x"], "expected TOPIC or TOPIC:PARTITIONS"),
        (
            &["consume", "a", "--from", "soon"],
            "--from soon: expected earliest, latest",
        ),
        (&["consume", "a", "--max", "0"], "0 is not in"),
        (&["consume", "a", "--format", "%q"], "not %q"),
        (
            &["consume", "a", "--json", "--format", "%v"],
            "cannot be used with",
        ),
        (&["consume", "a", "-f", "--until", "5"], "cannot be used with"),
        (
            &["consume", "a:0", "--group", "g"],
            "a group gives out the partitions",
        ),
        (&["group", "reset", "g"], "required"),
        (
            &["group", "reset", "g", "--to", "x"],
            "--to x: expected earliest, latest",
        ),
        (
            &["group", "reset", "g", "--to", "5", "--by", "5"],
            "cannot be used with",
        ),
        (&["completions", "csh"], "possible values: bash"),
    ] {
        let output = stafett(server, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(said(&output).contains(reason), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn a_broker_that_is_not_there_is_named_with_what_to_do() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = stafett(address, &["topic", "list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        format!(
            "stafett: cannot connect to {address}: nothing listens there; start a broker with `stafett serve`, or name \
             another one with --server HOST:PORT\n"
        )
    );
}

#[test]
fn several_servers_are_tried_in_order() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let server = running.address("kafka");
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = format!("{dead},{server}");
    assert_eq!(
        printed(dead, &["topic", "--server", &both, "list"]),
        "no topics\n"
    );
}

#[test]
fn whoever_stops_reading_ends_it_quietly() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let server = running.address("kafka");
    printed(server, &["topic", "create", "t", "-p", "1"]);
    produce(server, &folder, "t", "a line\n".repeat(300_000).as_bytes());
    let mut consume = stafett(server, &["consume", "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(consume.stdout.take());
    let output = consume.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()));
}

#[test]
fn shells_are_told_what_to_complete() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(nobody, &["completions", shell]);
        assert!(
            script.contains("key-separator") && script.contains("describe"),
            "{shell}"
        );
    }
}

#[test]
fn the_lines_to_try_do_what_they_say() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--log-level", "off"]);
    let running = Running::start(command);
    let server = running.address("kafka");
    let output = stafett(server, &["produce", "demo", "--create"])
        .stdin({
            let file = folder.path().join("hello");
            fs::write(&file, "hello\n").unwrap();
            File::open(file).unwrap()
        })
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(printed(server, &["consume", "demo"]), "hello\n");
    running.signal(rustix::process::Signal::TERM);
    let (_, rest, _) = running.end();
    let tries: Vec<_> = rest.lines().map(str::trim).collect();
    assert!(
        tries[0].starts_with("echo hello | ") && tries[0].contains(" produce demo --create"),
        "{rest}"
    );
    assert!(tries[1].contains(" consume demo"), "{rest}");
    assert!(tries[1].ends_with(&format!("--server {server}")), "{rest}");
}
