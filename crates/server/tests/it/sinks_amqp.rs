//! Queues as sources and as targets, over AMQP, with logins.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rights::Closed;
use crate::sinks_kept::children;

const PATIENCE: Duration = Duration::from_mins(1);

/// Sends numbers to a queue.
fn send(closed: &Closed, queue: &str, numbers: std::ops::Range<u64>) {
    let mut lines = String::from("{\"messages\":[");
    let first = numbers.start;
    for n in numbers {
        let comma = if n > first { "," } else { "" };
        write!(
            lines,
            "{comma}{{\"to\":{{\"queues\":[\"{queue}\"]}},\"content\":{{\"n\":{n}}}}}"
        )
        .unwrap();
    }
    lines.push_str("]}");
    let (status, _, said) = closed.ask("POST /v1/messages", Some("root"), &lines);
    assert!(status < 300, "{status} {said}");
}

/// Writes the address of the broker's AMQP listener, with a login, into a file. Returns its path.
fn address(closed: &Closed) -> String {
    let path = closed.folder.path().join("amqp");
    fs::write(
        &path,
        format!("amqp://root:pw-root@{}/%2F\n", closed.running.address("amqp")),
    )
    .unwrap();
    path.display().to_string()
}

fn json(closed: &Closed, request: &str) -> Value {
    let (status, _, said) = closed.ask(request, Some("root"), "");
    assert_eq!(status, 200, "{said}");
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_queue_is_read_to_its_end_although_the_runner_is_killed() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/queues/jobs", Some("root"), "{}").0, 201);
    let out = closed.folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let definition = format!(
        "{{\"from\":\"queue:jobs\",\"source\":{{\"amqp\":\"file:{}\",\"prefetch\":500}},\"to\":\"files\",\
         \"path\":\"{}\",\"flush\":{{\"records\":50,\"every\":\"50ms\"}}}}",
        address(&closed),
        out.display()
    );
    let (status, _, said) = closed.ask("PUT /v1/sinks/jobs", Some("root"), &definition);
    assert_eq!(status, 201, "{said}");
    let numbers = || {
        let mut numbers = BTreeSet::new();
        for entry in fs::read_dir(out.join("queue:jobs/0")).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "ndjson") {
                for line in fs::read_to_string(path).unwrap_or_default().lines() {
                    numbers.insert(
                        serde_json::from_str::<Value>(line).unwrap()["n"]
                            .as_u64()
                            .unwrap(),
                    );
                }
            }
        }
        numbers
    };
    let wait_for = |count: u64| {
        let begun = Instant::now();
        while (numbers().len() as u64) < count {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} {}",
                numbers().len(),
                json(&closed, "GET /v1/sinks/jobs")
            );
        }
    };
    send(&closed, "jobs", 0..300);
    wait_for(300);
    send(&closed, "jobs", 300..600);
    for child in children(&closed.running) {
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    }
    wait_for(600);
    let begun = Instant::now();
    loop {
        let queue = json(&closed, "GET /v1/queues/jobs");
        if queue["ready"] == 0 && queue["in_flight"] == 0 {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "what is written is acknowledged: {queue}"
        );
    }
    let (status, _, said) = closed.ask("POST /v1/sinks/jobs/pause", Some("root"), "");
    assert_eq!(status, 200, "{said}");
    let begun = Instant::now();
    while json(&closed, "GET /v1/queues/jobs")["consumers"] != 0 {
        assert!(
            begun.elapsed() < PATIENCE,
            "a paused sink leaves the queue to others"
        );
    }
    send(&closed, "jobs", 600..610);
    assert_eq!(closed.ask("POST /v1/sinks/jobs/resume", Some("root"), "").0, 200);
    wait_for(610);
}

#[test]
fn a_queue_goes_on_behind_a_flush_that_was_killed_with_more_messages_than_come_again() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/queues/few", Some("root"), "{}").0, 201);
    let out = closed.folder.path().join("out");
    let place = out.join("queue:few/0");
    fs::create_dir_all(&place).unwrap();
    fs::write(
        place.join("pending.json"),
        "{\"number\":1,\"from\":0,\"next\":500}\n",
    )
    .unwrap();
    send(&closed, "few", 0..3);
    let definition = format!(
        "{{\"from\":\"queue:few\",\"source\":{{\"amqp\":\"file:{}\"}},\"to\":\"files\",\
         \"path\":\"{}\",\"flush\":{{\"records\":50,\"every\":\"50ms\"}}}}",
        address(&closed),
        out.display()
    );
    let (status, _, said) = closed.ask("PUT /v1/sinks/few", Some("root"), &definition);
    assert_eq!(status, 201, "{said}");
    let begun = Instant::now();
    loop {
        let queue = json(&closed, "GET /v1/queues/few");
        if queue["ready"] == 0 && queue["in_flight"] == 0 {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{queue} {}",
            json(&closed, "GET /v1/sinks/few")
        );
    }
}

#[test]
fn records_go_into_a_queue_and_are_confirmed() {
    let closed = Closed::start();
    assert_eq!(closed.ask("PUT /v1/queues/out", Some("root"), "{}").0, 201);
    assert_eq!(
        closed
            .ask("PUT /v1/topics/log", Some("root"), "{\"partitions\":1}")
            .0,
        201
    );
    let define = |key: &str| {
        let definition = format!(
            "{{\"from\":\"log\",\"to\":\"amqp\",\"url\":\"file:{}\",\"routing_key\":\"{key}\",\
             \"flush\":{{\"every\":\"50ms\"}}}}",
            address(&closed)
        );
        let (status, _, said) = closed.ask("PUT /v1/sinks/out", Some("root"), &definition);
        assert!(status < 300, "{status} {said}");
    };
    define("out");
    let record =
        "{\"key\":\"k\",\"value\":{\"n\":1},\"headers\":{\"content-type\":\"application/json\",\"a\":\"b\"}}";
    let (status, _, said) = closed.ask("POST /v1/topics/log/records?as=record", Some("root"), record);
    assert_eq!(status, 200, "{said}");
    let begun = Instant::now();
    while json(&closed, "GET /v1/queues/out")["ready"] != 1 {
        assert!(
            begun.elapsed() < PATIENCE,
            "{}",
            json(&closed, "GET /v1/sinks/out")
        );
    }
    let messages = json(&closed, "GET /v1/queues/out/messages");
    let text = messages.to_string();
    for part in [
        "application/json",
        "\"n\":1",
        "log/0@0",
        "out/log/0@0",
        "\"a\":\"b\"",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // A queue that is not there stops the sink, and nothing is lost.
    define("none");
    let (begun, mut sent) = (Instant::now(), 1);
    loop {
        let sink = json(&closed, "GET /v1/sinks/out");
        if sink["state"] == "stopped" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{sink}");
        // The process of the sinks may not know the definition yet, and write another record as before.
        if sink["lag"] == 0 {
            let put = "POST /v1/topics/log/records?as=record";
            assert_eq!(closed.ask(put, Some("root"), record).0, 200);
            sent += 1;
        }
    }
    define("out");
    let begun = Instant::now();
    while json(&closed, "GET /v1/queues/out")["ready"] != sent {
        assert!(
            begun.elapsed() < PATIENCE,
            "{}",
            json(&closed, "GET /v1/sinks/out")
        );
    }
}
