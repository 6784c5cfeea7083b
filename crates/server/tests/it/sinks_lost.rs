//! Sinks that lose something: a topic that is deleted and made again, a target, their runner or its broker.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of tests fail as tests do"
)]

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::get;
use crate::rights::Closed;
use crate::sinks_kept::{PATIENCE, Scene, files, printed};

const COPIER: &str = "[sink.copier]\nfrom = \"log\"\nto = \"topic\"\ntopic = \"copy\"\nflush = { records = 20, every = \"50ms\" }\n";

impl Scene {
    fn topic(&self, arguments: &[&str]) {
        let arguments = [&["topic"], arguments].concat();
        printed(self.over_kafka(&arguments).output().unwrap());
    }

    /// Makes the topic of the sinks anew.
    fn make_again(&self) {
        self.topic(&["delete", "log", "--yes"]);
        self.topic(&["create", "log", "-p", "1"]);
    }

    /// Returns the numbers in the topic of copies, sorted.
    fn copies(&self) -> Vec<u64> {
        let consume = ["consume", "copy", "--from", "earliest", "--until", "latest"];
        let lines = printed(self.over_kafka(&consume).output().unwrap());
        let number = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["n"]
                .as_u64()
                .unwrap()
        };
        let mut numbers: Vec<u64> = lines.lines().map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the offset behind the last batch of the topic of copies.
    fn end_of_copies(&self) -> String {
        let described = get(self.running().address("http"), "/v1/topics/copy");
        let described: Value = serde_json::from_str(described.split("\r\n\r\n").last().unwrap()).unwrap();
        described["partitions"].to_string()
    }

    fn sink_of(&self, name: &str) -> Value {
        let states = self.states();
        let sinks = states
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        sinks.into_iter().find(|sink| sink["name"] == name).unwrap()
    }

    fn wait_until(&self, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.states());
        }
    }

    /// Waits until a sink is stopped with all records of the new topic before it.
    fn wait_until_stopped(&self, name: &str, lag: u64) {
        self.wait_until(|| {
            let sink = self.sink_of(name);
            let why = sink["why"].as_str().unwrap();
            sink["state"] == "stopped" && why.contains("topic_made_again") && sink["lag"] == lag
        });
    }
}

fn numbers(ranges: [std::ops::Range<u64>; 2]) -> Vec<u64> {
    ranges.into_iter().flatten().collect()
}

#[test]
fn sinks_stop_at_a_topic_that_was_made_again_and_begin_it_once_that_is_accepted() {
    let scene = Scene::new();
    scene.topic(&["create", "log", "-p", "1"]);
    scene.topic(&["create", "copy", "-p", "1"]);
    scene.define(&format!("{}{COPIER}", files(&scene)));
    scene.produce("log", 0..50);
    scene.wait_for(50);
    scene.wait_until(|| scene.copies().len() == 50);
    scene.make_again();
    scene.produce("log", 100..170);
    scene.wait_until_stopped("events", 70);
    scene.wait_until_stopped("copier", 70);
    let end = scene.end_of_copies();
    assert_eq!(scene.numbers(), (0..50).collect::<Vec<_>>());
    assert_eq!(scene.copies(), (0..50).collect::<Vec<_>>());
    let metrics = get(scene.running().address("http"), "/metrics");
    for name in ["events", "copier"] {
        let lag = format!("stafett_sink_lag_records{{sink=\"{name}\"}} 70");
        assert!(metrics.contains(&lag), "{metrics}");
    }
    assert_eq!(scene.end_of_copies(), end, "no transactions are begun");
    for name in ["events", "copier"] {
        let accepted = scene.sink(&["accept-gap", name, "--json"]).output().unwrap();
        let accepted = printed(accepted);
        assert!(accepted.contains("\"next\":"), "{accepted}");
    }
    let all = numbers([0..50, 100..170]);
    scene.wait_until(|| scene.numbers() == all);
    scene.wait_until(|| scene.copies() == all);
    for name in ["events", "copier"] {
        scene.wait_until(|| {
            let sink = scene.sink_of(name);
            sink["state"] == "running" && sink["lag"] == 0
        });
    }
}

