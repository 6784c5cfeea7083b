//! Benchmark of depth and number: one queue with ten million messages, and a hundred thousand queues. `cargo
//! bench -p stafett-broker --bench queue_scale [-- deep|many]`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench: its output is its purpose"
)]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_delivery::{ConsumerSpec, Outbox, Settle};
use stafett_journal::{DiskJournal, Journal, Metrics, Settings};
use stafett_messaging::queues::{Declare, OwnerId, Publication, Queue, Targets};
use stafett_model::{Message, Namespace};

const DEEP: u32 = 10_000_000;
const BATCH: u32 = 500;
const MANY: u32 = 100_000;

fn main() {
    let wanted = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    let runs = |name| wanted.as_ref().is_none_or(|wanted| wanted == name);
    if runs("deep") {
        deep();
    }
    if runs("many") {
        many();
    }
}

/// Runs `work` with a broker on a folder, in a runtime of its own.
fn with_broker(folder: &Path, work: impl AsyncFnOnce(&Arc<Broker>)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let started = Instant::now();
        let journal = Arc::new(DiskJournal::open(folder, Settings::default(), Metrics::new()).unwrap());
        let shared = Arc::clone(&journal) as Arc<dyn Journal>;
        let broker = Arc::new(Broker::start(shared, BrokerSettings::default()).await.unwrap());
        println!(
            "started in {:.2} s with {} MB",
            started.elapsed().as_secs_f64(),
            resident_mb()
        );
        work(&broker).await;
        broker.stop().await;
        journal.close();
    });
}

fn deep() {
    let folder = tempfile::tempdir().unwrap();
    with_broker(folder.path(), async |broker| {
        let declare = Declare {
            durable: true,
            ..Declare::default()
        };
        let declared = broker
            .messaging()
            .queues()
            .declare(&Namespace::default(), "deep", declare);
        let queue = declared.await.unwrap();
        let started = Instant::now();
        fill(broker, &queue).await;
        let rate = f64::from(DEEP) / started.elapsed().as_secs_f64();
        println!(
            "published at {rate:.0}/s: {} wait, {} MB",
            queue.counts().ready,
            resident_mb()
        );
    });
    with_broker(folder.path(), async |broker| {
        let queue = broker
            .messaging()
            .queues()
            .get(&Namespace::default(), "deep")
            .unwrap();
        println!("{} wait", queue.counts().ready);
        let started = Instant::now();
        drain(&queue).await;
        let rate = f64::from(DEEP) / started.elapsed().as_secs_f64();
        println!("drained at {rate:.0}/s, {} MB", resident_mb());
    });
    with_broker(folder.path(), async |broker| {
        let queue = broker
            .messaging()
            .queues()
            .get(&Namespace::default(), "deep")
            .unwrap();
        println!("{} wait", queue.counts().ready);
    });
}

async fn fill(broker: &Broker, queue: &Arc<Queue>) {
    let body = Bytes::from(vec![b'x'; 100]);
    let mut under_way = VecDeque::new();
    for _ in 0..DEEP / BATCH {
        let mut publication = Publication::with_capacity(BATCH as usize);
        let route = publication.route(Targets {
            queues: std::iter::once(Arc::clone(queue)).collect(),
            ..Targets::default()
        });
        for _ in 0..BATCH {
            let message = Message {
                value: body.clone(),
                persistent: true,
                ..Message::default()
            };
            publication.push(message, route);
        }
        under_way.push_back(broker.messaging().queues().append(publication));
        if under_way.len() >= 20
            && let Some(first) = under_way.pop_front()
        {
            first.await;
        }
    }
    for ticket in under_way {
        ticket.await;
    }
}

async fn drain(queue: &Arc<Queue>) {
    let outbox = Outbox::new(512 << 10);
    let spec = ConsumerSpec {
        settles: true,
        exclusive: false,
        priority: 0,
        credit: Some(4000),
        shared_credit: None,
        filter: None,
    };
    let consumer = queue.consume(OwnerId(1), spec, Arc::clone(&outbox), 1).unwrap();
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    let mut left = DEEP as usize;
    while left > 0 {
        outbox.filled().await;
        outbox.take(&mut runs, &mut events);
        for run in runs.drain(..) {
            left -= run.deliveries.len();
            let settlements: Vec<_> = run
                .deliveries
                .iter()
                .map(|one| (one.id, Settle::Complete))
                .collect();
            queue.settle(&settlements);
        }
    }
    consumer.cancel();
}

fn many() {
    let folder = tempfile::tempdir().unwrap();
    with_broker(folder.path(), async |broker| {
        let started = Instant::now();
        let mut declaring = VecDeque::new();
        for number in 0..MANY {
            let declare = Declare {
                durable: true,
                ..Declare::default()
            };
            let name = format!("queue-{number}");
            declaring.push_back(
                broker
                    .messaging()
                    .queues()
                    .declare(&Namespace::default(), &name, declare),
            );
            if declaring.len() >= 1000
                && let Some(first) = declaring.pop_front()
            {
                first.await.unwrap();
            }
        }
        for last in declaring {
            last.await.unwrap();
        }
        let rate = f64::from(MANY) / started.elapsed().as_secs_f64();
        println!("declared {MANY} queues at {rate:.0}/s, {} MB", resident_mb());
    });
    with_broker(folder.path(), async |broker| {
        println!("{} queues", broker.messaging().queues().len());
    });
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
