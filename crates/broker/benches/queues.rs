//! Benchmark of a message's life in the core: published, stored in the journal, handed out, settled. `cargo
//! bench -p stafett-broker --bench queues [-- NAME]`
//!
//! Prints messages per second end to end, and the processor time of all threads per message: batches of 100
//! messages of 100 bytes, one producer with 50 batches in progress, one consumer, two worker threads, a
//! journal on disk.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench: its output is its purpose"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use smallvec::smallvec;
use stafett_broker::{Broker, BrokerSettings};
use stafett_delivery::{ConsumerSpec, DeliveryId, Outbox, Settle};
use stafett_journal::{DiskJournal, Settings};
use stafett_messaging::queues::{Declare, OwnerId, Publication, Queue, Targets};
use stafett_model::{Message, Namespace};

const MESSAGES: u32 = 2_000_000;
const BATCH: u32 = 100;
const UNDER_WAY: usize = 50;

#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    durable: bool,
    persistent: bool,
    settles: bool,
    queues: usize,
}

const CASES: [Case; 5] = [
    Case {
        name: "transient, taken",
        durable: false,
        persistent: false,
        settles: false,
        queues: 1,
    },
    Case {
        name: "transient, settled",
        durable: false,
        persistent: false,
        settles: true,
        queues: 1,
    },
    Case {
        name: "transient on a durable queue, settled",
        durable: true,
        persistent: false,
        settles: true,
        queues: 1,
    },
    Case {
        name: "persistent, settled",
        durable: true,
        persistent: true,
        settles: true,
        queues: 1,
    },
    Case {
        name: "persistent to 10 queues, settled",
        durable: true,
        persistent: true,
        settles: true,
        queues: 10,
    },
];

fn main() {
    let wanted = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    println!("{:<40} {:>12} {:>14}", "", "messages/s", "CPU ns/message");
    for case in CASES {
        if wanted.as_ref().is_some_and(|name| !case.name.contains(name)) {
            continue;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(run(case, folder.path()));
    }
}

async fn run(case: Case, folder: &std::path::Path) {
    let journal =
        DiskJournal::open(folder, Settings::default(), stafett_journal::Metrics::default()).unwrap();
    let broker = Broker::start(Arc::new(journal), BrokerSettings::default())
        .await
        .unwrap();
    let queues = broker.messaging().queues();
    let mut targets = Targets::default();
    let mut consumers = Vec::new();
    for number in 0..case.queues {
        let declare = Declare {
            durable: case.durable,
            ..Declare::default()
        };
        let name = format!("queue-{number}");
        let queue = queues
            .declare(&Namespace::default(), &name, declare)
            .await
            .unwrap();
        targets.queues.push(Arc::clone(&queue));
        consumers.push(queue);
    }
    let messages = MESSAGES / u32::try_from(case.queues).unwrap();
    let (started, cpu) = (Instant::now(), cpu_ns());
    let tracker = tokio_util::task::TaskTracker::new();
    for queue in consumers {
        tracker.spawn(consume(queue, case.settles, messages));
    }
    produce(queues, targets, case.persistent, messages).await;
    tracker.close();
    tracker.wait().await;
    let seconds = started.elapsed().as_secs_f64();
    let delivered = f64::from(messages) * case.queues as f64;
    println!(
        "{:<40} {:>12.0} {:>14.0}",
        case.name,
        delivered / seconds,
        (cpu_ns() - cpu) / delivered,
    );
    broker.stop().await;
}

async fn produce(queues: &Arc<stafett_messaging::Queues>, targets: Targets, persistent: bool, messages: u32) {
    let mut under_way = VecDeque::new();
    let buffer = Bytes::from(vec![b'x'; 100 * BATCH as usize]);
    let exchange = bytestring::ByteString::from_static("");
    let routing_key = bytestring::ByteString::from_static("queue-0");
    for _ in 0..messages / BATCH {
        let mut publication = Publication::with_capacity(BATCH as usize);
        let route = publication.route(targets.clone());
        for nth in 0..BATCH as usize {
            let message = Message {
                exchange: exchange.clone(),
                routing_key: routing_key.clone(),
                value: buffer.slice(nth * 100..(nth + 1) * 100),
                persistent,
                headers: smallvec![(
                    bytestring::ByteString::from_static("properties"),
                    Some(Bytes::from_static(&[0; 8]))
                )],
                ..Message::default()
            };
            publication.push(message, route);
        }
        under_way.push_back(queues.append(publication));
        if under_way.len() >= UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            first.await;
        }
        tokio::task::yield_now().await;
    }
    for ticket in under_way {
        ticket.await;
    }
}

async fn consume(queue: Arc<Queue>, settles: bool, messages: u32) {
    let outbox = Outbox::new(512 << 10);
    let spec = ConsumerSpec {
        settles,
        exclusive: false,
        priority: 0,
        credit: settles.then_some(5000),
        shared_credit: None,
        filter: None,
    };
    let consumer = queue.consume(OwnerId(1), spec, Arc::clone(&outbox), 1).unwrap();
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    let mut settlements: Vec<(DeliveryId, Settle)> = Vec::new();
    let mut left = messages;
    let mut bytes = 0;
    while left > 0 {
        outbox.filled().await;
        outbox.take(&mut runs, &mut events);
        for run in runs.drain(..) {
            left -= u32::try_from(run.deliveries.len()).unwrap();
            for delivery in &run.deliveries {
                bytes += delivery.message.value().len() + delivery.message.routing_key().len();
            }
            if settles {
                settlements.extend(run.deliveries.iter().map(|one| (one.id, Settle::Complete)));
                queue.settle(&settlements);
                settlements.clear();
            }
        }
    }
    assert!(bytes > 0);
    consumer.cancel();
}

/// Returns the processor time of all threads so far.
fn cpu_ns() -> f64 {
    let mut all = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ns: f64 = text
            .split(' ')
            .next()
            .and_then(|ns| ns.parse().ok())
            .unwrap_or(0.0);
        all += ns;
    }
    all
}
