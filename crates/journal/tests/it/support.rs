//! Helpers for all tests of a journal: batches in, records out.

use std::time::Duration;

use bytes::Bytes;
use stafett_journal::disk::RewritePolicy;
use stafett_journal::{
    Append, Frame, Journal, LogSlice, LogSpec, Outcome, PlacedBatch, ReadError, ReadFrom, ReadRequest,
    Settings, StateWait, Visibility,
};
use stafett_model::{BatchBuilder, BatchHeader, Codec, Durability, LogId, Offset, ProducerId, Record};

/// A record as seen by a test.
pub type Seen = (u64, String);

/// Chooses the amount of work: with `STAFETT_SOAK`, tests take minutes instead of seconds.
pub fn more<N>(usually: N, in_soak: N) -> N {
    if std::env::var_os("STAFETT_SOAK").is_some() {
        in_soak
    } else {
        usually
    }
}

/// Bytes of a segment in tests of rewriting.
pub const SEGMENT_BYTES: u32 = 64 << 10;

/// Settings of a journal that merges as much as possible when a test says so, and reads from the disk.
pub fn rewriting(merge_bytes: u64) -> Settings {
    Settings {
        segment_bytes: SEGMENT_BYTES,
        disk_free_bytes_min: 0,
        checkpoint_bytes: 1 << 30,
        rewrite_bytes_per_second: u64::MAX,
        tail_cache_bytes: 0,
        threads: false,
        rewrite: RewritePolicy {
            young: Duration::ZERO,
            merge_bytes,
            dead_bytes_tolerated: 0,
            ..RewritePolicy::default()
        },
        ..Settings::default()
    }
}

/// Builds a batch of records with these values.
pub fn batch(values: &[&str]) -> Bytes {
    fill(BatchBuilder::new(Codec::None), values, 5)
}

/// Builds such a batch with a timestamp.
pub fn batch_at(values: &[&str], timestamp: i64) -> Bytes {
    fill(BatchBuilder::new(Codec::None), values, timestamp)
}

/// Builds such a batch, compressed.
pub fn compressed(values: &[&str], codec: Codec) -> Bytes {
    fill(BatchBuilder::new(codec), values, 5)
}

/// Builds a batch of an idempotent producer.
pub fn numbered(values: &[&str], producer: i64, epoch: i16, sequence: i32) -> Bytes {
    fill(
        BatchBuilder::new(Codec::None).producer(ProducerId(producer), epoch, sequence),
        values,
        5,
    )
}

fn fill(mut builder: BatchBuilder, values: &[&str], timestamp: i64) -> Bytes {
    for value in values {
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp,
        };
        builder.push(&record).unwrap();
    }
    builder.finish().unwrap()
}

/// Creates a log.
pub fn create(journal: &dyn Journal, durability: Durability) -> LogId {
    create_logs(journal, 1, durability)
}

pub fn create_logs(journal: &dyn Journal, count: u32, durability: Durability) -> LogId {
    let first = journal.allocate(count);
    let spec = LogSpec {
        durability,
        ..LogSpec::default()
    };
    control(journal, [Frame::CreateLogs { first, count, spec }]);
    first
}

/// Appends frames without batches and waits until they are stored.
pub fn control(journal: &dyn Journal, frames: impl IntoIterator<Item = Frame>) {
    let outcome = append(journal, Append::state(frames, StateWait::Synced));
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

/// Appends and waits.
pub fn append(journal: &dyn Journal, append: Append) -> Outcome {
    let mut outcomes = journal.append(vec![append]).wait();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Appends a batch to a log, which has to work; returns the base offset.
pub fn put(journal: &dyn Journal, log: LogId, batch: Bytes) -> u64 {
    let placed = placed(append(journal, Append::batch(log, batch)));
    assert_eq!((placed.log, placed.duplicate), (log, false));
    placed.base.0
}

/// Returns the place of the only batch of a committed append.
pub fn placed(outcome: Outcome) -> PlacedBatch {
    let Outcome::Committed(placed) = outcome else {
        panic!("it should have been committed: {outcome:?}");
    };
    assert_eq!(placed.len(), 1);
    placed[0]
}

/// Reads one log once.
pub fn read(journal: &dyn Journal, log: LogId, offset: u64, bytes_max: usize) -> Result<LogSlice, ReadError> {
    read_as(journal, log, (offset, bytes_max), Visibility::Stored)
}

pub fn read_as(
    journal: &dyn Journal,
    log: LogId,
    (offset, bytes_max): (u64, usize),
    visibility: Visibility,
) -> Result<LogSlice, ReadError> {
    let logs = vec![ReadFrom {
        log,
        offset: Offset(offset),
        bytes_max,
        visibility,
    }];
    let request = ReadRequest {
        logs,
        bytes_max,
        first_batch_whole: true,
    };
    journal.read(request).wait().unwrap().remove(0)
}

/// Splits a run into batches.
pub fn batches(run: &LogSlice) -> Vec<Bytes> {
    let mut bytes = Bytes::from(run.pieces.concat());
    assert_eq!(bytes.len(), run.bytes);
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::verify(&bytes).unwrap();
        batches.push(bytes.split_to(header.bytes));
    }
    batches
}

/// Returns the records of a run.
pub fn seen(run: &LogSlice) -> Vec<Seen> {
    batches(run).iter().flat_map(records).collect()
}

pub fn records(batch: &Bytes) -> Vec<Seen> {
    stafett_model::records(batch, 1 << 24)
        .unwrap()
        .map(|record| {
            let record = record.unwrap();
            (
                record.offset.0,
                String::from_utf8(record.value.unwrap().to_vec()).unwrap(),
            )
        })
        .collect()
}

/// Reads a whole log in steps of `step_bytes`.
pub fn read_all(journal: &dyn Journal, log: LogId, step_bytes: usize) -> Result<Vec<Seen>, ReadError> {
    let start = journal.bounds(log).ok_or(ReadError::NoSuchLog(log))?.start;
    let mut offset = start.0;
    let mut all = Vec::new();
    loop {
        let run = read(journal, log, offset, step_bytes)?;
        if run.pieces.is_empty() {
            return Ok(all);
        }
        assert!(run.next.0 > offset, "a read has to get further");
        all.extend(seen(&run).into_iter().filter(|(at, _)| *at >= start.0));
        offset = run.next.0;
    }
}

/// Returns the records of a log that contains only these values.
pub fn listed<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<Seen> {
    (0..).zip(values.into_iter().map(str::to_owned)).collect()
}
