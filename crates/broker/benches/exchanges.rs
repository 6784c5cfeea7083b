//! Benchmark of exchanges with few and with many bindings: binding, publishing, memory, restart, and look-up
//! alone. `cargo bench -p stafett-broker --bench exchanges`
//!
//! Publishing goes through the broker into a queue on an in-memory journal, in batches of 64 with different
//! keys; the result is the best of many rounds. Binding uses a journal on disk: the bindings are staged one
//! by one, and are all durable at the end.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench: its output is its purpose"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::{DiskJournal, Journal, MemoryJournal, Metrics, Settings};
use stafett_messaging::queues::Declare;
use stafett_messaging::{Destination, NewBinding, NewExchange};
use stafett_model::{Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch, Hop, KeyOnly, Pattern, Router, Routes, Spec};

const BATCH: u32 = 64;
const ROUNDS: u32 = 300;
const MANY: u32 = 100_000;

#[tokio::main]
async fn main() {
    for bindings in [10, 1_000, MANY] {
        println!("{bindings:>7} bindings: look-up {:>6.0} ns", look_up(bindings));
    }
    for bindings in [10, MANY] {
        println!(
            "{bindings:>7} bindings: publish {:>6.0} ns a message",
            publish(bindings).await
        );
    }
    let folder = tempfile::tempdir().unwrap();
    on_disk(folder.path()).await;
}

fn key(number: u32) -> String {
    format!("device.{number}.temperature")
}

fn best(count: u32, mut work: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        work();
        best = best.min(started.elapsed());
    }
    best.as_secs_f64() * 1e9 / f64::from(count)
}

/// Measures look-ups with one binding per device and messages of all devices.
fn look_up(bindings: u32) -> f64 {
    let mut router: Router<u32> = Router::default();
    router.add_exchange("x".into(), Spec::new(ExchangeKind::Topic));
    for number in 0..bindings {
        let pattern = Pattern::key(format!("device.{number}.*"));
        router.bind("x", &pattern, Hop::Target(number)).unwrap();
    }
    let keys: Vec<String> = (0..BATCH).map(|number| key(number * 1543 % bindings)).collect();
    let mut found = Routes::default();
    best(BATCH, || {
        for key in &keys {
            let nobody = |_: &[u8]| None;
            router
                .route("x", &KeyOnly(black_box(key.as_bytes())), &nobody, &mut found)
                .unwrap();
            assert_eq!(found.targets().len(), 1);
        }
    })
}

async fn publish(bindings: u32) -> f64 {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let broker = prepared(journal).await;
    let stored: Vec<_> = (0..bindings).map(|number| bind(&broker, number)).collect();
    for stored in stored {
        stored.await.unwrap();
    }
    let namespace = Namespace::default();
    let mut best = Duration::MAX;
    for round in 0..ROUNDS {
        let message = |number: u32| {
            Message {
                routing_key: key((number + round * BATCH) * 1543 % bindings).into(),
                value: Bytes::from_static(&[0; 100]),
                ..Message::default()
            }
            .into()
        };
        let messages = (0..BATCH).map(message).collect();
        let started = Instant::now();
        let ticket = broker.messaging().publish(&namespace, "x", messages).unwrap();
        best = best.min(started.elapsed());
        drop(ticket.await);
    }
    broker.stop().await;
    best.as_secs_f64() * 1e9 / f64::from(BATCH)
}

async fn on_disk(folder: &Path) {
    let open = || {
        let journal = DiskJournal::open(folder, Settings::default(), Metrics::new()).unwrap();
        prepared(Arc::new(journal))
    };
    let broker = open().await;
    let before = resident_kib();
    let started = Instant::now();
    let stored: Vec<_> = (0..MANY).map(|number| bind(&broker, number)).collect();
    for stored in stored {
        stored.await.unwrap();
    }
    let rate = f64::from(MANY) / started.elapsed().as_secs_f64();
    let mib = resident_kib().saturating_sub(before) / 1024;
    println!("{MANY:>7} bindings: bound at {rate:.0}/s, durable at the end; {mib} MiB of memory");
    broker.stop().await;
    drop(broker);
    let started = Instant::now();
    let broker = open().await;
    println!(
        "{MANY:>7} bindings: start in {:.2} s",
        started.elapsed().as_secs_f64()
    );
    assert_eq!(
        broker
            .messaging()
            .exchanges()
            .bindings(&Namespace::default())
            .len(),
        100_000
    );
    let started = Instant::now();
    let deleted = broker
        .messaging()
        .exchanges()
        .delete(&Namespace::default(), "x", false);
    let held = started.elapsed();
    deleted.unwrap().await.unwrap();
    println!(
        "{MANY:>7} bindings: deleted with their exchange in {held:.2?}, durable after {:.2?}",
        started.elapsed()
    );
    broker.stop().await;
}

async fn prepared(journal: Arc<dyn Journal>) -> Arc<Broker> {
    let broker = Arc::new(Broker::start(journal, BrokerSettings::default()).await.unwrap());
    let namespace = Namespace::default();
    let declared =
        broker
            .messaging()
            .exchanges()
            .declare(&namespace, "x", NewExchange::new(ExchangeKind::Topic));
    declared.unwrap().1.await.unwrap();
    let durable = Declare {
        durable: true,
        ..Declare::default()
    };
    broker
        .messaging()
        .queues()
        .declare(&namespace, "q", durable)
        .await
        .unwrap();
    broker
}

fn bind(broker: &Broker, number: u32) -> stafett_store::Stored {
    let binding = NewBinding {
        source: "x".into(),
        destination: Destination::Queue("q".into()),
        key: Bytes::from(format!("device.{number}.*")),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    };
    broker.messaging().bind(&Namespace::default(), binding).unwrap()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
