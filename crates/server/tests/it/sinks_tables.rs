//! Sinks of the real binary that look records up, and their metrics; and a store that becomes slow.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Running, get};
use crate::sinks::{PATIENCE, Scene, printed};

#[test]
fn metrics_tell_position_and_lag_of_records_that_wait() {
    let scene = Scene::new();
    let out = scene.folder.path().join("out");
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nto = \"files\"\npath = '{}'\nflush = {{ every = \"1h\" }}\n",
        out.display()
    );
    fs::write(scene.file(), definition).unwrap();
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.produce("a:{\"n\":1}\na:{\"n\":2}\n");
    let sink = Running::start(scene.sink("run", &["--metrics", "127.0.0.1:0"]));
    let metrics = || get(sink.address("metrics"), "/metrics");
    let value = |name: &str| {
        let metrics = metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<f64>().ok())
    };
    let begun = Instant::now();
    while value("stafett_sink_lag_seconds{sink=\"events\"}").is_none_or(|lag| lag <= 0.0) {
        assert!(begun.elapsed() < PATIENCE, "{}", metrics());
    }
    assert_eq!(value("stafett_sink_lag_records{sink=\"events\"}"), Some(2.0));
    for line in [
        "stafett_sink_target{sink=\"events\",to=\"files\"} 1",
        "stafett_sink_state{sink=\"events\",state=\"running\"} 1",
        "stafett_sink_flush_seconds_count{sink=\"events\"} 0",
        "stafett_sink_position{sink=\"events\",topic=\"log\",partition=\"0\"} 0",
    ] {
        assert!(metrics().contains(line), "{line} is not in {}", metrics());
    }
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
    assert_eq!(scene.position(), 2);
}

/// Writes the definition of a sink that looks records up.
fn define(scene: &Scene, lookup: &str) {
    let out = scene.folder.path().join("out");
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nto = \"files\"\npath = '{}'\nformat = \"ndjson\"\nplace = true\n\
         flush = {{ every = \"50ms\" }}\n\
         [[sink.events.transform]]\nlookup = {{ topic = \"apps\", key = \"value.app\", {lookup} }}\n\
         [[sink.events.transform]]\nset = {{ text = \"value.app + '/' + string(value.country)\" }}\n\
         [sink.events.columns]\ntext = {{ type = \"text\" }}\n",
        out.display()
    );
    fs::write(scene.file(), definition).unwrap();
}

#[test]
fn records_get_the_fields_of_a_table_as_it_is_also_after_a_restart() {
    let scene = Scene::new();
    let define = |lookup: &str| define(&scene, lookup);
    scene.done(&[
        "topic",
        "create",
        "apps",
        "-p",
        "3",
        "--set",
        "cleanup.policy=compact",
    ]);
    define("add = [\"country\"], missing = \"poison\"");
    printed(scene.sink("apply", &[]).output().unwrap());
    let texts = || {
        let rows = scene.rows();
        let mut texts: Vec<_> = rows
            .iter()
            .map(|(_, _, row)| row["text"].as_str().unwrap().to_owned())
            .collect();
        texts.sort();
        texts
    };
    scene.produce_to(
        "apps",
        "a:{\"country\":\"NO\"}\nb:{\"country\":\"DK\"}\na:{\"country\":\"SE\"}\n",
    );
    scene.produce("k:{\"app\":\"a\"}\nk:{\"app\":\"b\"}\nk:{\"app\":\"none\"}\n");
    let tried = printed(scene.sink("dry-run", &[]).output().unwrap());
    assert!(
        tried.contains("apps has no row of that key") && tried.contains("a/SE"),
        "{tried}"
    );
    scene.run_to_the_end(3);
    assert_eq!(texts(), ["a/SE", "b/DK"]);
    scene.produce_to("apps", "b:nonsense\na:{\"country\":\"FI\"}\n");
    scene.produce("k:{\"app\":\"a\"}\nk:{\"app\":\"b\"}\n");
    scene.run_to_the_end(5);
    assert_eq!(texts(), ["a/FI", "a/SE", "b/DK"]);

    // While the sink runs, rows come in, until there are too many.
    define("add = [\"country\"], missing = \"poison\", bytes_max = \"2KiB\"");
    let sink = Running::start(scene.sink("run", &["--metrics", "127.0.0.1:0"]));
    let begun = Instant::now();
    let wait_for = |line: &str| {
        let metrics = || get(sink.address("metrics"), "/metrics");
        while !metrics().contains(line) {
            assert!(begun.elapsed() < PATIENCE, "{line} is not in {}", metrics());
        }
    };
    wait_for("stafett_sink_table_rows{sink=\"events\"} 1");
    scene.produce_to("apps", "c:{\"country\":\"IS\"}\n");
    wait_for("stafett_sink_table_rows{sink=\"events\"} 2");
    scene.produce("k:{\"app\":\"c\"}\n");
    wait_for("stafett_sink_lookups_total{sink=\"events\",result=\"found\"} 1");
    let large = format!("d:{{\"country\":\"{}\"}}\n", "x".repeat(2000));
    scene.produce_to("apps", &large);
    wait_for("stafett_sink_state{sink=\"events\",state=\"stopped\"} 1");
    scene.produce("k:{\"app\":\"d\"}\n");
    sink.signal(Signal::TERM);
    let (status, _, log) = sink.end();
    assert!(
        status.success() && log.contains("table_too_large: the table of the topic apps"),
        "{log}"
    );
    assert_eq!(scene.position(), 6, "nothing is written without its table");
    define("add = [\"country\"], missing = \"poison\"");
    scene.run_to_the_end(7);
    assert_eq!(texts().len(), 5);
}

