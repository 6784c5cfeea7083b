//! Requests to an endpoint over connections that stay open, and their times:
//! `posts ADDRESS TARGET RECORDS CONNECTIONS SECONDS`.
//!
//! Each connection sends a request once it has the answer to the one before. With one record a body is an object, with
//! more an object per line. Build it with `cargo build --release -p stafett-sinks --example posts`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to measure with: it ends at the first failure"
)]

mod events;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::records;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Answers of a connection: how often each status came, and the times in microseconds.
#[derive(Default)]
struct Answers {
    statuses: BTreeMap<u16, u64>,
    times_us: Vec<u32>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (address, target) = (arguments.next().unwrap(), arguments.next().unwrap());
    let mut number = || arguments.next().unwrap().parse::<u64>().unwrap();
    let (lines, connections, seconds) = (number(), number(), number());
    let request = Arc::new(request(&address, &target, lines));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let time = Duration::from_secs(seconds);
    let answers = runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..connections {
            running.spawn(ask(address.clone(), Arc::clone(&request), time));
        }
        running.join_all().await
    });
    let mut all = Answers::default();
    for answers in answers {
        all.times_us.extend(answers.times_us);
        for (status, count) in answers.statuses {
            *all.statuses.entry(status).or_default() += count;
        }
    }
    all.times_us.sort_unstable();
    let quantile = |percent: usize| {
        let at = all.times_us.len() * percent / 100;
        f64::from(*all.times_us.get(at.min(all.times_us.len() - 1)).unwrap()) / 1000.0
    };
    for (status, count) in &all.statuses {
        let rate = *count as f64 / time.as_secs_f64();
        let records = rate * lines as f64 / 1000.0;
        println!("status={status} requests_per_s={rate:.0} records_k_per_s={records:.1}");
    }
    println!("p50_ms={:.2} p99_ms={:.2}", quantile(50), quantile(99));
}

fn request(address: &str, target: &str, lines: u64) -> Vec<u8> {
    let values: Vec<_> = records(lines, "")
        .into_iter()
        .filter_map(|record| record.value)
        .collect();
    let body = values.join(&b"\n"[..]);
    let kind = if lines == 1 { "json" } else { "x-ndjson" };
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/{kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

async fn ask(address: String, request: Arc<Vec<u8>>, time: Duration) -> Answers {
    let mut stream = connect(&address).await;
    let (mut answers, mut bytes) = (Answers::default(), Vec::with_capacity(4096));
    let begun = Instant::now();
    while begun.elapsed() < time {
        let sent = Instant::now();
        stream.write_all(&request).await.unwrap();
        let (status, closes) = answer(&mut stream, &mut bytes).await;
        *answers.statuses.entry(status).or_default() += 1;
        answers
            .times_us
            .push(u32::try_from(sent.elapsed().as_micros()).unwrap());
        if closes {
            stream = connect(&address).await;
        }
    }
    answers
}

async fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads an answer. Returns its status, and true if the connection ends with it.
async fn answer(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> (u16, bool) {
    bytes.clear();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(bytes.get(..at).unwrap()).to_lowercase();
            let field = |name: &str| {
                head.lines()
                    .find_map(|line| line.strip_prefix(name).map(str::trim))
            };
            let length: usize = field("content-length:").map_or(0, |length| length.parse().unwrap());
            while bytes.len() < at + 4 + length {
                assert!(stream.read_buf(bytes).await.unwrap() > 0);
            }
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return (status, field("connection:") == Some("close"));
        }
        assert!(stream.read_buf(bytes).await.unwrap() > 0, "the connection ended");
    }
}