#[test]
fn a_sink_that_was_paused_while_its_topic_was_made_again_stops_or_goes_on_by_itself() {
    let scene = Scene::new();
    scene.topic(&["create", "log", "-p", "1"]);
    scene.topic(&["create", "copy", "-p", "1"]);
    let skips = format!("{COPIER}on_gap = \"skip\"\n");
    scene.define(&format!("{}{skips}", files(&scene)));
    scene.produce("log", 0..50);
    scene.wait_for(50);
    scene.wait_until(|| scene.copies().len() == 50);
    for name in ["events", "copier"] {
        printed(scene.sink(&["pause", name]).output().unwrap());
    }
    scene.make_again();
    // More than were there, so that the former position lies within.
    scene.produce("log", 100..170);
    for name in ["events", "copier"] {
        printed(scene.sink(&["resume", name]).output().unwrap());
    }
    scene.wait_until(|| scene.copies() == numbers([0..50, 100..170]));
    scene.wait_until_stopped("events", 70);
    assert_eq!(scene.numbers(), (0..50).collect::<Vec<_>>());
    // Of the broker that starts anew, too.
    let mut scene = scene;
    scene.restart(Signal::KILL);
    scene.wait_until_stopped("events", 70);
    printed(scene.sink(&["accept-gap", "events"]).output().unwrap());
    scene.wait_until(|| scene.numbers() == numbers([0..50, 100..170]));
}

/// Time in which the kernel ends a process whose parent has ended.
const AT_ONCE: Duration = Duration::from_secs(5);

#[test]
fn a_runner_that_is_stopped_is_shown_and_ends_with_its_broker() {
    let mut scene = Scene::new();
    scene.topic(&["create", "log", "-p", "1"]);
    scene.define(&files(&scene));
    scene.produce("log", 0..10);
    scene.wait_for(10);
    // It has told that, too.
    scene.wait_until(|| scene.sink_of("events")["rows"] == 10);
    let [runner] = scene.children()[..] else {
        panic!("one runner: {:?}", scene.children());
    };
    kill_process(Pid::from_raw(runner).unwrap(), Signal::STOP).unwrap();
    scene.produce("log", 10..30);
    scene.wait_until(|| scene.sink_of("events")["lag"] == 20);
    scene.wait_until(|| scene.sink_of("events")["state"] == "waiting");
    let sink = scene.sink_of("events");
    assert!(sink["told_ms_ago"].as_u64().unwrap() > 10_000, "{sink}");
    assert!(
        sink["why"].as_str().unwrap().contains("has said nothing for"),
        "{sink}"
    );
    let metrics = get(scene.running().address("http"), "/metrics");
    assert!(
        metrics.contains("stafett_sink_lag_records{sink=\"events\"} 20"),
        "{metrics}"
    );
    scene.kill();
    let begun = Instant::now();
    while fs::read_to_string(format!("/proc/{runner}/comm")).is_ok_and(|comm| comm.starts_with("stafett")) {
        assert!(begun.elapsed() < AT_ONCE, "the runner outlives its broker");
    }
    scene.start();
    scene.wait_for(30);
}

#[test]
fn lag_is_that_of_the_topic_while_the_target_is_away() {
    let scene = Scene::new();
    scene.topic(&["create", "log", "-p", "1"]);
    scene.define(
        "[sink.away]\nfrom = \"log\"\nto = \"postgres\"\nurl = \"host=/nowhere user=x\"\ntable = \"t\"\n\
         [sink.away.columns]\nn = { type = \"bigint\" }\n",
    );
    scene.produce("log", 0..30);
    scene.wait_until(|| {
        let sink = scene.sink_of("away");
        sink["state"] == "retrying" && sink["lag"] == 30
    });
}

#[test]
fn a_sink_of_a_queue_promises_at_least_once() {
    let scene = Scene::new();
    let file = scene.folder.path().join("queue.toml");
    let text = "[sink.q]\nfrom = \"queue:jobs\"\nsource = { amqp = \"env:AMQP_URL\" }\nto = \"files\"\npath = \"x\"\n";
    fs::write(&file, text).unwrap();
    for word in ["check", "define"] {
        let said = printed(
            scene
                .sink(&[word, "-f", file.to_str().unwrap(), "--json"])
                .output()
                .unwrap(),
        );
        assert!(said.contains("at least once"), "{word}: {said}");
    }
}

#[test]
fn a_broker_that_requires_a_login_is_no_riddle() {
    let (closed, scene) = (Closed::start(), Scene::new());
    scene.topic(&["create", "log", "-p", "1"]);
    scene.define(&format!(
        "[sink.out]\nfrom = \"log\"\nto = \"topic\"\ntopic = \"copy\"\nservers = [\"{}\"]\n",
        closed.running.address("kafka")
    ));
    scene.produce("log", 0..10);
    scene.wait_until(|| {
        let sink = scene.sink_of("out");
        sink["lag"] == 10 && sink["why"].as_str().unwrap().contains("login")
    });
}
