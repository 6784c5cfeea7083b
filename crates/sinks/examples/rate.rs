//! Rows per second of each part of a sink, from records in memory: `rate COUNT [ADDRESS…]`.
//!
//! An address is one of PostgreSQL (`host=… user=…`, the rate of COPY is told too), of MongoDB (`mongodb://…`), or
//! `receiver`: a webhook of this program, and the rate of the same requests without a sink.
//!
//! Build it with `cargo build --release -p stafett-sinks --example rate`. The table `rate` has to be absent.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to measure with: it ends at the first failure"
)]

mod events;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use events::{COLUMNS, records};
use stafett_model::StoredRecord;
use stafett_sinks::broker::Servers;
use stafett_sinks::convert::Converter;
use stafett_sinks::definition::Definition;
use stafett_sinks::gather::{Batch, Cause, Gather};
use stafett_sinks::target::{
    Ledger, Opened, Part, Place, Start, Steps, Surroundings, Target, TargetError, target_of,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

/// Positions of a receiver that has none.
#[derive(Debug)]
struct NoLedger;

#[async_trait]
impl Ledger for NoLedger {
    async fn open(&self, _: &Place, start: Start) -> Result<Opened, TargetError> {
        Ok(Opened {
            next: start.next,
            epoch: 1,
            begun: None,
            topic: None,
        })
    }

    async fn begin(&self, _: &Place, _: u64, _: u64) -> Result<(), TargetError> {
        Ok(())
    }

    fn end(&self, _: &Place, _: u64) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let records = Arc::new(records(count, ""));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let addresses: Vec<_> = arguments.collect();
    if addresses.is_empty() {
        let folder = std::env::temp_dir().join(format!("stafett-rate-{}", std::process::id()));
        for fields in [
            "format = \"csv\"\ncompression = \"gzip\"",
            "format = \"ndjson\"\ncompression = \"none\"",
            "format = \"ndjson\"\ncompression = \"zstd\"",
            "format = \"parquet\"\ncompression = \"none\"",
            "format = \"parquet\"\ncompression = \"zstd\"",
        ] {
            std::fs::create_dir_all(&folder).unwrap();
            let to = format!("to = \"files\"\npath = '{}'\n{fields}", folder.display());
            runtime.block_on(measure(&to, COLUMNS, &records, fields, 30_000));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
    for address in addresses {
        let (to, flush) = if address.starts_with("mongodb") {
            (
                format!("to = \"mongodb\"\nurl = \"{address}\"\ncollection = \"rate\""),
                500,
            )
        } else if address == "receiver" {
            let receiver = runtime.block_on(receiver());
            runtime.block_on(requests(receiver, &records));
            let to = format!("to = \"webhook\"\nurl = \"http://{receiver}/\"");
            runtime.block_on(measure(&to, "", &records, "receiver, records as they are", 100));
            (to, 100)
        } else {
            let to = format!("to = \"postgres\"\nurl = \"{address}\"\ntable = \"rate\"\ncreate = true");
            (to, 30_000)
        };
        runtime.block_on(measure(&to, COLUMNS, &records, &address, flush));
        if address.contains("host=") {
            runtime.block_on(copy(&address, count));
        }
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1000.0
}

/// Gathers all records, and returns the batches.
fn gathered(sink: &Definition, records: &[StoredRecord], give: &mut dyn FnMut(Batch)) {
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let mut gather = Gather::new(place(), sink.flush, sink.columns.len(), 0, None, 0);
    for record in records {
        assert!(gather.push(record, &mut converter));
        if gather.is_full() {
            give(gather.take(Cause::Full, 0));
        }
    }
    if !gather.is_empty() {
        give(gather.take(Cause::Stop, 0));
    }
}

fn place() -> Place {
    Place {
        topic: format!("rate-{}", std::process::id()),
        partition: 0,
    }
}

async fn write(target: &mut dyn Target, epoch: u64, batch: &Batch) {
    let part = Part {
        place: &batch.place,
        epoch,
        from: batch.from,
        next: batch.next,
        batch: (batch.from, batch.next),
        rows: batch.rows.all(),
        records: batch.records,
    };
    target.write(&part).await.unwrap();
}

async fn measure(to: &str, columns: &str, records: &Arc<Vec<StoredRecord>>, what: &str, flush: usize) {
    let text = format!("[sink.rate]\nfrom = \"rate\"\n{to}\nflush = {{ records = {flush} }}\n{columns}");
    let sink = Definition::parse(&text).unwrap().remove(0);
    let surroundings = Surroundings {
        steps: Steps::default(),
        wall: || 0,
        servers: Servers::default(),
        webhook_allow: vec!["*".to_owned()],
        ledger: Some(Arc::new(NoLedger)),
    };
    let mut target = target_of(&sink, &surroundings);
    let count = records.len();
    let begun = Instant::now();
    let mut batches = Vec::new();
    gathered(&sink, records, &mut |batch| batches.push(batch));
    let into_rows = begun.elapsed();
    let opened = target.open(&place(), Start::at(0)).await.unwrap();
    let begun = Instant::now();
    for batch in &batches {
        write(&mut *target, opened.epoch, batch).await;
    }
    let written = begun.elapsed();
    drop(batches);
    // As a sink has it: a batch is gathered while the one before is written. Here it is another sink.
    let text = text.replace("sink.rate", "sink.rate2");
    let second = Definition::parse(&text).unwrap().remove(0);
    let mut target = target_of(&second, &surroundings);
    let both = if to.contains("\"files\"") || to.contains("mongodb") {
        Duration::ZERO
    } else {
        let opened = target.open(&place(), Start::at(0)).await.unwrap();
        let begun = Instant::now();
        let (give, mut take) = tokio::sync::mpsc::channel(1);
        let records = Arc::clone(records);
        let gathering = tokio::task::spawn_blocking(move || {
            gathered(&second, &records, &mut |batch| give.blocking_send(batch).unwrap());
        });
        while let Some(batch) = take.recv().await {
            write(&mut *target, opened.epoch, &batch).await;
        }
        gathering.await.unwrap();
        begun.elapsed()
    };
    println!(
        "{what:?}: {:.0} k/s into rows, {:.0} k/s written, {:.0} k/s one behind the other, {:.0} k/s at once",
        rate(count, into_rows),
        rate(count, written),
        rate(count, into_rows + written),
        rate(count, both)
    );
}

/// Tells what COPY itself reaches with the same rows, from a file on the server.
async fn copy(address: &str, count: u64) {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { connection.await.unwrap() });
    for format in ["text", "binary"] {
        let path = format!("/tmp/stafett-rate-{}.{format}", std::process::id());
        let prepared = format!(
            "DROP TABLE IF EXISTS rate_copy; CREATE TABLE rate_copy (LIKE rate); \
             COPY (SELECT * FROM rate LIMIT {count}) TO '{path}' (FORMAT {format})"
        );
        client.batch_execute(&prepared).await.unwrap();
        let begun = Instant::now();
        let copied = format!("COPY rate_copy FROM '{path}' (FORMAT {format})");
        client.batch_execute(&copied).await.unwrap();
        let rows = usize::try_from(count).unwrap();
        println!(
            "COPY from a file, {format}: {:.0} k/s",
            rate(rows, begun.elapsed())
        );
        std::fs::remove_file(&path).unwrap();
    }
}

/// Reads a request or an answer. False at the end.
async fn read_message(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(bytes.get(..at).unwrap()).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            while bytes.len() < at + 4 + length {
                if stream.read_buf(bytes).await.unwrap() == 0 {
                    return false;
                }
            }
            return true;
        }
        if stream.read_buf(bytes).await.unwrap_or(0) == 0 {
            return false;
        }
    }
}

/// Starts a receiver that takes everything.
async fn receiver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskTracker::new();
    let serving = tasks.clone();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            serving.spawn(async move {
                let mut bytes = Vec::with_capacity(1 << 20);
                while read_message(&mut stream, &mut bytes).await {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    address
}

/// Sends the records to a receiver in lists of 100, one request behind the other, and tells the rate.
async fn requests(address: SocketAddr, records: &[StoredRecord]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let bodies: Vec<Vec<u8>> = records
        .chunks(100)
        .map(|records| {
            let values: Vec<_> = records
                .iter()
                .filter_map(|record| record.value.as_deref())
                .collect();
            let list = values.join(&b","[..]);
            let head = format!(
                "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n[",
                list.len() + 2
            );
            [head.as_bytes(), &list, b"]"].concat()
        })
        .collect();
    let mut answer = Vec::new();
    let begun = Instant::now();
    for body in &bodies {
        stream.write_all(body).await.unwrap();
        assert!(read_message(&mut stream, &mut answer).await);
    }
    println!(
        "the receiver itself: {:.0} k/s",
        rate(records.len(), begun.elapsed())
    );
}
