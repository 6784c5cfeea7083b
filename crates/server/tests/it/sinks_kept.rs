//! Sinks that the broker keeps: run by a child of it, which may be killed, as the broker may.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Folder, Running, get, serve};
use crate::rights::Closed;

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A broker that keeps sinks.
pub(crate) struct Scene {
    pub(crate) folder: Folder,
    running: Option<Running>,
}

pub(crate) fn printed(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let running = Some(Running::start(serve(&folder)));
        fs::create_dir(folder.path().join("out")).unwrap();
        Self { folder, running }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// Ends the broker by a signal, and starts it again.
    pub(crate) fn restart(&mut self, signal: Signal) {
        let running = self.running.take().unwrap();
        running.signal(signal);
        running.end();
        self.start();
    }

    pub(crate) fn kill(&mut self) {
        drop(self.running.take());
    }

    pub(crate) fn start(&mut self) {
        self.running = Some(Running::start(serve(&self.folder)));
    }

    fn stafett(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
        command
            .env_clear()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn over_kafka(&self, arguments: &[&str]) -> Command {
        let mut command = Self::stafett(arguments);
        command.env("STAFETT_SERVER", self.running().address("kafka").to_string());
        command
    }

    /// `stafett sink …` on the broker's HTTP port.
    pub(crate) fn sink(&self, arguments: &[&str]) -> Command {
        let http = self.running().address("http").to_string();
        let mut command = Self::stafett(&["sink"]);
        command.args(arguments).args(["--http", &http]);
        command
    }

    pub(crate) fn define(&self, text: &str) {
        let file = self.folder.path().join("sinks.toml");
        fs::write(&file, text).unwrap();
        printed(
            self.sink(&["define", "-f", file.to_str().unwrap()])
                .output()
                .unwrap(),
        );
    }

    pub(crate) fn produce(&self, topic: &str, numbers: std::ops::Range<u64>) {
        let mut lines = String::new();
        for n in numbers {
            writeln!(lines, "k{n}:{{\"n\":{n}}}").unwrap();
        }
        let mut command = self.over_kafka(&["produce", topic, "-K", ":"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        printed(child.wait_with_output().unwrap());
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Returns the numbers in the files that manifests name, sorted.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for partition in 0..2 {
            let Ok(manifests) = fs::read_dir(self.out().join(format!("manifest/log/{partition}"))) else {
                continue;
            };
            for entry in manifests {
                let path = entry.unwrap().path();
                if path.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                let manifest: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                for file in manifest["files"].as_array().unwrap() {
                    // A part that has no name yet is not whole for readers.
                    let path = self.out().join(file["path"].as_str().unwrap());
                    let text = fs::read_to_string(path).unwrap_or_default();
                    let lines = text
                        .lines()
                        .map(|line| serde_json::from_str::<Value>(line).unwrap());
                    numbers.extend(lines.map(|row| row["n"].as_u64().unwrap()));
                }
            }
        }
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn wait_for(&self, count: u64) {
        let begun = Instant::now();
        while (self.numbers().len() as u64) < count {
            assert!(begun.elapsed() < PATIENCE, "{}", self.states());
        }
        assert_eq!(self.numbers(), (0..count).collect::<Vec<_>>());
    }

    pub(crate) fn states(&self) -> String {
        printed(self.sink(&["list", "--json"]).output().unwrap())
    }

    pub(crate) fn wait_for_state(&self, text: &str) {
        let begun = Instant::now();
        while !self.states().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "{}", self.states());
        }
    }

    pub(crate) fn children(&self) -> Vec<i32> {
        children(self.running())
    }
}

/// Returns the ids of a broker's children.
pub(crate) fn children(broker: &Running) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{}/task", broker.pid())).unwrap();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let text: Vec<String> = children.collect();
    let ids = text.iter().flat_map(|line| line.split_whitespace());
    ids.map(|id| id.parse().unwrap()).collect()
}

const COLUMNS: &str = "[sink.events.columns]\nn = { type = \"bigint\" }\n";

pub(crate) fn files(scene: &Scene) -> String {
    format!(
        "[sink.events]\nfrom = [\"log\"]\nto = \"files\"\npath = '{}'\nformat = \"ndjson\"\n\
         flush = {{ every = \"50ms\" }}\n{COLUMNS}",
        scene.out().display()
    )
}

#[test]
fn a_kept_sink_survives_kills_of_its_runner_and_of_the_broker() {
    let mut scene = Scene::new();
    assert_eq!(scene.children(), [0; 0], "without sinks there is no runner");
    printed(
        scene
            .over_kafka(&["topic", "create", "log", "-p", "2"])
            .output()
            .unwrap(),
    );
    scene.define(&files(&scene));
    scene.produce("log", 0..100);
    scene.wait_for(100);
    let [runner] = scene.children()[..] else {
        panic!("one runner: {:?}", scene.children());
    };
    kill_process(Pid::from_raw(runner).unwrap(), Signal::KILL).unwrap();
    scene.produce("log", 100..200);
    scene.wait_for(200);
    let metrics = get(scene.running().address("http"), "/metrics");
    assert!(
        metrics.contains("stafett_sink_runner_restarts_total 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("stafett_sink_rows_total{sink=\"events\"} "),
        "{metrics}"
    );
    let position = "stafett_sink_position{sink=\"events\",topic=\"log\",partition=\"1\"} ";
    let target = "stafett_sink_target{sink=\"events\",to=\"files\"} 1";
    assert!(
        metrics.contains(position) && metrics.contains(target),
        "{metrics}"
    );
    let [runner] = scene.children()[..] else {
        panic!("one runner: {:?}", scene.children());
    };
    scene.restart(Signal::KILL);
    let begun = Instant::now();
    while fs::read_to_string(format!("/proc/{runner}/comm")).is_ok_and(|comm| comm.starts_with("stafett")) {
        assert!(begun.elapsed() < PATIENCE, "the runner outlives its broker");
    }
    scene.produce("log", 200..300);
    scene.wait_for(300);
    scene.restart(Signal::TERM);
    scene.produce("log", 300..310);
    scene.wait_for(310);
    printed(scene.sink(&["delete", "events", "-y"]).output().unwrap());
    let begun = Instant::now();
    while !scene.children().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "the runner ends with the last sink");
    }
}

