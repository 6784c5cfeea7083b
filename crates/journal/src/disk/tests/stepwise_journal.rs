//! A journal without threads, for tests that do each step themselves: write a group, sync, kill the program.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Offset, ProducerId, Record};

use crate::contract::{Append, Frame, Journal, LogSpec, Outcome, StateWait};
use crate::disk::rewrite::RewritePolicy;
use crate::disk::{DiskJournal, Settings, syncer, writer};
use crate::metrics::Metrics;
use crate::simulated::SimulatedDisk;
use crate::ticket::Ticket;

pub(super) struct Bench {
    pub(super) disk: SimulatedDisk,
    pub(super) journal: DiskJournal,
}

impl Bench {
    pub(super) fn new() -> Self {
        let disk = SimulatedDisk::new();
        let journal = open(&disk, 1);
        Self { disk, journal }
    }

    pub(super) fn log(&self, durability: Durability) -> LogId {
        let first = self.journal.allocate(1);
        let spec = LogSpec {
            durability,
            ..LogSpec::default()
        };
        let frame = Frame::CreateLogs {
            first,
            count: 1,
            spec,
        };
        drop(self.append(Append::state([frame], StateWait::Synced)));
        self.journal.pump();
        first
    }

    /// Creates logs at `os` that start at 1: their offsets are reserved, so that no append waits for a sync.
    pub(super) fn logs<const N: usize>(&self) -> [LogId; N] {
        [(); N].map(|()| {
            let log = self.log(Durability::Os);
            drop(self.append(Append::batch(log, body_of(0))));
            let truncate = Frame::Truncate {
                log,
                before: Offset(1),
            };
            drop(self.append(Append::state([truncate], StateWait::Synced)));
            self.journal.pump();
            log
        })
    }

    pub(super) fn append(&self, append: Append) -> Ticket {
        self.journal.append(vec![append])
    }

    pub(super) fn write(&self) {
        while writer::pump(&self.journal.core) {}
    }

    pub(super) fn sync(&self) {
        syncer::pump(&self.journal.core);
    }

    pub(super) fn end(&self, log: LogId) -> u64 {
        self.journal.bounds(log).unwrap().end.0
    }

    /// Kills the program, or cuts the power, and restarts it.
    pub(super) fn restart(self, power: bool) -> Self {
        if power {
            self.disk.lose_power(1);
        } else {
            self.disk.kill();
        }
        let disk = self.disk.clone();
        drop(self.journal);
        let journal = open(&disk, if power { 2 } else { 1 });
        Self { disk, journal }
    }
}

fn open(disk: &SimulatedDisk, boot: u8) -> DiskJournal {
    try_open(disk, boot).unwrap()
}

pub(super) fn try_open(disk: &SimulatedDisk, boot: u8) -> Result<DiskJournal, crate::disk::OpenError> {
    let settings = Settings {
        segment_bytes: 64 << 10,
        boot: [boot; 16],
        disk_free_bytes_min: 0,
        rewrite: RewritePolicy {
            young: std::time::Duration::ZERO,
            merge_bytes: 20 << 10,
            dead_bytes_tolerated: 0,
            ..RewritePolicy::default()
        },
        rewrite_bytes_per_second: u64::MAX,
        threads: false,
        ..Settings::default()
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new())
}

/// Builds a batch of one record with a value of `bytes` bytes.
pub(super) fn body_of(bytes: usize) -> Bytes {
    fill(BatchBuilder::new(Codec::None), bytes)
}

/// Builds such a batch of an idempotent producer.
pub(super) fn numbered_of(bytes: usize, producer: i64, sequence: i32) -> Bytes {
    fill(
        BatchBuilder::new(Codec::None).producer(ProducerId(producer), 0, sequence),
        bytes,
    )
}

fn fill(mut builder: BatchBuilder, bytes: usize) -> Bytes {
    let value: Vec<u8> = (0..=250).cycle().take(bytes).collect();
    let record = Record {
        key: None,
        value: Some(&value),
        headers: &[],
        timestamp: 5,
    };
    builder.push(&record).unwrap();
    builder.finish().unwrap()
}

/// Returns the base offset of the batch of a ticket; `None` while it is not acknowledged.
pub(super) fn base_of(ticket: &mut Ticket) -> Option<u64> {
    match Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => match outcomes.as_slice() {
            [Outcome::Committed(placed)] => Some(placed[0].base.0),
            other => panic!("{other:?}"),
        },
        Poll::Pending => None,
    }
}
