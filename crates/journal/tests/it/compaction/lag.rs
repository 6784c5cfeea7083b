//! Longest lags: records in the segment being written are compacted in time, though nothing fills it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use stafett_journal::simulated::{Effect, Fault, SimulatedDisk};
use stafett_journal::{Append, Compaction, DiskJournal, Journal, Outcome};
use stafett_model::{BatchBuilder, Codec, LogId, ProducerId, Record, TransactionEnd, end_marker};

use super::bench::{BEGIN_MS, Bench, KeyValue, batch, pair};

const MAP_BYTES: usize = 1 << 20;
const LAG_MS: i64 = 60_000;

/// Compaction by the longest lag alone.
fn within_lag() -> Compaction {
    Compaction {
        lag_max: Some(Duration::from_millis(LAG_MS.unsigned_abs())),
        dirty_share_min: 1_000_000,
        ..Compaction::default()
    }
}

fn put(bench: &Bench, log: LogId, records: &[KeyValue]) {
    bench.put(log, batch(Codec::None, records, bench.now_ms(), None));
}

fn offsets(bench: &Bench, log: LogId) -> Vec<u64> {
    bench.read(log).iter().map(|record| record.offset.0).collect()
}

fn seals(bench: &Bench) -> i64 {
    bench.metric("journal_compaction_seals_total")
}

#[test]
fn records_in_the_segment_being_written_are_compacted_within_their_lag() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(within_lag());
    put(&bench, log, &[pair("a", "1"), pair("a", "2")]);
    // The age of a batch is that of its latest record.
    bench.advance(LAG_MS + 1);
    bench.rewrite();
    bench.rewrite();
    assert_eq!((offsets(&bench, log), seals(&bench)), (vec![0, 1], 0), "not yet");
    bench.advance(1);
    bench.rewrite();
    assert_eq!((offsets(&bench, log), seals(&bench)), (vec![0, 1], 1));
    bench.rewrite();
    assert_eq!(
        offsets(&bench, log),
        [1],
        "the segment was sealed and is compacted"
    );
    for _ in 0..3 {
        bench.advance(10 * LAG_MS);
        bench.rewrite();
    }
    assert_eq!(seals(&bench), 1, "nothing is left that waits");
    put(&bench, log, &[pair("a", "3")]);
    bench.advance(LAG_MS + 1);
    bench.rewrite();
    bench.rewrite();
    assert_eq!((offsets(&bench, log), seals(&bench)), (vec![2], 2));
    assert_eq!(offsets(&bench.restart(true), log), [2]);
}

#[test]
fn logs_without_a_longest_lag_and_young_records_seal_nothing() {
    let bench = Bench::new(MAP_BYTES);
    let specs = [
        Compaction {
            lag_max: None,
            ..within_lag()
        },
        Compaction {
            lag_min: Duration::from_hours(1),
            ..within_lag()
        },
    ];
    let logs = specs.map(|spec| bench.compacted(spec));
    let plain = bench.create(<_>::default());
    for log in logs.into_iter().chain([plain]) {
        put(&bench, log, &[pair("a", "1"), pair("a", "2")]);
    }
    bench.advance(2 * LAG_MS);
    bench.rewrite();
    assert_eq!(seals(&bench), 0);
}

/// What an open transaction holds back is not compacted, so a seal would be for nothing.
#[test]
fn records_behind_an_open_transaction_seal_nothing_until_it_ends() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(within_lag());
    let mut open = BatchBuilder::new(Codec::None)
        .producer(ProducerId(9), 0, 0)
        .transactional();
    let record = Record {
        key: Some(b"a"),
        value: Some(b"1"),
        headers: &[],
        timestamp: BEGIN_MS,
    };
    open.push(&record).unwrap();
    bench.put(log, open.finish().unwrap());
    put(&bench, log, &[pair("a", "2")]);
    bench.advance(2 * LAG_MS);
    bench.rewrite();
    assert_eq!(seals(&bench), 0);
    bench.put(
        log,
        end_marker(ProducerId(9), 0, TransactionEnd::Commit, bench.now_ms()),
    );
    bench.rewrite();
    bench.rewrite();
    assert_eq!((offsets(&bench, log), seals(&bench)), (vec![1, 2], 1));
}