#[test]
fn kept_sinks_are_paused_changed_and_replayed() {
    let scene = Scene::new();
    printed(
        scene
            .over_kafka(&["topic", "create", "log", "-p", "1"])
            .output()
            .unwrap(),
    );
    printed(
        scene
            .over_kafka(&["topic", "create", "copy", "-p", "1"])
            .output()
            .unwrap(),
    );
    scene.define(
        "[sink.copier]\nfrom = \"log\"\nto = \"topic\"\ntopic = \"copy\"\nflush = { every = \"50ms\" }\n",
    );
    scene.produce("log", 0..10);
    scene.wait_for_state("\"rows\":10");
    printed(scene.sink(&["pause", "copier"]).output().unwrap());
    scene.wait_for_state("\"state\":\"paused\"");
    scene.produce("log", 10..20);
    printed(scene.sink(&["resume", "copier"]).output().unwrap());
    scene.wait_for_state("\"rows\":20");
    let positions = printed(scene.sink(&["positions", "copier", "--json"]).output().unwrap());
    let position: Value = serde_json::from_str(&positions).unwrap();
    assert_eq!(position["next"], 20);
    let replayed = ["replay", "copier", "--set", "log/0=15", "--json"];
    let replayed = printed(scene.sink(&replayed).output().unwrap());
    assert!(replayed.contains("\"next\":15"), "{replayed}");
    scene.wait_for_state("\"lag\":0");
    let consume = ["consume", "copy", "--from", "earliest", "--until", "latest"];
    let begun = Instant::now();
    while printed(scene.over_kafka(&consume).output().unwrap())
        .lines()
        .count()
        < 25
    {
        assert!(begun.elapsed() < PATIENCE, "{}", scene.states());
    }
    let refused = scene
        .sink(&["replay", "copier", "--from", "yesterday"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("yesterday"),
        "{refused:?}"
    );
    // Another definition of the same sink.
    scene.define("[sink.copier]\nfrom = \"log\"\nto = \"topic\"\ntopic = \"none\"\n");
    scene.wait_for_state("\"state\":\"stopped\"");
}

#[test]
fn records_of_another_broker_come_over_once_although_the_sink_is_killed() {
    let (source, scene) = (Scene::new(), Scene::new());
    printed(
        source
            .over_kafka(&["topic", "create", "log", "-p", "2"])
            .output()
            .unwrap(),
    );
    source.produce("log", 0..300);
    let text = format!(
        "[sink.relay]\nfrom = \"log\"\nsource = {{ kafka = \"{}\" }}\nto = \"topic\"\ntopic = \"moved\"\n\
         flush = {{ records = 20, every = \"50ms\" }}\n",
        source.running().address("kafka")
    );
    let file = scene.folder.path().join("relay.toml");
    fs::write(&file, text).unwrap();
    let run = |word: &str| {
        let mut command = scene.over_kafka(&["sink", word, "-f", file.to_str().unwrap()]);
        command.args(["--http", &scene.running().address("http").to_string()]);
        command
    };
    printed(run("apply").output().unwrap());
    for step in ["sent:3", "position:2", "committed:4"] {
        let ended = run("run").env("STAFETT_TEST_DIE_AT", step).output().unwrap();
        assert_eq!(ended.status.code(), None, "{step}: {ended:?}");
    }
    let relay = Running::start(run("run"));
    let consume = ["consume", "moved", "--from", "earliest", "--until", "latest"];
    let begun = Instant::now();
    let moved = || printed(scene.over_kafka(&consume).output().unwrap());
    while moved().lines().count() < 300 {
        assert!(begun.elapsed() < PATIENCE, "{} records", moved().lines().count());
    }
    relay.signal(Signal::TERM);
    assert!(relay.end().0.success());
    let mut lines: Vec<String> = moved().lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 300, "none is missing");
    assert_eq!(moved().lines().count(), 300, "none is there twice");
}

