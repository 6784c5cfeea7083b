//! Tests of appends that ask for less than their log promises, with the writer and the syncer at work one step at a time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_model::{BatchBuilder, Codec, Durability, LogId, Offset, Record};

use super::{DiskJournal, Settings, syncer, writer};
use crate::contract::{Append, Frame, Journal, LogSpec, Outcome, StateWait};
use crate::metrics::Metrics;
use crate::simulated::SimulatedDisk;
use crate::ticket::Ticket;

/// Where the journal of a test is, which no thread works on.
struct Bench {
    disk: SimulatedDisk,
    journal: DiskJournal,
    log: LogId,
}

impl Bench {
    fn new(level: Durability) -> Self {
        let disk = SimulatedDisk::new();
        let journal = open(&disk, 1);
        let first = journal.allocate(1);
        let spec = LogSpec {
            durability: level,
            ..LogSpec::default()
        };
        let frame = Frame::CreateLogs {
            first,
            count: 1,
            spec,
        };
        drop(journal.append(vec![Append::state([frame], StateWait::Synced)]));
        journal.pump();
        Self {
            disk,
            journal,
            log: first,
        }
    }

    /// A log at `sync` that has reserved offsets for lower appends.
    fn reserved() -> Self {
        let bench = Self::new(Durability::Sync);
        drop(bench.append(Some(Durability::Os)));
        bench.journal.pump();
        assert_eq!(bench.end(), 1);
        bench
    }

    fn append(&self, level: Option<Durability>) -> Ticket {
        let append = Append::batch(self.log, body());
        self.journal.append(vec![Append { level, ..append }])
    }

    fn write(&self) {
        while writer::pump(&self.journal.core) {}
    }

    fn sync(&self) {
        syncer::pump(&self.journal.core);
    }

    fn end(&self) -> u64 {
        self.journal.bounds(self.log).unwrap().end.0
    }

    /// Kills the program, or lets the power go, and starts it again.
    fn restart(self, power: bool) -> Self {
        if power {
            self.disk.lose_power(1);
        } else {
            self.disk.kill();
        }
        let (disk, log) = (self.disk.clone(), self.log);
        drop(self.journal);
        let journal = open(&disk, if power { 2 } else { 1 });
        Self { disk, journal, log }
    }
}

fn open(disk: &SimulatedDisk, boot: u8) -> DiskJournal {
    let settings = Settings {
        segment_bytes: 64 << 10,
        boot: [boot; 16],
        disk_free_bytes_min: 0,
        threads: false,
        ..Settings::default()
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap()
}

fn body() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    let record = Record {
        key: None,
        value: Some(b"value"),
        headers: &[],
        timestamp: 5,
    };
    builder.push(&record).unwrap();
    builder.finish().unwrap()
}

/// Where the batch of a ticket went, if that is known.
fn base_of(ticket: &mut Ticket) -> Option<u64> {
    match Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcomes) => match outcomes.as_slice() {
            [Outcome::Committed(placed)] => Some(placed[0].base.0),
            other => panic!("{other:?}"),
        },
        Poll::Pending => None,
    }
}

#[test]
fn a_lower_append_does_not_wait_for_a_sync() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Os));
    assert_eq!(base_of(&mut ticket), None);
    bench.write();
    assert_eq!(base_of(&mut ticket), Some(1));
    assert_eq!(bench.end(), 2);
}

#[test]
fn at_memory_it_waits_for_nothing() {
    let bench = Bench::reserved();
    assert_eq!(base_of(&mut bench.append(Some(Durability::Memory))), Some(1));
    assert_eq!(bench.end(), 1);
    bench.write();
    assert_eq!(bench.end(), 2);
}

#[test]
fn behind_a_batch_that_waits_for_a_sync_it_is_acknowledged_at_once_and_read_with_that_one() {
    let bench = Bench::reserved();
    let mut strict = bench.append(None);
    bench.write();
    let mut lower = [
        bench.append(Some(Durability::Os)),
        bench.append(Some(Durability::Os)),
    ];
    bench.write();
    assert_eq!(base_of(&mut strict), None);
    assert_eq!(base_of(&mut lower[0]), Some(2));
    assert_eq!(base_of(&mut lower[1]), Some(3));
    assert_eq!(bench.end(), 1);
    bench.sync();
    assert_eq!(base_of(&mut strict), Some(1));
    assert_eq!(bench.end(), 4);
}

#[test]
fn the_first_in_a_log_waits_until_its_offsets_are_reserved() {
    let bench = Bench::new(Durability::Sync);
    let mut first = bench.append(Some(Durability::Os));
    bench.write();
    assert_eq!((base_of(&mut first), bench.end()), (None, 0));
    bench.sync();
    assert_eq!((base_of(&mut first), bench.end()), (Some(0), 1));
}

#[test]
fn a_level_above_the_log_s_changes_nothing() {
    let bench = Bench::new(Durability::Os);
    drop(bench.append(None));
    bench.journal.pump();
    let mut ticket = bench.append(Some(Durability::Sync));
    bench.write();
    assert_eq!(base_of(&mut ticket), Some(1));
}

#[test]
fn reservations_go_on_so_that_later_lower_appends_do_not_wait_either() {
    let bench = Bench::reserved();
    for n in 1..10_000 {
        if n % 1000 == 0 {
            let mut lower = bench.append(Some(Durability::Os));
            bench.write();
            assert_eq!(base_of(&mut lower), Some(n), "a lower append waits");
        } else {
            drop(bench.append(None));
            bench.write();
        }
        bench.sync();
        bench.journal.pump();
    }
}

#[test]
fn offsets_that_a_kill_took_back_are_not_given_out_again() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Memory));
    assert_eq!(base_of(&mut ticket), Some(1));
    let bench = bench.restart(false);
    let mut next = bench.append(None);
    bench.journal.pump();
    assert!(base_of(&mut next).unwrap() > 1);
    let start = bench.journal.bounds(bench.log).unwrap().start;
    assert_eq!(start, Offset(0));
}

#[test]
fn offsets_that_a_loss_of_power_took_back_are_not_given_out_again() {
    let bench = Bench::reserved();
    let mut ticket = bench.append(Some(Durability::Os));
    bench.write();
    assert_eq!(base_of(&mut ticket), Some(1));
    let bench = bench.restart(true);
    let mut next = bench.append(None);
    bench.journal.pump();
    assert!(base_of(&mut next).unwrap() > 1);
}

#[test]
fn in_a_log_at_os_memory_counts_as_os() {
    let bench = Bench::new(Durability::Os);
    drop(bench.append(None));
    bench.journal.pump();
    let mut ticket = bench.append(Some(Durability::Memory));
    assert_eq!(base_of(&mut ticket), None);
    bench.write();
    assert_eq!(base_of(&mut ticket), Some(1));
}