/// Each pass leaves a segment with a few records, and the next one puts them together.
#[test]
fn a_log_that_is_often_compacted_does_not_become_many_small_segments() {
    let bench = Bench::new(MAP_BYTES);
    let log = bench.compacted(within_lag());
    for round in 0..20 {
        put(&bench, log, &[pair(&format!("{round}"), "1"), pair("same", "1")]);
        bench.advance(LAG_MS + 2);
        bench.rewrite();
        bench.rewrite();
    }
    let names = bench.disk.names();
    let sorted = names
        .iter()
        .filter(|it| it.starts_with("sorted") && it.split('.').next_back() == Some("seg"))
        .count();
    assert!((1..=2).contains(&sorted), "{sorted} segments: {names:?}");
    let expected: Vec<u64> = (0..19).map(|round| 2 * round).chain([38, 39]).collect();
    assert_eq!(offsets(&bench, log), expected);
}

/// A journal with records in the segment being written that are due, of the keys 0, 1, 2 and `same`.
struct Due {
    journal: DiskJournal,
    log: LogId,
    now: Arc<AtomicI64>,
    /// Offset of the newest acknowledged record of `same`.
    newest: u64,
}

impl Due {
    fn prepare(disk: &SimulatedDisk) -> Self {
        let bench = Bench::on(disk.clone(), Arc::new(AtomicI64::new(BEGIN_MS)), MAP_BYTES);
        let log = bench.compacted(within_lag());
        for round in 0..6 {
            put(
                &bench,
                log,
                &[pair(&(round % 3).to_string(), "1"), pair("same", "1")],
            );
        }
        bench.advance(2 * LAG_MS);
        let Bench { journal, now, .. } = bench;
        Self {
            journal: Arc::into_inner(journal).unwrap(),
            log,
            now,
            newest: 11,
        }
    }

    /// Seals, compacts, appends and closes; the disk may stop anywhere.
    fn compact(&mut self) {
        for _ in 0..3 {
            self.journal.rewrite();
            self.journal.pump();
            self.journal.checkpoint();
            let record = batch(Codec::None, &[pair("same", "2")], BEGIN_MS, None);
            let ticket = self.journal.append(vec![Append::batch(self.log, record)]);
            self.journal.pump();
            match ticket.wait().remove(0) {
                Outcome::Committed(placed) => self.newest = placed[0].base.0,
                Outcome::Refused(_) | Outcome::Unknown => break,
            }
        }
        self.journal.close();
    }
}

fn check(bench: &Bench, log: LogId, newest: u64) {
    let read = offsets(bench, log);
    let is_there = |offset: &u64| read.contains(offset);
    assert!([6, 8, 10].iter().all(is_there), "{read:?}");
    let newer = |offset: &&u64| **offset >= newest && ![6, 8, 10].contains(*offset);
    assert!(
        read.iter().any(|it| newer(&it)),
        "{newest} is acknowledged: {read:?}"
    );
}

fn stop_everywhere(effect: impl Fn(u64) -> Effect, boots: u8) {
    let whole = SimulatedDisk::new();
    let mut due = Due::prepare(&whole);
    let first = whole.changes() + 1;
    due.compact();
    let last = whole.changes();
    assert!(last > first + 50, "{} changes", last - first);
    for change in first..=last {
        let disk = SimulatedDisk::new();
        let mut due = Due::prepare(&disk);
        let effect = effect(change);
        disk.set_fault(Some(Fault { change, effect }));
        due.compact();
        let Due {
            journal,
            log,
            now,
            newest,
        } = due;
        drop(journal);
        disk.set_fault(None);
        disk.kill();
        let bench = Bench::booted(disk, now, MAP_BYTES, boots);
        let report = bench.journal.report();
        assert!(!report.is_damaged(), "{change}: {report:?}");
        check(&bench, log, newest);
        for _ in 0..3 {
            bench.advance(2 * LAG_MS);
            bench.rewrite();
        }
        check(&bench, log, newest);
        assert_eq!(
            offsets(&bench, log).len(),
            4,
            "everything is compacted in the end"
        );
    }
}

#[test]
fn a_loss_of_power_anywhere_around_an_early_seal_loses_nothing() {
    stop_everywhere(|_| Effect::PowerLoss, 2);
}

#[test]
fn a_kill_anywhere_around_an_early_seal_loses_nothing() {
    stop_everywhere(|seed| Effect::Kill { seed }, 1);
}

#[test]
fn a_failing_change_anywhere_around_an_early_seal_loses_nothing() {
    stop_everywhere(|_| Effect::Error, 1);
}

#[test]
fn a_full_disk_anywhere_around_an_early_seal_loses_nothing() {
    stop_everywhere(|_| Effect::Full, 1);
}
