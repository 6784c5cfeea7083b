//! A data directory of an earlier build, killed, opens with everything in it (`tests/data/earlier.py` made it).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Folder, Running, connect, ended, serve};

const BY_CODEC: u64 = 120;
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

fn get(http: SocketAddr, path: &str) -> String {
    let mut stream = connect(http);
    let guest = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=";
    let request = format!("GET {path} HTTP/1.1\r\nhost: {http}\r\n{guest}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn json(http: SocketAddr, path: &str) -> Value {
    let answer = get(http, path);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap()
}

fn unpack(folder: &Folder) {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/earlier.tgz");
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(archive).arg("-C").arg(folder.path());
    assert!(tar.status().unwrap().success());
}

/// Asserts that every record has its value, at its offset.
fn check_records(running: &Running) {
    let mut consume = Command::new(env!("CARGO_BIN_EXE_stafett"));
    consume.env_clear();
    let kafka = running.address("kafka").to_string();
    let arguments = ["consume", "events", "--json", "--server", &kafka];
    let output = ended(consume, &arguments);
    let mut found: Vec<(u64, u64, String)> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let number = |field: &str| record[field].as_u64().unwrap();
            let value = record["value"].as_str().unwrap().to_owned();
            (number("partition"), number("offset"), value)
        })
        .collect();
    found.sort();
    let mut expected: Vec<_> = (0..BY_CODEC * CODECS.len() as u64)
        .map(|number| {
            let codec = CODECS[usize::try_from(number / BY_CODEC).unwrap()];
            let more = "x".repeat(usize::try_from(number % 50).unwrap());
            (number % 3, number / 3, format!("{codec} {number} {more}"))
        })
        .filter(|(partition, offset, _)| *partition > 0 || *offset >= 10)
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

fn check_all(running: &Running) {
    check_records(running);
    let http = running.address("http");
    let gone = get(http, "/v1/topics/gone");
    assert!(gone.starts_with("HTTP/1.1 404"), "{gone}");
    let group = json(http, "/v1/groups/readers");
    let commits = group["commits"].as_array().unwrap().iter();
    let committed: Vec<_> = commits
        .map(|commit| commit["committed"].as_u64().unwrap())
        .collect();
    assert_eq!(committed, [50, 60, 200], "{group}");
    // Of 100 messages 20 were settled, and 5 rejected; 5 were in flight. The transient one is gone.
    for (queue, ready) in [("orders", 75), ("dead", 5), ("copies", 39)] {
        let path = format!("/v1/queues/{queue}");
        let mut found = json(http, &path);
        while found["ready"] != ready {
            assert!(found["ready"].as_u64() > Some(ready), "{found}");
            found = json(http, &path);
        }
    }
    let team = json(http, "/api/queues/team/orders");
    assert_eq!(team["messages"], 3, "{team}");
    let bindings = json(http, "/api/exchanges/%2f/routes/bindings/source");
    assert_eq!(bindings.as_array().unwrap().len(), 2, "{bindings}");
    let orders = json(http, "/api/queues/%2f/orders");
    assert_eq!(orders["arguments"]["x-max-priority"], 9, "{orders}");
}

#[test]
fn a_data_directory_of_an_earlier_build_opens_with_everything_in_it() {
    let folder = Folder::new();
    unpack(&folder);
    // As it was left, and as this build left it.
    for _ in 0..2 {
        let running = Running::start(serve(&folder));
        check_all(&running);
        running.signal(Signal::TERM);
        assert_eq!(running.end().0.code(), Some(0));
    }
}
