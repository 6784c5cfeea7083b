//! Benchmark of small appends beside large ones: a thread stores 100 bytes at a time at `sync`, one after the
//! other, while another stores bodies of `LARGE_MIB` MiB, with pauses.
//!
//! `beside_large DIR LARGE_MIB LARGE_LEVEL PAUSE_MS SECONDS`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a measurement by hand"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use stafett_journal::{Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Settings, StateWait};
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Record};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, mib, level, pause, seconds] = arguments.as_slice() else {
        println!("beside_large DIR LARGE_MIB LARGE_LEVEL PAUSE_MS SECONDS");
        return;
    };
    let (mib, seconds): (usize, u64) = (mib.parse().unwrap(), seconds.parse().unwrap());
    let pause = Duration::from_millis(pause.parse().unwrap());
    let journal = DiskJournal::open(directory.as_ref(), Settings::default(), Metrics::new()).unwrap();
    let small = create(&journal, Durability::Sync);
    let large = create(&journal, level.parse().unwrap());
    let (small_body, large_body) = (body(100), body(mib << 20));
    let over = AtomicBool::new(false);
    std::thread::sleep(Duration::from_secs(1));
    std::thread::scope(|scope| {
        let stored = scope.spawn(|| {
            let (started, mut count) = (Instant::now(), 0);
            while mib > 0 && !over.load(Ordering::Relaxed) {
                // Data from a socket is in a buffer of its own.
                let body = Bytes::copy_from_slice(&large_body);
                journal.append(vec![Append::batch(large, body)]).wait();
                count += 1;
                std::thread::sleep(pause);
            }
            (count * mib) as f64 / started.elapsed().as_secs_f64()
        });
        let mut waits = Vec::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            let at = Instant::now();
            journal
                .append(vec![Append::batch(small, small_body.clone())])
                .wait();
            waits.push(at.elapsed());
            std::thread::sleep(Duration::from_micros(200));
        }
        over.store(true, Ordering::Relaxed);
        waits.sort_unstable();
        let percentile = |p: usize| waits[waits.len() * p / 1000];
        println!(
            "{} small: p50 {:?} p99 {:?} p99.9 {:?} max {:?}; large: {:.0} MiB/s",
            waits.len(),
            percentile(500),
            percentile(990),
            percentile(999),
            waits[waits.len() - 1],
            stored.join().unwrap(),
        );
    });
}

fn create(journal: &DiskJournal, durability: Durability) -> LogId {
    let first = journal.allocate(1);
    let spec = LogSpec {
        durability,
        ..LogSpec::default()
    };
    let frame = Frame::CreateLogs {
        first,
        count: 1,
        spec,
    };
    journal
        .append(vec![Append::state([frame], StateWait::Synced)])
        .wait();
    first
}

fn body(bytes: usize) -> Bytes {
    let value = vec![b'x'; bytes];
    let mut builder = BatchBuilder::new(Codec::None);
    let record = Record {
        key: None,
        value: Some(&value),
        headers: &[],
        timestamp: 1,
    };
    builder.push(&record).unwrap();
    builder.finish().unwrap()
}
