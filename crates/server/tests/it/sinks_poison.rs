//! Records that a sink cannot write: too many at a time, too large for the dead letters, or for the target.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Folder, Running, get, serve};
use crate::sinks::{PATIENCE, Scene, printed};
use crate::sinks_kept;

/// Returns lines of which only the last one is a row.
fn poison(count: u64) -> String {
    let mut lines = String::new();
    for n in 0..count {
        writeln!(lines, "k:{{\"n\":\"poison {n}\"}}").unwrap();
    }
    writeln!(lines, "k:{{\"n\":{count}}}").unwrap();
    lines
}

impl Scene {
    fn letters(&self) -> Vec<Value> {
        let all = ["--from", "earliest", "--until", "latest", "--json"];
        let letters = self.done(&[&["consume", "events.dead"], &all[..]].concat());
        let letters = letters.lines().map(|line| serde_json::from_str(line).unwrap());
        letters.collect()
    }

    fn run(&self) -> Running {
        Running::start(self.sink("run", &["--metrics", "127.0.0.1:0"]))
    }

    fn wait_for_position(&self, next: u64) {
        let begun = Instant::now();
        while self.position() < next {
            assert!(begun.elapsed() < PATIENCE, "at {} of {next}", self.position());
        }
    }

    /// Changes the definition of the sink.
    fn redefine(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).unwrap();
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        fs::write(self.file(), changed).unwrap();
    }
}

fn wait_for_metric(sink: &Running, holds: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    let metrics = || get(sink.address("metrics"), "/metrics");
    while !holds(&metrics()) {
        assert!(begun.elapsed() < PATIENCE, "{}", metrics());
    }
}

#[test]
fn a_batch_with_too_much_poison_passes_once_the_sink_is_resumed() {
    let scene = Scene::new();
    scene.redefine("place = true", "place = true\npoison_max = \"3/h\"");
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.produce(&poison(10));
    let sink = scene.run();
    let paused = || printed(scene.sink("status", &[]).output().unwrap()).contains("paused");
    let begun = Instant::now();
    while !paused() {
        assert!(begun.elapsed() < PATIENCE, "it is not paused");
    }
    assert_eq!(scene.letters().len(), 0);
    printed(scene.sink("resume", &[]).output().unwrap());
    scene.wait_for_position(11);
    assert_eq!((scene.letters().len(), scene.rows().len()), (10, 1));
    assert!(!paused(), "it goes on");
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
}

#[test]
fn a_batch_that_paused_the_sink_passes_in_a_process_that_was_started_since() {
    // Resumed before the process that goes on is there, and while it is.
    for is_early in [true, false] {
        let scene = Scene::new();
        scene.redefine("place = true", "place = true\npoison_max = \"3/h\"");
        printed(scene.sink("apply", &[]).output().unwrap());
        scene.shorten_time_out();
        scene.produce(&poison(10));
        let sink = scene.run();
        let status = || printed(scene.sink("status", &[]).output().unwrap());
        let begun = Instant::now();
        while !status().contains("paused") {
            assert!(begun.elapsed() < PATIENCE, "it is not paused");
        }
        wait_for_metric(&sink, |metrics| {
            metrics.contains("stafett_sink_state{sink=\"events\",state=\"paused\"} 1")
        });
        sink.signal(Signal::TERM);
        assert!(sink.end().0.success());
        assert_eq!(scene.letters().len(), 0);
        if is_early {
            printed(scene.sink("resume", &[]).output().unwrap());
        }
        let sink = scene.run();
        if !is_early {
            while !status().contains("sink-") {
                assert!(begun.elapsed() < PATIENCE, "{}", status());
            }
            printed(scene.sink("resume", &[]).output().unwrap());
        }
        scene.wait_for_position(11);
        assert_eq!((scene.letters().len(), scene.rows().len()), (10, 1));
        // The next one pauses the sink as the first one did.
        scene.produce(&poison(10));
        while !status().contains("paused") {
            assert!(begun.elapsed() < PATIENCE, "it is not paused again");
        }
        assert_eq!(scene.position(), 11);
        sink.signal(Signal::TERM);
        assert!(sink.end().0.success());
    }
}