/// A receiver that takes its time.
#[derive(Default)]
struct Receiver {
    delay_ms: AtomicU64,
    writing: AtomicU64,
    /// Most requests at a time since it was set to 0.
    most: AtomicU64,
    taken: AtomicU64,
}

impl Receiver {
    fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Arc::new(Self::default());
        let known = Arc::clone(&receiver);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let known = Arc::clone(&known);
                thread::spawn(move || known.serve(stream));
            }
        });
        (receiver, address)
    }

    /// Answers requests until the connection ends.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                let lower = line.to_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
            }
            reader.read_exact(&mut vec![0; length]).ok()?;
            let writing = self.writing.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(writing, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed)));
            self.writing.fetch_sub(1, Ordering::Relaxed);
            self.taken.fetch_add(1, Ordering::Relaxed);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .ok()?;
        }
    }

    /// Waits for a number of further requests.
    fn wait_for(&self, more: u64) {
        self.wait_for_all(self.taken.load(Ordering::Relaxed) + more);
    }

    /// Waits for a number of requests in all.
    fn wait_for_all(&self, count: u64) {
        let begun = Instant::now();
        while self.taken.load(Ordering::Relaxed) < count {
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            thread::yield_now();
        }
    }
}

#[test]
fn a_store_that_becomes_slow_is_written_to_by_one_partition_at_a_time() {
    const RECORDS: u64 = 300;
    let (receiver, address) = Receiver::start();
    let scene = Scene::new();
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nto = \"webhook\"\nurl = \"http://{address}/\"\n\
         flush = {{ records = 1 }}\nlimit = {{ commit = \"250ms\" }}\n"
    );
    fs::write(scene.file(), definition).unwrap();
    receiver.delay_ms.store(20, Ordering::Relaxed);
    let allow = ["--webhook-allow", "127.0.0.1"];
    printed(scene.sink("apply", &[]).output().unwrap());
    let lines: Vec<String> = (0..RECORDS)
        .map(|number| format!("k{number}:{{\"n\":{number}}}\n"))
        .collect();
    scene.produce(&lines.concat());
    let sink = Running::start(scene.sink("run", &[&allow[..], &["--metrics", "127.0.0.1:0"]].concat()));
    let begun = Instant::now();
    let wait_for = |parallel: u64| {
        let line = format!("stafett_sink_parallel{{sink=\"events\"}} {parallel}");
        let metrics = || get(sink.address("metrics"), "/metrics");
        while !metrics().contains(&line) {
            assert!(begun.elapsed() < PATIENCE, "{line} is not in {}", metrics());
        }
    };
    wait_for(2);
    receiver.delay_ms.store(400, Ordering::Relaxed);
    wait_for(1);
    receiver.wait_for(2);
    receiver.most.store(0, Ordering::Relaxed);
    receiver.wait_for(3);
    assert_eq!(receiver.most.load(Ordering::Relaxed), 1);
    receiver.delay_ms.store(20, Ordering::Relaxed);
    wait_for(2);
    receiver.wait_for_all(RECORDS);
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
    assert_eq!(receiver.taken.load(Ordering::Relaxed), RECORDS, "each once");
}

#[test]
fn a_trial_of_records_of_another_broker_looks_up_at_the_own_one() {
    let (scene, other) = (Scene::new(), Scene::new());
    scene.done(&["topic", "create", "apps", "--set", "cleanup.policy=compact"]);
    define(&scene, "add = [\"country\"]");
    let definition = fs::read_to_string(scene.file()).unwrap();
    let source = format!("from = \"log\"\nsource = {{ kafka = [\"{}\"] }}\n", other.kafka());
    fs::write(scene.file(), definition.replace("from = \"log\"\n", &source)).unwrap();
    scene.produce_to("apps", "a:{\"country\":\"SE\"}\n");
    other.produce("k:{\"app\":\"a\"}\n");
    let tried = printed(scene.sink("dry-run", &[]).output().unwrap());
    assert!(tried.contains("a/SE"), "{tried}");
}
