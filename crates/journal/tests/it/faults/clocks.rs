//! Unusual times: of records, and of the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stafett_journal::disk::Clock;
use stafett_journal::simulated::SimulatedDisk;
use stafett_journal::{
    Append, DiskJournal, Frame, Journal, LogSpec, Metrics, Outcome, Retention, Settings, StateWait, TimeQuery,
};
use stafett_model::{BatchBuilder, Codec, LogId, ProducerId, Record};

use super::run::settings;
use crate::support::{batch_at, placed, records};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const NOW: i64 = 1_780_000_000_000;

/// A journal, its disk and its clock.
struct Bench {
    disk: SimulatedDisk,
    now: Arc<AtomicI64>,
    journal: DiskJournal,
}

fn open(disk: &SimulatedDisk, now: &Arc<AtomicI64>) -> DiskJournal {
    let clock = Arc::clone(now);
    let settings = Settings {
        clock: Clock::new(move || clock.load(Ordering::Relaxed)),
        ..settings(1)
    };
    DiskJournal::open_on(disk.storage(), settings, Metrics::new()).unwrap()
}

impl Bench {
    fn new() -> Self {
        let (disk, now) = (SimulatedDisk::new(), Arc::new(AtomicI64::new(NOW)));
        let journal = open(&disk, &now);
        Self { disk, now, journal }
    }

    fn restart(&mut self) {
        self.disk.kill();
        self.journal = open(&self.disk, &self.now);
    }

    fn step_clock(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    fn log(&self, age: Option<Duration>) -> LogId {
        let first = self.journal.allocate(1);
        let spec = LogSpec {
            retention: Retention { age, bytes: None },
            ..LogSpec::default()
        };
        let frame = Frame::CreateLogs {
            first,
            count: 1,
            spec,
        };
        self.append(Append::state([frame], StateWait::Synced));
        first
    }

    fn append(&self, append: Append) -> Outcome {
        let ticket = self.journal.append(vec![append]);
        self.journal.pump();
        ticket.wait().remove(0)
    }

    /// Sends a batch of a producer; returns true if it was a duplicate.
    fn send(&self, log: LogId, producer: i64, timestamp: i64) -> bool {
        let body = numbered(producer, timestamp);
        placed(self.append(Append::batch(log, body))).duplicate
    }

    fn starts_at(&self, log: LogId) -> u64 {
        self.journal.bounds(log).unwrap().start.0
    }

    /// Appends twenty batches, which exceed a segment.
    fn fill(&self, log: LogId, timestamp: i64) {
        for _ in 0..20 {
            self.append(Append::batch(log, batch_at(&[&"x".repeat(1000)], timestamp)));
        }
    }
}

fn numbered(producer: i64, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None).producer(ProducerId(producer), 0, 0);
    let record = Record {
        key: None,
        value: Some(b"v"),
        headers: &[],
        timestamp,
    };
    builder.push(&record).unwrap();
    builder.finish().unwrap()
}

#[test]
fn old_records_sent_again_behind_a_kill_are_duplicates() {
    for timestamp in [NOW - 25 * HOUR, NOW - 400 * DAY, 5, -1] {
        let mut bench = Bench::new();
        let log = bench.log(None);
        assert!(!bench.send(log, 7, timestamp));
        for round in 0..3 {
            bench.restart();
            bench.send(log, 100 + round, NOW);
            bench.journal.checkpoint();
            assert!(bench.send(log, 7, timestamp), "{timestamp} in round {round}");
        }
    }
}

#[test]
fn a_jump_of_the_clock_forgets_no_producer() {
    for jump in [2 * DAY, -2 * DAY, 400 * DAY, -NOW] {
        for restarts in [false, true] {
            let mut bench = Bench::new();
            let log = bench.log(None);
            assert!(!bench.send(log, 7, NOW));
            bench.journal.checkpoint();
            bench.step_clock(jump);
            for other in 8..11 {
                if restarts {
                    bench.restart();
                }
                bench.send(log, other, NOW);
                bench.journal.checkpoint();
            }
            assert!(bench.send(log, 7, NOW), "{jump} {restarts}");
            bench.step_clock(-jump);
            bench.send(log, 12, NOW);
            bench.journal.checkpoint();
            assert!(bench.send(log, 7, NOW), "{jump} and back, {restarts}");
        }
    }
}

#[test]
fn a_producer_is_forgotten_after_a_day_of_running_without_it() {
    let mut bench = Bench::new();
    let log = bench.log(None);
    assert!(!bench.send(log, 7, NOW));
    let mut other = 100;
    let mut is_known_after = |bench: &Bench, hours: i64| {
        for _ in 0..hours * 120 {
            bench.step_clock(30_000);
            bench.journal.pump();
        }
        other += 1;
        bench.send(log, other, NOW);
        bench.journal.checkpoint();
        let known = bench.journal.producers(log).unwrap();
        known.iter().any(|seen| seen.id == ProducerId(7))
    };
    assert!(is_known_after(&bench, 23));
    // No running time passes while it is stopped.
    bench.step_clock(3 * DAY);
    bench.restart();
    assert!(is_known_after(&bench, 0));
    assert!(!is_known_after(&bench, 2));
    bench.restart();
    assert!(!is_known_after(&bench, 0));
}

