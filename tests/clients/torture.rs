//! The real process is frozen, killed, stopped and restarted, its disk is filled and its syncs fail, under
//! large batches, large messages and live topics at the same time. Acknowledged data is stored once, in
//! order, byte for byte; refused data is not stored; settled messages stay settled.
//!
//! Each producer, publisher and subscriber has places of its own (partitions, queues, live topics) and
//! numbers its items. No number is sent again, so an item that was neither acknowledged nor refused may be
//! stored once. Stored items are read and freed during the round, else a small disk would be full at once.
//!
//! `make torture SECONDS=n` runs round after round, each with data of its own, in turn on a small disk in
//! memory and on the real one. A round draws its faults from a seed, which it prints.

mod amqp;
mod consumer;
mod faults;
mod half;
mod kafka;
mod live;
mod load;
mod wander;

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::consumer::Taken;
use self::faults::Faults;
use self::kafka::{Lane, Read};
use self::load::{Load, Sent};
use self::wander::Pass;
use crate::broker::{Broker, external, get};
use crate::peer;

/// Duration of a round's faults.
const ROUND: Duration = Duration::from_secs(25);
/// Longer than any operation takes: a client that waits longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);
const QUEUES: [&str; 2] = ["torture-0", "torture-1"];
/// Producers for one partition each, and one whose requests have a batch for each of its partitions.
const LANES: [Lane; 5] = [
    Lane::new("torture", 0..1),
    Lane::new("torture", 1..2),
    Lane::new("torture", 2..3),
    Lane::new("torture", 3..4),
    Lane::new("torture-wide", 0..6),
];
/// Bytes of batches, messages and live messages.
const BATCH: Range<usize> = 200_000..900_000;
const MESSAGE: Range<usize> = 200_000..2_500_000;
const LIVE: Range<usize> = 1_000..100_000;
/// Items that a client sends before it waits for answers.
const AHEAD: usize = 3;
const DISK_MIB: u32 = 2048;
const SETTINGS: &[&str] = &["live.logs=torture/=torture-live", "live.outbox_bytes_max=64MiB"];
const SMALL_SETTINGS: &[&str] = &[
    "live.logs=torture/=torture-live",
    "live.outbox_bytes_max=64MiB",
    "journal.segment_bytes=16MiB",
    "journal.disk_free_bytes_min=32MiB",
];

#[test]
fn faults_under_large_batches_and_messages_of_all_protocols_lose_and_double_nothing() {
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot be killed",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return;
    }
    let seconds = env::var("STAFETT_TEST_SECONDS").map_or(0, |text| text.parse().unwrap());
    let begun = Instant::now();
    let mut faults = Faults::from_seed();
    for number in 1.. {
        // The first round has every fault once.
        let time = if number == 1 { Duration::ZERO } else { ROUND };
        round(&mut faults, number % 2 == 1, time);
        if begun.elapsed() >= Duration::from_secs(seconds) {
            println!("{number} rounds in {:?}: {faults}", begun.elapsed());
            break;
        }
    }
}

fn round(faults: &mut Faults, is_small: bool, time: Duration) {
    println!("STAFETT_TEST_SEED={}", faults.state());
    let small = is_small.then(|| Broker::start_on_small_disk(DISK_MIB, SMALL_SETTINGS));
    if let Some(None) = small {
        peer::skip(
            "no small disk can be mounted",
            "allow user namespaces: unshare -rm",
        );
    }
    let mut broker = small
        .flatten()
        .unwrap_or_else(|| Broker::start_with("sync", SETTINGS));
    for (topic, partitions) in kafka::topics() {
        kafka::create(broker.kafka(), topic, partitions);
    }
    for queue in QUEUES {
        amqp::declare(broker.amqp(), queue);
    }
    let load = Arc::new(Load::new());
    if broker.disk().is_some() {
        // It may be full by itself for a short time.
        load.allow_refusals();
    }
    let clients = Clients::start(&broker, &load);
    faults.strike_all(&mut broker, &load, time);
    let mut clients = clients.stop(&load);
    println!("{faults}; {load}");
    assert_idle(&broker);
    faults.end(&mut broker, &load);
    clients.check(&broker, &load);
    assert_unharmed(&mut broker);
}

/// Threads of a round. The first failed one ends the test when they are joined.
struct Clients {
    producers: Vec<JoinHandle<Vec<Sent>>>,
    readers: Vec<JoinHandle<Vec<Read>>>,
    /// Two for each topic: of all records, and of committed ones.
    wanderers: Vec<JoinHandle<Vec<Pass>>>,
    publishers: Vec<JoinHandle<Sent>>,
    consumers: Vec<JoinHandle<Taken>>,
    live: JoinHandle<Sent>,
    listener: JoinHandle<live::Heard>,
    subscriber: JoinHandle<live::Subscriptions>,
}

/// Results of all clients.
struct Known {
    produced: Vec<Vec<Sent>>,
    read: Vec<Vec<Read>>,
    passed: Vec<Vec<Pass>>,
    published: Vec<Sent>,
    taken: Vec<Taken>,
    live: Sent,
    heard: live::Heard,
    subscriptions: live::Subscriptions,
}