#[test]
fn a_closed_broker_runs_its_sinks_and_refuses_those_of_strangers() {
    let closed = Closed::start();
    let out = Folder::new();
    assert_eq!(
        closed
            .ask("PUT /v1/topics/log", Some("root"), "{\"partitions\":1}")
            .0,
        201
    );
    let definition = format!(
        "{{\"from\":\"log\",\"to\":\"files\",\"path\":\"{}\",\"flush\":{{\"every\":\"50ms\"}}}}",
        out.path().display()
    );
    let (status, _, said) = closed.ask("PUT /v1/sinks/s", Some("eve"), &definition);
    assert_eq!(status, 403, "{said}");
    let (status, _, said) = closed.ask("PUT /v1/sinks/s", Some("root"), &definition);
    assert_eq!(status, 201, "{said}");
    let record = "POST /v1/topics/log/records";
    assert_eq!(closed.ask(record, Some("root"), "{\"n\":1}").0, 200);
    let begun = Instant::now();
    let manifest = out.path().join("manifest/log/0/00000001.json");
    while !manifest.exists() {
        let (_, _, said) = closed.ask("GET /v1/sinks/s", Some("root"), "");
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
    let worker = || {
        let (_, _, said) = closed.ask("GET /v1/apps/sink.s", Some("root"), "");
        let app: Value = serde_json::from_str(&said).unwrap();
        app["tasks"][0]["worker"].clone()
    };
    let before = worker();
    assert!(before.is_string(), "{before}");
    assert_eq!(closed.ask("GET /v1/sinks/s/positions", Some("eve"), "").0, 403);
    let (status, _, said) = closed.ask("GET /v1/sinks/s/positions", Some("root"), "");
    assert_eq!(status, 200, "{said}");
    assert!(said.contains("\"next\":1"), "{said}");
    assert_eq!(worker(), before, "it runs on");
}