#[test]
fn a_sink_over_another_broker_is_resumed_after_too_much_poison() {
    let (source, scene) = (sinks_kept::Scene::new(), sinks_kept::Scene::new());
    let create = ["topic", "create", "log", "-p", "1"];
    printed(source.over_kafka(&create).output().unwrap());
    let file = source.folder.path().join("lines");
    fs::write(&file, poison(10)).unwrap();
    let produce = source.over_kafka(&["produce", "log", "-K", ":"]);
    let mut produce = produce;
    let done = produce.stdin(fs::File::open(&file).unwrap()).output().unwrap();
    printed(done);
    scene.define(&format!(
        "[sink.events]\nfrom = \"log\"\nsource = {{ kafka = \"{}\" }}\nto = \"files\"\npath = '{}'\n\
         poison_max = \"3/h\"\nflush = {{ every = \"50ms\" }}\n[sink.events.columns]\nn = {{ type = \"bigint\" }}\n",
        source.running().address("kafka"),
        scene.out().display()
    ));
    scene.wait_for_state("\"state\":\"paused\"");
    assert_eq!(scene.numbers(), [0; 0]);
    printed(scene.sink(&["resume", "events"]).output().unwrap());
    let begun = Instant::now();
    while scene.numbers() != [10] {
        assert!(begun.elapsed() < PATIENCE, "{}", scene.states());
    }
}

#[test]
fn a_letter_that_is_too_large_is_stored_without_its_value() {
    let scene = Scene::new();
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.done(&["topic", "create", "events.dead", "-p", "1"]);
    scene.done(&["topic", "set", "events.dead", "max.message.bytes=2KiB"]);
    let large = "x".repeat(5000);
    scene.produce(&format!("k:small\nk:{large}\nk:{{\"n\":1}}\nk:small too\n"));
    scene.run_to_the_end(4);
    let letters = scene.letters();
    assert_eq!(letters.len(), 3, "each once: {letters:?}");
    let values: Vec<_> = letters.iter().map(|letter| letter["value"].clone()).collect();
    assert!(
        values.contains(&Value::from("small")) && values.contains(&Value::Null),
        "{values:?}"
    );
    let cut = letters.iter().find(|letter| letter["value"].is_null()).unwrap();
    assert!(cut.to_string().contains("value of 5000 bytes"), "{cut}");
    assert!(cut.to_string().contains("stafett-offset"), "{cut}");
}

#[test]
fn dead_letters_that_cannot_be_stored_are_tried_again_and_pause_nothing() {
    let scene = Scene::new();
    scene.redefine("place = true", "place = true\npoison_max = \"3/h\"");
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.produce("k:{\"n\":1}\n");
    let sink = scene.run();
    scene.wait_for_position(1);
    scene.done(&["topic", "delete", "events.dead", "--yes"]);
    scene.produce(&poison(2));
    // More attempts than the poison of two of them may be.
    let retries = |metrics: &str| {
        let line = "stafett_sink_retries_total{sink=\"events\",class=\"retry\"} ";
        let count = metrics.lines().find_map(|it| it.strip_prefix(line));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    wait_for_metric(&sink, |metrics| retries(metrics) >= 3);
    scene.done(&["topic", "create", "events.dead", "-p", "1"]);
    scene.wait_for_position(4);
    assert_eq!((scene.letters().len(), scene.rows().len()), (2, 2));
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
}

#[test]
fn a_message_that_is_too_large_for_a_queue_is_poison() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.env("STAFETT_AMQP_MESSAGE_BYTES_MAX", "2KiB");
    let running = Running::start(command);
    let (amqp, http) = (running.address("amqp"), running.address("http").to_string());
    let fields = format!("to = \"amqp\"\nurl = \"amqp://{amqp}\"\nexchange = \"\"\nrouting_key = \"out\"");
    let scene = Scene::beside(folder, running, &fields);
    scene.redefine("place = true\n", "");
    scene.redefine(
        "[sink.events.columns]\nn = { type = \"bigint\" }\nwords = { from = \"w.x\", type = \"text\" }\n",
        "",
    );
    scene.done(&["queue", "create", "out", "--http", &http]);
    printed(scene.sink("apply", &[]).output().unwrap());
    let large = "x".repeat(5000);
    scene.produce(&format!("k:one\nk:{large}\nk:two\nk:{large}\nk:three\n"));
    scene.run_to_the_end(5);
    assert_eq!(scene.letters().len(), 2);
    let waiting = scene.done(&["queue", "messages", "out", "--http", &http]);
    for text in ["one", "two", "three"] {
        assert!(
            waiting.contains(&format!("\"{text}\"")),
            "{text} is not in {waiting}"
        );
    }
    assert!(!waiting.contains("xxx"), "{waiting}");
}
