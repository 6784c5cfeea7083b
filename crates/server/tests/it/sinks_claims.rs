//! Partitions of sinks as they come and go: with a batch that was begun, and by the hundred.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use stafett_kafka_client::transactional::SealedBatch;
use stafett_kafka_client::{Client, Options, Transactional};
use stafett_model::{Codec, Record};

use crate::common::{Running, get};
use crate::sinks::{PATIENCE, Scene, printed};
use crate::sinks_kept;

/// A receiver that notes batches by their ids.
#[derive(Default)]
struct Receiver(Mutex<BTreeMap<String, Vec<u64>>>);

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
            let (mut line, mut length, mut id) = (String::new(), 0, String::new());
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                let lower = line.to_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
                if let Some(value) = lower.strip_prefix("webhook-id:") {
                    value.trim().clone_into(&mut id);
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let rows: Vec<Value> = serde_json::from_slice(&body).ok()?;
            let numbers = rows.iter().filter_map(|row| row.get("n")?.as_u64()).collect();
            let before = self.0.lock().unwrap().insert(id, numbers);
            drop(before);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .ok()?;
        }
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.0.lock().unwrap().values().flatten().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Stores numbers in a transaction, which ends with a marker.
fn transact(scene: &Scene, numbers: std::ops::Range<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(&[scene.kafka().to_string()], Options::default())
            .await
            .unwrap();
        let topic = client.topic("log").await.unwrap();
        let mut producer = Transactional::open(&client, "numbers", Duration::from_mins(1))
            .await
            .unwrap();
        let mut batch = producer.builder(&topic, 0, Codec::None, 1000);
        for n in numbers {
            let value = format!("{{\"n\":{n}}}");
            let record = Record {
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
                timestamp: 0,
            };
            batch.push(&record).unwrap();
        }
        let sealed = SealedBatch {
            partition: 0,
            records: batch.len(),
            bytes: batch.finish().unwrap(),
        };
        producer.send(&topic, vec![sealed]).await.unwrap();
        producer.end(true).await.unwrap();
    });
}

#[test]
fn a_batch_that_was_begun_ends_at_a_marker_and_goes_on_after_a_kill() {
    let (receiver, address) = Receiver::start();
    let scene = Scene::into(&format!("to = \"webhook\"\nurl = \"http://{address}/\""));
    let allow = ["--webhook-allow", "127.0.0.1"];
    printed(scene.sink("apply", &[]).output().unwrap());
    scene.shorten_time_out();
    transact(&scene, 0..3);
    // The bounds of the batch are stored: they end behind its marker.
    let mut command = scene.sink("run", &allow);
    let ended = command.env("STAFETT_TEST_DIE_AT", "sent:1").output().unwrap();
    assert_eq!(ended.status.code(), None, "{ended:?}");
    assert_eq!(receiver.numbers(), [0, 1, 2]);
    // The position is stored behind the answer, so the sink still counts the batch as lag.
    let status = printed(scene.sink("status", &["--json"]).output().unwrap()).replace([' ', '\n'], "");
    assert!(
        status.contains("\"next\":{\"log\":0}") && status.contains("\"lag\":4"),
        "{status}"
    );
    let position = printed(scene.sink("position", &["--json"]).output().unwrap()).replace([' ', '\n'], "");
    assert!(position.contains("\"next\":0"), "{position}");
    // It comes in one piece with the batch.
    transact(&scene, 3..6);
    let sink = Running::start(scene.sink("run", &allow));
    let begun = Instant::now();
    while receiver.numbers().len() < 6 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", receiver.numbers());
    }
    assert_eq!(
        receiver.numbers(),
        (0..6).collect::<Vec<_>>(),
        "each in one batch"
    );
    sink.signal(Signal::TERM);
    assert!(sink.end().0.success());
}

#[test]
fn a_rebalance_of_many_partitions_ends() {
    const PARTITIONS: usize = 200;
    const RECORDS: u64 = 20;
    let (source, scene) = (sinks_kept::Scene::new(), Scene::new());
    let count = PARTITIONS.to_string();
    printed(
        source
            .over_kafka(&["topic", "create", "log", "-p", &count])
            .output()
            .unwrap(),
    );
    let out = scene.folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let definition = format!(
        "[sink.events]\nfrom = \"log\"\nsource = {{ kafka = \"{}\" }}\nto = \"files\"\npath = '{}'\n\
         flush = {{ every = \"50ms\" }}\n",
        source.running().address("kafka"),
        out.display()
    );
    fs::write(scene.file(), definition).unwrap();
    printed(scene.sink("apply", &[]).output().unwrap());
    let first = Running::start(scene.sink("run", &["--metrics", "127.0.0.1:0"]));
    let wait_for = |what: &str, holds: &dyn Fn(&str) -> bool| {
        let begun = Instant::now();
        while !holds(&get(first.address("metrics"), "/metrics")) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
        }
    };
    wait_for("all partitions", &|metrics| {
        metrics.matches("stafett_sink_position{").count() == PARTITIONS
    });
    let mut second = Running::start(scene.sink("run", &[]));
    second.logged("partition claimed");
    second.signal(Signal::TERM);
    assert!(second.end().0.success());
    source.produce("log", 0..RECORDS);
    let rows = format!("stafett_sink_rows_total{{sink=\"events\"}} {RECORDS}\n");
    wait_for("the records of all partitions", &|metrics| {
        metrics.contains(&rows)
    });
    first.signal(Signal::TERM);
    assert!(first.end().0.success());
}
