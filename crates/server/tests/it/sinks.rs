//! A sink of the real binary beside a real broker: from the definition to the files, killed in between.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Folder, Running, connect, get, serve};

pub(crate) const RECORDS: u64 = 600;
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A broker, and a file of definitions.
pub(crate) struct Scene {
    pub(crate) folder: Folder,
    running: Running,
}

impl Scene {
    /// Starts a broker with a topic of two partitions, and a sink of its records into files.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("out");
        let fields = format!("to = \"files\"\npath = '{}'\nformat = \"ndjson\"", path.display());
        Self::with(folder, &fields)
    }

    /// The same, with a sink into another target.
    pub(crate) fn into(fields: &str) -> Self {
        Self::with(Folder::new(), fields)
    }

    fn with(folder: Folder, fields: &str) -> Self {
        let running = Running::start(serve(&folder));
        Self::beside(folder, running, fields)
    }

    /// The same, over a broker that runs.
    pub(crate) fn beside(folder: Folder, running: Running, fields: &str) -> Self {
        let scene = Self { folder, running };
        let definition = format!(
            "[sink.events]\nfrom = [\"log\"]\n{fields}\nplace = true\n\
             flush = {{ records = 40, every = \"100ms\" }}\n\
             [sink.events.columns]\nn = {{ type = \"bigint\" }}\nwords = {{ from = \"w.x\", type = \"text\" }}\n"
        );
        fs::write(scene.file(), definition).unwrap();
        scene.done(&["topic", "create", "log", "-p", "2"]);
        scene
    }

    /// Ends the sink behind each of some steps, and lets it go on to the end.
    pub(crate) fn run_with_kills(&self, steps: &[&str]) {
        self.sink("apply", &[]).output().unwrap();
        self.shorten_time_out();
        self.produce(&lines());
        for step in steps {
            let mut command = self.sink("run", &[]);
            let ended = command.env("STAFETT_TEST_DIE_AT", step).output().unwrap();
            assert_eq!(ended.status.code(), None, "{step}: {ended:?}");
        }
        self.run_to_the_end(RECORDS);
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("sinks.toml")
    }

    fn http(&self) -> SocketAddr {
        self.running.address("http")
    }

    pub(crate) fn kafka(&self) -> SocketAddr {
        self.running.address("kafka")
    }

    pub(crate) fn stafett(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
        command
            .env_clear()
            .env("STAFETT_SERVER", self.kafka().to_string())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `stafett sink WORD -f FILE …`.
    pub(crate) fn sink(&self, word: &str, more: &[&str]) -> Command {
        let (file, http) = (self.file(), self.http().to_string());
        let mut command = self.stafett(&["sink", word, "-f", file.to_str().unwrap(), "--http", &http]);
        command.args(more);
        command
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        printed(self.stafett(arguments).output().unwrap())
    }

    pub(crate) fn produce(&self, lines: &str) {
        self.produce_to("log", lines);
    }

    pub(crate) fn produce_to(&self, topic: &str, lines: &str) {
        let mut command = self.stafett(&["produce", topic, "-K", ":"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        printed(child.wait_with_output().unwrap());
    }

    /// Shortens the time after which a worker counts as dead.
    pub(crate) fn shorten_time_out(&self) {
        let mut stream = connect(self.http());
        let body = "{\"worker_timeout_ms\": 1000}";
        write!(
            stream,
            "PATCH /v1/apps/sink.events HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.http(),
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Returns the sum of all positions in the target.
    pub(crate) fn position(&self) -> u64 {
        let lines = printed(self.sink("position", &["--json"]).output().unwrap());
        let next = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["next"]
                .as_u64()
                .unwrap()
        };
        lines.lines().map(next).sum()
    }

    /// Runs the sink until everything is in the target, and stops it.
    pub(crate) fn run_to_the_end(&self, records: u64) {
        let sink = Running::start(self.sink("run", &[]));
        let begun = Instant::now();
        while self.position() < records {
            assert!(begun.elapsed() < PATIENCE, "at {} of {records}", self.position());
        }
        sink.signal(Signal::TERM);
        let (status, _, error) = sink.end();
        assert!(status.success(), "{error}");
    }

    /// Returns the rows of all files that manifests name, by place.
    pub(crate) fn rows(&self) -> Vec<(u64, u64, Value)> {
        let out = self.folder.path().join("out");
        let mut rows = Vec::new();
        for partition in 0..2 {
            let manifests = out.join(format!("manifest/log/{partition}"));
            let mut numbers: Vec<_> = fs::read_dir(manifests)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
                .collect();
            numbers.sort();
            for path in numbers {
                let manifest: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                for file in manifest["files"].as_array().unwrap() {
                    let text = fs::read_to_string(out.join(file["path"].as_str().unwrap())).unwrap();
                    for line in text.lines() {
                        let row: Value = serde_json::from_str(line).unwrap();
                        let offset = row["_offset"].as_u64().unwrap();
                        rows.push((partition, offset, row));
                    }
                }
            }
        }
        rows
    }
}

pub(crate) fn printed(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines() -> String {
    let mut lines = String::new();
    for n in 0..RECORDS {
        writeln!(lines, "k{n}:{{\"n\":{n},\"w\":{{\"x\":\"word {n}\"}}}}").unwrap();
    }
    lines
}

#[test]
fn records_are_in_files_once_although_the_sink_is_killed_between_its_steps() {
    let scene = Scene::new();
    let missing = scene.sink("diff", &[]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let said = printed(scene.sink("apply", &[]).output().unwrap());
    assert!(said.contains("made events: the app sink.events"), "{said}");
    assert_eq!(printed(scene.sink("diff", &[]).output().unwrap()), "");
    scene.run_with_kills(&[
        "opened:1",
        "bounds:2",
        "file:2",
        "files:3",
        "manifest:2",
        "renamed:3",
    ]);
    let rows = scene.rows();
    let places: Vec<_> = rows
        .iter()
        .map(|(partition, offset, _)| (*partition, *offset))
        .collect();
    let mut sorted = places.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(places, sorted, "in order, and none twice");
    let mut numbers: Vec<_> = rows
        .iter()
        .map(|(_, _, row)| row["n"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..RECORDS).collect::<Vec<_>>(), "none is missing");
    let status = printed(scene.sink("status", &[]).output().unwrap());
    assert!(
        status.lines().skip(1).all(|line| line.ends_with(" 0")),
        "no lag: {status}"
    );
}

#[test]
fn poison_is_set_aside_and_a_paused_sink_rests() {
    let scene = Scene::new();
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.produce("a:{\"n\":1}\na:not JSON\na:{\"n\":\"two\"}\na:{\"n\":3}\n");
    let tried = printed(scene.sink("dry-run", &[]).output().unwrap());
    assert!(tried.contains("\tpoison (not_json): not JSON"), "{tried}");
    assert!(tried.contains("\"n\":3,\"words\":null}"), "{tried}");
    printed(scene.sink("pause", &[]).output().unwrap());
    let sink = Running::start(scene.sink("run", &[]));
    let begun = Instant::now();
    let status = || printed(scene.sink("status", &[]).output().unwrap());
    while !status().contains("sink-") {
        assert!(begun.elapsed() < PATIENCE, "no partition is claimed");
    }
    assert!(status().contains("paused"));
    printed(scene.sink("resume", &[]).output().unwrap());
    while scene.position() < 4 {
        assert!(begun.elapsed() < PATIENCE, "at {}", scene.position());
    }
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
    let numbers: Vec<_> = scene.rows().iter().map(|(_, _, row)| row["n"].clone()).collect();
    assert_eq!(numbers, [1, 3]);
    let letters = scene.done(&[
        "consume",
        "events.dead",
        "--from",
        "earliest",
        "--until",
        "latest",
        "--json",
    ]);
    let letters: Vec<Value> = letters
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(letters.len(), 2, "{letters:?}");
    let text = letters[1].to_string();
    for part in ["stafett-class", "type", "column n: ", "two"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_sink_that_cannot_begin_beside_another_is_told() {
    let scene = Scene::new();
    let own = fs::read_to_string(scene.file()).unwrap();
    let other = own.replace("sink.events", "sink.other");
    fs::write(scene.file(), other.replace("[\"log\"]", "[\"log\", \"more\"]")).unwrap();
    scene.done(&["topic", "create", "more", "-p", "2"]);
    printed(scene.sink("apply", &[]).output().unwrap());
    fs::write(scene.file(), format!("{own}{other}")).unwrap();
    scene.produce(&lines());
    let sink = Running::start(scene.sink("run", &["--metrics", "127.0.0.1:0"]));
    let stopped = "stafett_sink_state{sink=\"other\",state=\"stopped\"} 1";
    let written = "stafett_sink_lag_records{sink=\"events\"} 0";
    let begun = Instant::now();
    let metrics = || get(sink.address("metrics"), "/metrics");
    while ![stopped, written].iter().all(|line| metrics().contains(line)) {
        assert!(begun.elapsed() < PATIENCE, "{}", metrics());
    }
    sink.signal(Signal::TERM);
    let (status, _, error) = sink.end();
    assert!(!status.success());
    let told = error
        .lines()
        .any(|line| line.contains("ERROR") && line.contains("the app sink.other reads"));
    assert!(told, "{error}");
}