#[test]
fn a_producer_is_seen_when_it_sent_and_not_at_the_time_of_its_records() {
    let mut bench = Bench::new();
    let log = bench.log(None);
    bench.send(log, 7, 5);
    bench.step_clock(HOUR);
    bench.restart();
    let seen = bench.journal.producers(log).unwrap();
    assert!((NOW..=NOW + HOUR).contains(&seen[0].at), "{seen:?}");
}

#[test]
fn producers_of_a_deleted_log_are_forgotten_and_others_stay() {
    let mut bench = Bench::new();
    let [gone, kept] = [(), ()].map(|()| bench.log(None));
    for log in [gone, kept] {
        for producer in 1..50 {
            bench.send(log, producer, NOW);
        }
    }
    bench.journal.checkpoint();
    bench.restart();
    let delete = Frame::DeleteLogs {
        first: gone,
        count: 1,
    };
    bench.append(Append::state([delete], StateWait::Synced));
    bench.journal.checkpoint();
    bench.restart();
    assert_eq!(bench.journal.producers(gone), None);
    let ids = bench.journal.producers(kept).unwrap();
    assert_eq!(
        ids.iter().map(|seen| seen.id.0).collect::<Vec<_>>(),
        (1..50).collect::<Vec<_>>()
    );
}

#[test]
fn records_without_a_time_are_kept_from_when_they_were_appended() {
    for timestamp in [-1, -DAY] {
        for rewrites in [false, true] {
            let mut bench = Bench::new();
            let log = bench.log(Some(Duration::from_hours(168)));
            bench.fill(log, timestamp);
            for day in 0..10 {
                if day % 3 == 2 {
                    bench.restart();
                }
                if rewrites {
                    bench.journal.checkpoint();
                    bench.journal.rewrite();
                }
                bench.journal.enforce_retention();
                bench.journal.pump();
                let is_whole = bench.starts_at(log) == 0;
                assert_eq!(
                    is_whole,
                    day <= 7,
                    "{timestamp} on day {day}, rewritten: {rewrites}"
                );
                bench.step_clock(DAY);
            }
        }
    }
}

#[test]
fn records_without_a_time_are_kept_among_old_ones() {
    let bench = Bench::new();
    let log = bench.log(Some(Duration::from_hours(168)));
    for number in 0..20 {
        let timestamp = if number % 5 == 4 { -1 } else { NOW - 30 * DAY };
        bench.append(Append::batch(log, batch_at(&[&"x".repeat(1000)], timestamp)));
    }
    bench.journal.enforce_retention();
    assert_eq!(bench.starts_at(log), 0);
    bench.step_clock(8 * DAY);
    bench.journal.enforce_retention();
    assert!(bench.starts_at(log) > 0);
}

#[test]
fn records_are_kept_by_their_time_however_far_in_the_future() {
    let bench = Bench::new();
    let log = bench.log(Some(Duration::from_hours(168)));
    bench.fill(log, NOW + 30 * DAY);
    bench.step_clock(36 * DAY);
    bench.journal.enforce_retention();
    assert_eq!(bench.starts_at(log), 0);
    bench.step_clock(2 * DAY);
    bench.journal.enforce_retention();
    assert!(bench.starts_at(log) > 0);
}

#[test]
fn records_without_a_time_are_not_found_by_one() {
    let mut bench = Bench::new();
    let [undated, mixed] = [(), ()].map(|()| bench.log(None));
    bench.fill(undated, -1);
    bench.fill(mixed, -1);
    bench.append(Append::batch(mixed, batch_at(&["found"], 1000)));
    bench.fill(mixed, -1);
    let find = |bench: &Bench, log, query| {
        let found = bench.journal.find_time(log, query).wait().unwrap().unwrap();
        found.map(|batch| records(&batch)[0].0)
    };
    for _ in 0..2 {
        for time in [0, 1000] {
            assert_eq!(find(&bench, undated, TimeQuery::AtOrAfter(time)), None);
            assert_eq!(find(&bench, mixed, TimeQuery::AtOrAfter(time)), Some(20));
        }
        assert_eq!(find(&bench, mixed, TimeQuery::AtOrAfter(1001)), None);
        assert_eq!(find(&bench, mixed, TimeQuery::Latest), Some(20));
        // All are equally late.
        assert_eq!(find(&bench, undated, TimeQuery::Latest), Some(0));
        bench.restart();
    }
}
