//! Rows per second of each part of a sink, from records in memory: `rate COUNT [URL of PostgreSQL]`.
//!
//! Build it with `cargo build --release -p stafett-sinks --example rate`. The table `rate` is dropped and made anew.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to measure with: it ends at the first failure"
)]

use std::time::Instant;

use bytes::Bytes;
use stafett_model::{Headers, Offset, StoredRecord};
use stafett_sinks::broker::Servers;
use stafett_sinks::convert::Converter;
use stafett_sinks::definition::Definition;
use stafett_sinks::gather::{Batch, Cause, Gather};
use stafett_sinks::target::{Part, Place, Start, Steps, Surroundings, target_of};

const COLUMNS: &str = r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
retention = { from = "retentionTime", type = "bigint" }
application = { from = "applicationId", type = "text" }
country = { type = "text" }
platform = { type = "text" }
score = { type = "double" }
at = { type = "timestamptz" }
active = { type = "boolean" }
message = { type = "text" }
"#;

fn record(offset: u64) -> StoredRecord {
    let value = format!(
        "{{\"id\":{offset},\"eventType\":\"QUIT\",\"retentionTime\":{},\"applicationId\":\"app-{}\",\"country\":\"SE\",\
         \"platform\":\"android\",\"score\":{}.25,\"at\":\"2026-11-22T10:{:02}:{:02}Z\",\"active\":true,\
         \"message\":\"a line of a log, as applications write them, long enough to make up three hundred bytes of a whole \
         record\"}}",
        offset % 1000,
        offset % 7,
        offset % 100,
        offset / 60 % 60,
        offset % 60
    );
    StoredRecord {
        offset: Offset(offset),
        timestamp: 0,
        key: None,
        value: Some(Bytes::from(value)),
        headers: Headers::default(),
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let url = arguments.next();
    let records: Vec<_> = (0..count).map(record).collect();
    let bytes: usize = records
        .iter()
        .map(|record| record.value.as_ref().map_or(0, Bytes::len))
        .sum();
    println!("{count} records of {} bytes", bytes / records.len().max(1));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let folder = std::env::temp_dir().join(format!("stafett-rate-{}", std::process::id()));
    for fields in [
        "format = \"csv\"\ncompression = \"gzip\"",
        "format = \"ndjson\"\ncompression = \"none\"",
        "format = \"ndjson\"\ncompression = \"zstd\"",
    ] {
        std::fs::create_dir_all(&folder).unwrap();
        let to = format!("to = \"files\"\npath = '{}'\n{fields}", folder.display());
        runtime.block_on(measure(&to, &records, fields));
        std::fs::remove_dir_all(&folder).unwrap();
    }
    if let Some(url) = url {
        let to = format!("to = \"postgres\"\nurl = \"{url}\"\ntable = \"rate\"\ncreate = true");
        runtime.block_on(measure(&to, &records, "postgres"));
    }
}

async fn measure(to: &str, records: &[StoredRecord], what: &str) {
    let text = format!("[sink.rate]\nfrom = \"rate\"\n{to}\nflush = {{ records = 30000 }}\n{COLUMNS}");
    let sink = Definition::parse(&text).unwrap().remove(0);
    let surroundings = Surroundings {
        steps: Steps::default(),
        wall: || 0,
        servers: Servers::default(),
        webhook_allow: Vec::new(),
        ledger: None,
    };
    let mut target = target_of(&sink, &surroundings);
    let place = Place {
        topic: format!("rate-{}", std::process::id()),
        partition: 0,
    };
    let opened = target.open(&place, Start::at(0)).await.unwrap();
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let begun = Instant::now();
    let mut gather = Gather::new(place, sink.flush, sink.columns.len(), opened.next, None, 0);
    let mut batches: Vec<Batch> = Vec::new();
    for record in records {
        assert!(gather.push(record, &mut converter));
        if gather.is_full() {
            batches.push(gather.take(Cause::Full, 0));
        }
    }
    if !gather.is_empty() {
        batches.push(gather.take(Cause::Stop, 0));
    }
    let gathered = begun.elapsed();
    let begun = Instant::now();
    for batch in &batches {
        let part = Part {
            place: &batch.place,
            epoch: opened.epoch,
            from: batch.from,
            next: batch.next,
            rows: batch.rows.all(),
            records: batch.records,
        };
        target.write(&part).await.unwrap();
    }
    let written = begun.elapsed();
    let rate = |time: std::time::Duration| records.len() as f64 / time.as_secs_f64() / 1000.0;
    println!(
        "{what:?}: {:.0} k/s into rows, {:.0} k/s written, {:.0} k/s one behind the other",
        rate(gathered),
        rate(written),
        rate(gathered + written)
    );
}
