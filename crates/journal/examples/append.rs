//! Benchmark of the journal alone: appends batches to some logs at a durability level, and then reads them
//! back.
//!
//! `cargo run --release -p stafett-journal --example append -- DIR LEVEL BATCH_BYTES BATCHES LOGS IN_FLIGHT`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a measuring program"
)]

use std::collections::VecDeque;
use std::time::Instant;

use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, ReadFrom, ReadRequest, Retention, Settings,
    StateWait, Visibility,
};
use stafett_model::{BatchBuilder, Codec, LogId, Offset, Record};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, level, batch_bytes, batches, logs, in_flight] = arguments.as_slice() else {
        println!("append DIR LEVEL BATCH_BYTES BATCHES LOGS IN_FLIGHT");
        return;
    };
    let (batch_bytes, batches): (usize, u64) = (batch_bytes.parse().unwrap(), batches.parse().unwrap());
    let (logs, in_flight): (u32, usize) = (logs.parse().unwrap(), in_flight.parse().unwrap());
    let opened = Instant::now();
    let journal = DiskJournal::open(directory.as_ref(), Settings::default(), Metrics::new()).unwrap();
    println!("open: {:?}", opened.elapsed());
    let first = journal.allocate(logs);
    let spec = LogSpec {
        durability: level.parse().unwrap(),
        retention: Retention::default(),
        compaction: None,
    };
    journal
        .append(vec![Append::state(
            [Frame::CreateLogs {
                first,
                count: logs,
                spec,
            }],
            StateWait::Synced,
        )])
        .wait();
    let mut builder = BatchBuilder::new(Codec::None);
    while builder.bytes() < batch_bytes {
        builder
            .push(&Record {
                key: None,
                value: Some(&[b'x'; 100]),
                headers: &[],
                timestamp: 1,
            })
            .unwrap();
    }
    let records = u64::try_from(builder.len()).unwrap();
    let batch = builder.finish().unwrap();
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut tickets = VecDeque::new();
    let mut waits = Vec::new();
    for n in 0..batches {
        let log = LogId(first.0 + n % u64::from(logs));
        // Data from a socket is in a buffer of its own.
        let body = bytes::Bytes::copy_from_slice(&batch);
        tickets.push_back((Instant::now(), journal.append(vec![Append::batch(log, body)])));
        if tickets.len() >= in_flight {
            let (at, ticket) = tickets.pop_front().unwrap();
            ticket.wait();
            waits.push(at.elapsed());
        }
    }
    for (_, ticket) in tickets {
        ticket.wait();
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let million = (batches * records) as f64 / 1e6;
    waits.sort_unstable();
    let percentile = |p: usize| waits.get(waits.len() * p / 1000).copied().unwrap_or_default();
    println!(
        "{level}: {:.0} batches/s, {:.2} M records/s, {:.0} MB/s, {:.3} CPU-s per million records; p50 {:?} p99 {:?} p99.9 {:?}",
        batches as f64 / seconds,
        million / seconds,
        (batches * batch.len() as u64) as f64 / seconds / 1e6,
        cpu / million,
        percentile(500),
        percentile(990),
        percentile(999),
    );
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut bytes = 0;
    for n in 0..u64::from(logs) {
        let (log, mut offset) = (LogId(first.0 + n), Offset(0));
        loop {
            let logs = vec![ReadFrom {
                log,
                offset,
                bytes_max: 1 << 20,
                visibility: Visibility::Stored,
            }];
            let request = ReadRequest {
                logs,
                bytes_max: 1 << 20,
                first_batch_whole: true,
            };
            let run = journal.read(request).wait().unwrap().remove(0).unwrap();
            if run.bytes == 0 {
                break;
            }
            bytes += run.bytes;
            offset = run.next;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "read: {:.0} MB/s, {:.3} CPU-s per million records",
        bytes as f64 / seconds / 1e6,
        (cpu_seconds() - cpu) / million
    );
    let started = Instant::now();
    drop(journal);
    println!("close: {:?}", started.elapsed());
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}