impl Clients {
    fn start(broker: &Broker, load: &Arc<Load>) -> Self {
        fn start<T: Send + 'static>(
            address: &str,
            load: &Arc<Load>,
            run: impl FnOnce(&str, &Load) -> T + Send + 'static,
        ) -> JoinHandle<T> {
            let (address, load) = (address.to_owned(), Arc::clone(load));
            thread::spawn(move || run(&address, &load))
        }
        let (kafka, amqp, http) = (broker.kafka(), broker.amqp(), broker.http());
        let lanes = LANES.into_iter();
        let topics = kafka::topics().into_iter();
        let kinds = kafka::topics()
            .into_iter()
            .flat_map(|topic| [(topic, false), (topic, true)]);
        Self {
            wanderers: kinds
                .map(|((topic, partitions), is_committed)| {
                    start(kafka, load, move |to, load| {
                        wander::wander(to, topic, partitions, is_committed, load)
                    })
                })
                .collect(),
            producers: lanes
                .map(|lane| start(kafka, load, move |to, load| kafka::produce(to, &lane, load)))
                .collect(),
            readers: topics
                .map(|(topic, partitions)| {
                    start(kafka, load, move |to, load| {
                        kafka::follow(to, topic, partitions, load)
                    })
                })
                .collect(),
            publishers: QUEUES
                .map(|queue| start(amqp, load, move |to, load| amqp::publish(to, queue, load)))
                .into(),
            consumers: QUEUES
                .map(|queue| start(amqp, load, move |to, load| consumer::consume(to, queue, load)))
                .into(),
            live: start(http, load, live::publish),
            listener: start(http, load, live::listen),
            subscriber: start(http, load, live::subscribe),
        }
    }

    fn stop(self, load: &Load) -> Known {
        fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        }
        load.stop();
        Known {
            produced: join(self.producers),
            read: join(self.readers),
            passed: join(self.wanderers),
            published: join(self.publishers),
            taken: join(self.consumers),
            live: self.live.join().unwrap(),
            heard: self.listener.join().unwrap(),
            subscriptions: self.subscriber.join().unwrap(),
        }
    }
}

impl Known {
    /// Compares the results with the stored data, and checks that every place still accepts data.
    fn check(&mut self, broker: &Broker, load: &Load) {
        let passed = self.passed.chunks(2);
        for (((topic, _), read), passed) in kafka::topics().into_iter().zip(&mut self.read).zip(passed) {
            let lanes = LANES.iter().zip(&mut self.produced);
            let sent = lanes
                .filter(|(lane, _)| lane.topic == topic)
                .flat_map(|(_, sent)| sent);
            for ((partition, sent), read) in (0..).zip(sent).zip(read) {
                let place = format!("{topic}/{partition}");
                kafka::read_rest(broker.kafka(), topic, partition, read);
                sent.check(&place, read.numbers(), load);
                let of_partition = passed.iter().flatten().filter(|pass| pass.partition == partition);
                of_partition.for_each(|pass| pass.check(&place, read.numbers()));
                kafka::produce_one(broker.kafka(), topic, partition, sent);
                kafka::read_rest(broker.kafka(), topic, partition, read);
                sent.check(&place, read.numbers(), load);
            }
        }
        for ((queue, sent), taken) in QUEUES.into_iter().zip(&mut self.published).zip(&mut self.taken) {
            amqp::publish_one(broker.amqp(), queue, sent);
            taken.check(queue, &amqp::stored(broker.amqp(), queue), sent, load);
        }
        live::publish_one(broker.http(), &mut self.live);
        self.heard.listen_to(broker.http(), &self.live);
        self.live.check("live", self.heard.numbers(), load);
        self.subscriptions.check(broker.http());
    }
}

/// Checks that clients that are gone hold nothing: no message is in flight, no memory is reserved.
fn assert_idle(broker: &Broker) {
    let begun = Instant::now();
    loop {
        let queues = get(broker.http(), "/v1/queues?count=1000");
        let flying = queues.matches("\"in_flight\":").count() - queues.matches("\"in_flight\":0").count();
        let metrics = get(broker.http(), "/metrics");
        let reserved = metric(&metrics, "stafett_request_memory_bytes");
        if queues.contains("\"in_flight\"") && flying == 0 && reserved == Some(0.0) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{queues}\nmemory reserved: {reserved:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that no data is damaged; none of these faults may do that.
fn assert_unharmed(broker: &mut Broker) {
    let health = get(broker.http(), "/health");
    assert!(health.contains("\"ok\""), "{health}");
    let metrics = get(broker.http(), "/metrics");
    for name in [
        "damaged_segments",
        "missing_segments",
        "unknown_logs",
        "damaged_reads",
    ] {
        let lines = metrics.lines().filter(|line| !line.starts_with('#'));
        let found: Vec<&str> = lines.filter(|line| line.contains(name)).collect();
        assert!(!found.is_empty(), "{name} is no metric\n{metrics}");
        assert!(found.iter().all(|line| line.ends_with(" 0")), "{found:?}");
    }
    assert_eq!(broker.logged("panicked"), 0);
    let check = broker.stop_and_check();
    assert!(check.status.success(), "{check:?}");
}

fn metric(metrics: &str, name: &str) -> Option<f64> {
    let lines = metrics.lines();
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next()?.parse().ok()
}

/// Returns the content with a number: its size and bytes follow from the number.
fn content(number: u64, sizes: &Range<usize>) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let size = sizes.start + usize::try_from(state.rotate_left(29) % sizes.len() as u64).unwrap();
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.reserve(size);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Returns the number of a content after checking that it is complete.
fn number_of(place: &str, bytes: &[u8], sizes: &Range<usize>) -> u64 {
    let number = u64::from_be_bytes(*bytes.first_chunk().unwrap());
    assert!(
        bytes == content(number, sizes),
        "{place}: {number} is not as it was sent"
    );
    number
}
